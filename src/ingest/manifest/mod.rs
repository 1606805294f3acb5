//! Deployment manifests to the engine commands in them, with the line of every value.
