//! What the face asks the service for.

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use crate::service::questions::QuestionAnswer;
use crate::service::{App, ServiceError};

/// An answer, later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// A question in the words of a workspace.
    Words { text: String, workspace: String },
    /// A request of a kind, from a button.
    Typed { kind: String, request: Value },
}

/// The service as this face sees it.
pub trait Answers: Send + Sync {
    /// Answer a question.
    fn answer(&self, asked: Asked) -> Later<'_, QuestionAnswer>;

    /// A workspace's usual GPUs.
    fn usual<'a>(&'a self, workspace: &'a str) -> Later<'a, Option<String>>;

    /// Set them; what was understood.
    fn put_usual<'a>(&'a self, workspace: &'a str, cluster: &'a str) -> Later<'a, String>;

    /// Forget them; false when there were none.
    fn forget_usual<'a>(&'a self, workspace: &'a str) -> Later<'a, bool>;
}

impl Answers for App {
    fn answer(&self, asked: Asked) -> Later<'_, QuestionAnswer> {
        Box::pin(async move {
            let (answer, _) = match asked {
                Asked::Words { text, workspace } => {
                    // without its database a workspace has no usual GPUs, and still its answers
                    let usual = self.usual_cluster(&workspace).await.unwrap_or_default();
                    self.ask_on(&text, usual.as_deref()).await?
                }
                Asked::Typed { kind, request } => self.ask_as(&kind, request).await?,
            };
            Ok(answer)
        })
    }

    fn usual<'a>(&'a self, workspace: &'a str) -> Later<'a, Option<String>> {
        Box::pin(self.usual_cluster(workspace))
    }

    fn put_usual<'a>(&'a self, workspace: &'a str, cluster: &'a str) -> Later<'a, String> {
        Box::pin(self.put_usual_cluster(workspace, cluster))
    }

    fn forget_usual<'a>(&'a self, workspace: &'a str) -> Later<'a, bool> {
        Box::pin(self.forget_usual_cluster(workspace))
    }
}
