//! Where model configurations and plans are kept.
