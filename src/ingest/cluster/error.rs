//! Why a cluster could not be read, in a form that a person can answer.

use thiserror::Error;

use crate::ingest::{FieldError, Pointer};

/// What went wrong, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterErrorKind {
    /// It can mean several clusters; the candidates say which.
    Ambiguous,
    /// A GPU or node type that the catalogue does not know, or knows by name only.
    UnknownGpu,
    /// It describes no GPU at all.
    NoGpus,
    /// More GPUs than are planned for.
    TooManyGpus,
    /// Part of it is not a description of a cluster.
    Unreadable,
}

impl ClusterErrorKind {
    /// The stable code of the contract.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ambiguous => "ambiguous_cluster",
            Self::UnknownGpu => "unknown_gpu",
            Self::NoGpus => "no_gpus",
            Self::TooManyGpus => "too_many_gpus",
            Self::Unreadable => "unreadable_cluster",
        }
    }
}

/// A cluster that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ClusterError {
    pub kind: ClusterErrorKind,
    /// One or two sentences for people: what was understood, and what is asked.
    pub message: String,
    /// Texts that would be read without a question, or names that were meant; likeliest first.
    pub candidates: Vec<String>,
    /// Line and column (from 1) in a pasted output, where the fault has a place.
    pub at: Option<(usize, usize)>,
}

impl ClusterError {
    fn new(kind: ClusterErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), candidates: Vec::new(), at: None }
    }

    /// Several meanings.
    pub(super) fn ambiguous<T: Into<String>>(
        message: impl Into<String>,
        candidates: impl IntoIterator<Item = T>,
    ) -> Self {
        let candidates = candidates.into_iter().map(Into::into).collect();
        Self { candidates, ..Self::new(ClusterErrorKind::Ambiguous, message) }
    }

    /// A name that is not in the catalogue, with the names that are close to it.
    pub(super) fn unknown_gpu(name: &str, close: Vec<String>) -> Self {
        let hint = match close.split_first() {
            Some((first, [])) => format!("; did you mean {first}?"),
            Some((first, rest)) => format!("; did you mean {first} (or {})?", rest.join(", ")),
            None => "; GET /v1/gpus lists what is known".to_owned(),
        };
        let message = format!("\"{}\" is not a GPU or node type of the catalogue{hint}", cut(name));
        Self { candidates: close, ..Self::new(ClusterErrorKind::UnknownGpu, message) }
    }

    /// A product that is known by name only.
    pub(super) fn no_figures(name: &str, missing: &str) -> Self {
        let message = format!("{name} cannot be planned on: {missing}");
        Self::new(ClusterErrorKind::UnknownGpu, message)
    }

    /// A cluster without GPUs.
    pub(super) fn no_gpus(message: impl Into<String>) -> Self {
        Self::new(ClusterErrorKind::NoGpus, message)
    }

    /// More than the limit.
    pub(super) fn too_many(got: &str) -> Self {
        let message = format!("{got} GPUs are more than the {} that are planned for", super::MAX_GPUS);
        Self::new(ClusterErrorKind::TooManyGpus, message)
    }

    /// Not a cluster.
    pub(super) fn unreadable(message: impl Into<String>) -> Self {
        Self::new(ClusterErrorKind::Unreadable, message)
    }

    /// The same fault with its place in a pasted output.
    pub(super) fn at(mut self, line: usize, column: usize) -> Self {
        self.message = format!("line {line}, column {column}: {}", self.message);
        self.at = Some((line, column));
        self
    }

    /// As a fault of a field of a request.
    #[must_use]
    pub fn into_field_error(self, place: &Pointer) -> FieldError {
        FieldError::at(place, self.kind.code(), self.message).allowed(self.candidates)
    }
}

/// A name short enough to stand in a message.
pub(super) fn cut(name: &str) -> String {
    if name.chars().count() <= 60 {
        return name.to_owned();
    }
    name.chars().take(57).chain("...".chars()).collect()
}
