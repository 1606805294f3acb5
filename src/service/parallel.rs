//! Work that is spread over the processors, with results in the order of the items.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads at most: a call should not take a large machine for itself.
const MOST_THREADS: usize = 16;

/// Apply `work` to every item on all processors; results stand in the order of the items.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads =
        std::thread::available_parallelism().map_or(1, usize::from).min(items.len()).min(MOST_THREADS);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let run = || {
            let mut mine = Vec::new();
            while let Some((i, item)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
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
