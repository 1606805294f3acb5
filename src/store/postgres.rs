//! The store on Postgres.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Row};
use time::OffsetDateTime;

use super::fault::{fault, migrate_fault};
use super::sql::{cluster, contains, current_hash, head, json_of, named_value, store_over_pools};
use super::sql_observations::{LAST_TIME, observation, observation_statements};
use super::{
    Answer, ClusterRecord, Expect, ModelHead, ModelRecord, NamedValue, ObservationHead, ObservationPage,
    ObservationRecord, Page, PlanRecord, Put, StoreError, migrations,
};

/// A pool of connections to Postgres.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pool: PgPool,
}

impl PostgresStore {
    /// A store at a `postgres://` address. Nothing is connected yet: the server may start before its database.
    ///
    /// # Errors
    /// [`StoreError::Internal`] when the address is no Postgres address; its text never holds the address.
    pub fn at(url: &str, connections: u32, acquire: Duration) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| {
                StoreError::Internal("the database address is not a valid postgres:// address".to_owned())
            })?
            .application_name("shardwise")
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(acquire)
            .max_lifetime(Duration::from_mins(30))
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    const fn reader(&self) -> &PgPool {
        &self.pool
    }

    const fn writer(&self) -> &PgPool {
        &self.pool
    }

    #[expect(clippy::unused_self, reason = "the statements are shared with the other dialect")]
    fn migrator(&self) -> Migrator {
        migrations::postgres()
    }
}

store_over_pools!(PostgresStore, "postgres");
