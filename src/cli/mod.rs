//! The command: a thin face over `service`.
