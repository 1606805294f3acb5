//! Plans: kept in memory at once, written to the database behind the answer.
//!
//! A plan is a pure function of its question, so losing one loses no information: asking again gives the
//! same plan under the same id. Therefore an answer never waits for the database. Each answer says whether
//! its plan was taken for writing; how many plans and bytes a second are written is bounded, and how long one
//! plan may be, so that a sweep of thousands of questions does not fill a disk.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use time::OffsetDateTime;
use tokio::sync::mpsc;

use super::{Guard, Health, PlanRecord, Store, StoreError};

/// Plans that wait to be written. While the database is away they wait here.
const QUEUE: usize = 512;
/// Plans written in one transaction.
const BATCH: usize = 64;
/// The longest answer that is taken back out of a stored one.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// The bytes of an answer, shared between memory, queue and responses.
pub type AnswerBytes = Bytes;

/// What happened to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In memory, and on its way to a database that is ready.
    Queued,
    /// In memory only: the database is away, or too many plans come. It may be gone after a restart.
    MemoryOnly,
}

/// What is written to the database at most; bytes are those of answers before they are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Plans in a second.
    pub per_s: u64,
    /// Bytes of plans in a second.
    pub bytes_per_s: u64,
    /// Bytes of one plan.
    pub plan_bytes: u64,
}

/// A plan in memory.
#[derive(Clone)]
struct Held {
    answer: AnswerBytes,
    /// True once the queue took it, or when it came out of the database.
    taken: bool,
}

/// Plans that are queued and not written yet: memory may forget them before the database has them.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<BTreeMap<String, AnswerBytes>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, AnswerBytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plans of a database, with a memory and a queue.
pub struct Plans {
    store: Arc<Guard>,
    memory: Cache<String, Held>,
    waiting: Waiting,
    queue: mpsc::Sender<(String, AnswerBytes)>,
    budget: Budget,
}

/// The other end of the queue; see [`PlanWriter::run`].
pub struct PlanWriter {
    store: Arc<Guard>,
    waiting: Waiting,
    queue: mpsc::Receiver<(String, AnswerBytes)>,
}

impl Plans {
    /// A memory of at most `memory_bytes` in front of a store; at most `stored` is taken for writing.
    #[must_use]
    pub fn over(store: Arc<Guard>, memory_bytes: u64, stored: Stored) -> (Self, PlanWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let memory = Cache::builder()
            .max_capacity(memory_bytes)
            // a new plan is always taken, in place of the one that was wanted longest ago
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|id: &String, held: &Held| {
                u32::try_from(id.len() + held.answer.len() + 64).unwrap_or(u32::MAX)
            })
            .build();
        let waiting = Waiting::default();
        let writer = PlanWriter { store: Arc::clone(&store), waiting: waiting.clone(), queue: receiver };
        (Self { store, memory, waiting, queue: sender, budget: Budget::of(stored) }, writer)
    }

    /// Keep a plan. `now_s` is the time in whole seconds, for the budget.
    pub async fn keep(&self, plan_id: &str, answer: AnswerBytes, now_s: u64) -> Kept {
        let held = self.memory.get(plan_id).await;
        let mut taken = held.as_ref().is_some_and(|held| held.taken);
        if !taken {
            taken = self.queue_up(plan_id, &answer, now_s);
            self.memory.insert(plan_id.to_owned(), Held { answer, taken }).await;
        }
        if taken && self.store.health() == Health::Ready { Kept::Queued } else { Kept::MemoryOnly }
    }

    fn queue_up(&self, plan_id: &str, answer: &AnswerBytes, now_s: u64) -> bool {
        if let Err(reason) = self.budget.take(now_s, answer.len() as u64) {
            metrics::counter!("shardwise_plans_not_stored_total", "reason" => reason).increment(1);
            return false;
        }
        self.waiting.lock().insert(plan_id.to_owned(), answer.clone());
        let queued = self.queue.try_send((plan_id.to_owned(), answer.clone())).is_ok();
        if !queued {
            self.waiting.lock().remove(plan_id);
            metrics::counter!("shardwise_plans_not_stored_total", "reason" => "queue_full").increment(1);
        }
        queued
    }

    /// The answer kept under a plan id.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it is not in memory and the database is away.
    pub async fn find(&self, plan_id: &str) -> Result<Option<AnswerBytes>, StoreError> {
        if let Some(held) = self.memory.get(plan_id).await {
            return Ok(Some(held.answer));
        }
        let waiting = self.waiting.lock().get(plan_id).cloned();
        if waiting.is_some() {
            return Ok(waiting);
        }
        let Some(record) = self.store.plan(plan_id).await? else { return Ok(None) };
        let answer = inflated(&record.answer)?;
        self.memory.insert(plan_id.to_owned(), Held { answer: answer.clone(), taken: true }).await;
        Ok(Some(answer))
    }
}

impl PlanWriter {
    /// Write what comes, until every [`Plans`] is dropped and the queue is empty.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.queue.recv_many(&mut batch, BATCH).await > 0 {
            let answers = std::mem::take(&mut batch);
            let ids: Vec<String> = answers.iter().map(|(id, _)| id.clone()).collect();
            let now = OffsetDateTime::now_utc();
            let records = tokio::task::spawn_blocking(move || records_of(&answers, now)).await;
            match records {
                Ok(Ok(records)) => self.write(&records).await,
                Ok(Err(error)) => tracing::error!(%error, "plans could not be packed"),
                Err(error) => tracing::error!(%error, "plans could not be packed"),
            }
            let mut waiting = self.waiting.lock();
            for id in &ids {
                waiting.remove(id);
            }
        }
    }

    async fn write(&self, records: &[PlanRecord]) {
        loop {
            match self.store.put_plans(records).await {
                Ok(()) => {
                    metrics::counter!("shardwise_plans_stored_total").increment(records.len() as u64);
                    return;
                }
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(error) => return tracing::error!(%error, plans = records.len(), "plans were not stored"),
            }
        }
    }
}

fn records_of(
    answers: &[(String, AnswerBytes)],
    created_at: OffsetDateTime,
) -> std::io::Result<Vec<PlanRecord>> {
    answers
        .iter()
        .map(|(plan_id, answer)| {
            let mut packer = DeflateEncoder::new(Vec::with_capacity(answer.len() / 6), Compression::fast());
            packer.write_all(answer)?;
            Ok(PlanRecord { plan_id: plan_id.clone(), answer: packer.finish()?, created_at })
        })
        .collect()
}

fn inflated(packed: &[u8]) -> Result<AnswerBytes, StoreError> {
    let mut answer = Vec::with_capacity(packed.len() * 8);
    DeflateDecoder::new(packed)
        .take(MAX_ANSWER_BYTES)
        .read_to_end(&mut answer)
        .map_err(|e| StoreError::Internal(format!("a stored plan cannot be unpacked: {e}")))?;
    Ok(answer.into())
}

/// Plans and bytes for each second of the clock.
struct Budget {
    most: Stored,
    taken: Mutex<Taken>,
}

/// What was taken in one second.
#[derive(Default)]
struct Taken {
    second: u64,
    plans: u64,
    bytes: u64,
}

impl Budget {
    fn of(most: Stored) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// Take a plan of so many bytes, or the reason why it is not taken. What is refused costs nothing of the budget.
    fn take(&self, now_s: u64, bytes: u64) -> Result<(), &'static str> {
        if bytes > self.most.plan_bytes {
            return Err("plan_bytes");
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.second != now_s {
            *taken = Taken { second: now_s, ..Taken::default() };
        }
        if taken.plans >= self.most.per_s {
            return Err("budget");
        }
        let with_this = taken.bytes.saturating_add(bytes);
        if with_this > self.most.bytes_per_s {
            return Err("budget_bytes");
        }
        taken.plans += 1;
        taken.bytes = with_this;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_for_each_second() {
        let budget = Budget::of(Stored { per_s: 2, bytes_per_s: 100, plan_bytes: 60 });
        assert_eq!(
            [7, 7, 7, 8, 8, 8, 8].map(|s| budget.take(s, 1).is_ok()),
            [true, true, false, true, true, false, false]
        );
        let none = Stored { per_s: 0, bytes_per_s: 100, plan_bytes: 60 };
        assert_eq!(Budget::of(none).take(1, 1), Err("budget"));
    }

    #[test]
    fn a_budget_counts_bytes_of_a_second_and_of_a_plan() {
        let budget = Budget::of(Stored { per_s: 10, bytes_per_s: 100, plan_bytes: 60 });
        assert_eq!(budget.take(7, 61), Err("plan_bytes"));
        assert_eq!(budget.take(7, 60), Ok(()));
        assert_eq!(budget.take(7, 41), Err("budget_bytes"));
        // what was refused took nothing: a smaller one still finds its place
        assert_eq!(budget.take(7, 40), Ok(()));
        assert_eq!(budget.take(7, 1), Err("budget_bytes"));
        assert_eq!(budget.take(8, 60), Ok(()));
        assert_eq!(budget.take(9, u64::MAX), Err("plan_bytes"));
    }

    #[test]
    fn answers_survive_packing() {
        let answer: AnswerBytes = br#"{"a": [1, 2, 3]}"#.repeat(500).into();
        let records =
            records_of(&[("p".to_owned(), answer.clone())], OffsetDateTime::UNIX_EPOCH).expect("packs");
        assert!(records[0].answer.len() < answer.len() / 10);
        assert_eq!(inflated(&records[0].answer).expect("unpacks"), answer);
    }
}
