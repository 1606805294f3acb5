//! The page served at `/`.
