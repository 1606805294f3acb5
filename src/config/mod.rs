//! Settings of the server: defaults file, file, environment, flags.
