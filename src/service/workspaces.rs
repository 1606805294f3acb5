//! What a chat workspace remembers: the GPUs that are meant where a question names none.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::question::parse_cluster;
use super::{App, ServiceError};
use crate::ingest::{FieldError, Pointer};
use crate::store::{NamedValue, Store};

const KIND: &str = "workspace";
/// Characters of a cluster's text, as a question may have.
const MOST_CHARS: usize = 500;

impl App {
    /// The usual GPUs of a workspace, as they were given.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::Internal`].
    pub async fn usual_cluster(&self, workspace: &str) -> Result<Option<String>, ServiceError> {
        let kept = self.guard.named_value(KIND, workspace).await?;
        Ok(kept.and_then(|kept| kept.value.get("cluster").and_then(Value::as_str).map(str::to_owned)))
    }

    /// Remember a workspace's usual GPUs: a text as people write it, or `saved:NAME`. What was understood is given back.
    ///
    /// # Errors
    /// [`ServiceError::Invalid`] when it cannot be read or nothing is saved under the name; [`ServiceError::Unavailable`].
    pub async fn put_usual_cluster(&self, workspace: &str, cluster: &str) -> Result<String, ServiceError> {
        let place = Pointer::root().key("cluster");
        if cluster.chars().count() > MOST_CHARS {
            let detail = format!("expected at most {MOST_CHARS} characters");
            return Err(ServiceError::Invalid(vec![FieldError::at(&place, "out_of_range", detail)]));
        }
        let given = Value::from(cluster);
        let understood = parse_cluster(self.with_saved(&given).await?.as_ref(), None, None, &place)?;
        let value = NamedValue {
            kind: KIND.to_owned(),
            name: workspace.to_owned(),
            value: json!({ "cluster": cluster }),
            updated_at: OffsetDateTime::now_utc(),
        };
        self.guard.put_named_value(&value).await?;
        Ok(understood.cluster.text)
    }

    /// Forget a workspace's usual GPUs; false when there were none.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::Internal`].
    pub async fn forget_usual_cluster(&self, workspace: &str) -> Result<bool, ServiceError> {
        Ok(self.guard.delete_named_value(KIND, workspace).await?)
    }
}
