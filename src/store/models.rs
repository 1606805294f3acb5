//! Model configurations: memory in front of the database.
//!
//! An entry is fresh for a while; then one of the callers that want it asks the database and the others
//! wait for that one answer. When the database is away, the old entry is served and marked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::future::Cache;
use moka::ops::compute::Op;

use super::{Answer, Expect, Guard, ModelHead, ModelRecord, Page, Put, Store, StoreError};

/// Entries kept, present and absent ones together.
const ENTRIES: u64 = 10_000;

/// The id and revision of an entry.
type Key = (String, String);

#[derive(Debug, Clone)]
struct Entry {
    record: Option<Arc<ModelRecord>>,
    /// `None`: must be read again.
    read_at: Option<Instant>,
}

/// What is known about a model id.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// The database says so, now or a moment ago. `None`: it keeps nothing under this id.
    Known(Option<Arc<ModelRecord>>),
    /// The database is away; it said so earlier.
    Stale(Option<Arc<ModelRecord>>),
    /// The database is away, and it was never asked.
    Unknown(StoreError),
}

/// Model configurations of a database, with a memory.
pub struct Models {
    store: Arc<Guard>,
    memory: Cache<Key, Entry>,
    fresh_for: Duration,
}

impl Models {
    /// A memory in front of a store; entries are taken on trust for `fresh_for`.
    #[must_use]
    pub fn over(store: Arc<Guard>, fresh_for: Duration) -> Self {
        Self { store, memory: Cache::new(ENTRIES), fresh_for }
    }

    /// The configuration kept under an id and revision.
    ///
    /// # Errors
    /// [`StoreError::Internal`] only: a database that is away is an answer of its own.
    pub async fn find(&self, id: &str, revision: &str) -> Result<Lookup, StoreError> {
        let key = (id.to_owned(), revision.to_owned());
        if let Some(entry) = self.memory.get(&key).await.filter(|e| self.is_fresh(e)) {
            metrics::counter!("shardwise_cache_lookups_total", "kind" => "models", "result" => "hit")
                .increment(1);
            return Ok(Lookup::Known(entry.record));
        }
        metrics::counter!("shardwise_cache_lookups_total", "kind" => "models", "result" => "miss")
            .increment(1);
        // callers of one key run this one after another, so all but the first find a fresh entry
        let loaded = self
            .memory
            .entry(key.clone())
            .and_try_compute_with(|old| async move {
                if old.is_some_and(|e| self.is_fresh(e.value())) {
                    return Ok(Op::Nop);
                }
                let record = self.store.model(id, revision).await?.map(Arc::new);
                Ok(Op::Put(Entry { record, read_at: Some(Instant::now()) }))
            })
            .await;
        match loaded {
            Ok(result) => Ok(Lookup::Known(result.into_entry().and_then(|e| e.into_value().record))),
            Err(fault @ StoreError::Internal(_)) => Err(fault),
            Err(fault) => Ok(match self.memory.get(&key).await {
                Some(entry) => Lookup::Stale(entry.record),
                None => Lookup::Unknown(fault),
            }),
        }
    }

    /// Keep a configuration. When this returns `Ok`, it is in the database.
    ///
    /// # Errors
    /// As [`Store::put_model`].
    pub async fn put(&self, record: ModelRecord, expect: &Expect) -> Result<Put, StoreError> {
        let key = (record.id.clone(), record.revision.clone());
        let record = Arc::new(record);
        self.write(key, Some(Arc::clone(&record)), self.store.put_model(&record, expect)).await
    }

    /// Forget a configuration; false when nothing was there.
    ///
    /// # Errors
    /// As [`Store::delete_model`].
    pub async fn delete(&self, id: &str, revision: &str, expect: &Expect) -> Result<bool, StoreError> {
        let key = (id.to_owned(), revision.to_owned());
        self.write(key, None, self.store.delete_model(id, revision, expect)).await
    }

    /// Write, then remember what was written. Reads of the same key wait, so none can put back what it read before.
    /// A write that failed on the way may still have happened: the entry is aged rather than dropped,
    /// so that the database is asked again, and the entry can be served while it is away.
    async fn write<T: Send>(
        &self,
        key: Key,
        written: Option<Arc<ModelRecord>>,
        write: Answer<'_, T>,
    ) -> Result<T, StoreError> {
        let mut done = None;
        let outcome = &mut done;
        self.memory
            .entry(key)
            .and_compute_with(|old| async move {
                let result = write.await;
                let op = match (&result, old) {
                    (Ok(_), _) => Op::Put(Entry { record: written, read_at: Some(Instant::now()) }),
                    (Err(StoreError::Unavailable(_)), Some(old)) => {
                        Op::Put(Entry { read_at: None, ..old.into_value() })
                    }
                    (Err(_), Some(_)) => Op::Remove,
                    (Err(_), None) => Op::Nop,
                };
                *outcome = Some(result);
                op
            })
            .await;
        done.unwrap_or_else(|| Err(StoreError::Internal("the write was not run".to_owned())))
    }

    /// Kept configurations in order of id and revision.
    ///
    /// # Errors
    /// As [`Store::models`].
    pub async fn list(&self, page: &Page) -> Result<Vec<ModelHead>, StoreError> {
        self.store.models(page).await
    }

    fn is_fresh(&self, entry: &Entry) -> bool {
        entry.read_at.is_some_and(|at| at.elapsed() < self.fresh_for)
    }
}
