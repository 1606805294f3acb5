//! Faults of the driver and the databases as faults of a store.

use sqlx::migrate::MigrateError;

use super::StoreError;

/// A migration that failed.
pub(super) fn migrate_fault(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => fault(error),
        other => StoreError::Internal(format!("migration: {other}")),
    }
}

/// A fault of the driver or the database: one that may pass by itself, or one of ours.
pub(super) fn fault(error: sqlx::Error) -> StoreError {
    use sqlx::Error as E;
    match &error {
        E::Database(db) if db.code().is_some_and(|code| passes(&code)) => {
            StoreError::Unavailable(db.message().to_owned())
        }
        E::Io(_)
        | E::Tls(_)
        | E::Protocol(_)
        | E::PoolTimedOut
        | E::PoolClosed
        | E::WorkerCrashed
        | E::BeginFailed => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Internal(error.to_string()),
    }
}

/// Whether a code names a state of the database rather than a fault of the statement or its data.
/// Postgres: SQLSTATE of five characters. SQLite: the extended result code, a number.
fn passes(code: &str) -> bool {
    if let (5, Some(class)) = (code.len(), code.get(..2)) {
        // connection, read-only, authorisation, no such database, rollback, resources, locks, operator, system;
        // 42P01: the table is not there yet
        return matches!(class, "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58")
            || code == "42P01";
    }
    // error (no such table yet), busy, locked, out of memory, read-only, I/O, corrupt, full, cannot open, not a database
    code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 1 | 5 | 6 | 7 | 8 | 10 | 11 | 13 | 14 | 26))
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn states_pass_and_faults_do_not() {
        for code in ["57P01", "08006", "53300", "25006", "42P01", "5", "517", "8", "14"] {
            assert!(passes(code), "{code}");
        }
        for code in ["23505", "22P02", "42601", "19", "2067", "25"] {
            assert!(!passes(code), "{code}");
        }
    }
}
