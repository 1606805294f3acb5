//! The HTTP face: routes, problems, extractors; it never computes.
