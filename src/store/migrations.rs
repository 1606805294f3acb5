//! The migrations of both dialects, in step: equal numbers, equal names, equal columns.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// A migration in both dialects.
struct Step {
    number: i64,
    name: &'static str,
    postgres: &'static str,
    sqlite: &'static str,
}

macro_rules! step {
    ($number:literal, $name:literal, $file:literal) => {
        Step {
            number: $number,
            name: $name,
            postgres: include_str!(concat!("../../migrations/postgres/", $file)),
            sqlite: include_str!(concat!("../../migrations/sqlite/", $file)),
        }
    };
}

const STEPS: &[Step] = &[
    step!(1, "models and plans", "0001_models_and_plans.sql"),
    step!(2, "clusters", "0002_clusters.sql"),
    step!(3, "named values", "0003_named_values.sql"),
    step!(4, "observations", "0004_observations.sql"),
];

/// The number of the newest migration.
#[must_use]
pub fn head() -> i64 {
    STEPS.iter().map(|step| step.number).max().unwrap_or(0)
}

/// The migrations of Postgres.
#[must_use]
pub fn postgres() -> Migrator {
    migrator(|step| step.postgres)
}

/// The migrations of SQLite.
#[must_use]
pub fn sqlite() -> Migrator {
    migrator(|step| step.sqlite)
}

fn migrator(dialect: impl Fn(&Step) -> &'static str) -> Migrator {
    let migrations = STEPS
        .iter()
        .map(|step| {
            let sql = dialect(step).into_sql_str();
            Migration::new(step.number, Cow::Borrowed(step.name), MigrationType::Simple, sql, false)
        })
        .collect();
    let mut migrator = Migrator::with_migrations(migrations);
    // an older binary beside a newer schema keeps working: migrations only add
    migrator.set_ignore_missing(true);
    migrator
}
