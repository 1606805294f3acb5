//! Work that is spread over the processors, with results in the order of the items.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Threads at most: a call should not take a large machine for itself.
const MOST_THREADS: usize = 16;

/// Whether somebody still waits for the work.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks for the end when it is dropped: with the request that waits.
    pub(super) fn when_dropped(&self) -> StopWhenDropped {
        StopWhenDropped(self.clone())
    }
}

/// Held by who waits for the work.
#[derive(Debug)]
pub(super) struct StopWhenDropped(Stop);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Apply `work` to every item on all processors; results stand in the order of the items. Once `stop` is asked for,
/// the items that are left have no result: nobody waits for them.
pub(super) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    stop: &Stop,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads =
        std::thread::available_parallelism().map_or(1, usize::from).min(items.len()).min(MOST_THREADS);
    if threads < 2 {
        return items.iter().take_while(|_| !stop.is_asked()).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let run = || {
            let mut mine = Vec::new();
            while let Some((i, item)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
                && !stop.is_asked()
            {
                mine.push((i, work(item)));
            }
            mine
        };
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut all = run();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_with_the_request_that_waits_for_it() {
        let stop = Stop::default();
        let waiting = std::sync::Mutex::new(Some(stop.when_dropped()));
        let items: Vec<usize> = (0..1_000).collect();
        let done = in_parallel(&items, &stop, |i| {
            if let Ok(mut waiting) = waiting.lock() {
                waiting.take();
            }
            *i
        });
        assert!(!done.is_empty() && done.len() <= MOST_THREADS * 2, "{}", done.len());
        assert_eq!(in_parallel(&items, &Stop::default(), |i| *i), items);
    }
}
