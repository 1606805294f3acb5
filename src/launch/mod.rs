//! A layout to an engine's command line.
