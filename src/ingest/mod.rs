//! Untrusted text to core types: config.json, cluster texts, plan requests.
