//! The Slack face.
