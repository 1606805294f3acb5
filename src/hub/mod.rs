//! Fetching a config.json from a model hub.
