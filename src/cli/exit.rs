//! Exit codes, which pipelines decide by.

use std::process::ExitCode;

/// How a command ended. Later ones win when a run has several questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: a layout fits, and every assertion holds.
    Fits,
    /// 3: nothing fits, or an assertion failed.
    DoesNotFit,
    /// 2: the question cannot be read.
    BadInput,
    /// 4: something that was needed from elsewhere failed.
    UpstreamFailed,
    /// 1: a fault of this program.
    Internal,
}

impl Exit {
    /// The same, with its reason told on stderr.
    #[must_use]
    pub fn because(self, reason: &str) -> Self {
        eprintln!("error: {reason}");
        self
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fits => 0,
            Exit::Internal => 1,
            Exit::BadInput => 2,
            Exit::DoesNotFit => 3,
            Exit::UpstreamFailed => 4,
        })
    }
}
