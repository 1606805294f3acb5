//! The store in one SQLite file: write-ahead log, one writer, several readers.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Row};
use time::OffsetDateTime;

use super::fault::{fault, migrate_fault};
use super::sql::{cluster, contains, current_hash, head, json_of, named_value, store_over_pools};
use super::sql_observations::{LAST_TIME, observation, observation_statements};
use super::{
    Answer, ClusterRecord, Expect, ModelHead, ModelRecord, NamedValue, ObservationHead, ObservationPage,
    ObservationRecord, Page, PlanRecord, Put, StoreError, migrations,
};

/// Two pools on one file: SQLite lets one connection write at a time.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    write: SqlitePool,
    read: SqlitePool,
}

impl SqliteStore {
    /// A store in a file, made when it is not there. Nothing is opened yet.
    #[must_use]
    pub fn at(path: &Path, readers: u32, acquire: Duration) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // FULL: what was acknowledged survives a power cut too, not only a killed process
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(acquire)
            .foreign_keys(true)
            .disable_statement_logging();
        let pool = |connections, options| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(acquire)
                .connect_lazy_with(options)
        };
        Self { write: pool(1, options.clone()), read: pool(readers, options) }
    }

    const fn reader(&self) -> &SqlitePool {
        &self.read
    }

    const fn writer(&self) -> &SqlitePool {
        &self.write
    }

    #[expect(clippy::unused_self, reason = "the statements are shared with the other dialect")]
    fn migrator(&self) -> Migrator {
        migrations::sqlite()
    }
}

store_over_pools!(SqliteStore, "sqlite");
