//! KServe `InferenceService` with a container of our own as its predictor: no runtime of KServe's stands between the
//! settings and the engine. Its own worker pods belong to KServe's Hugging Face runtime, which builds the command itself.

use serde_json::{Map, Value, json};

use super::pod;
use super::site::{Site, serving};
use super::{Inexpressible, LaunchFile, Written};
use crate::launch::spread::Spread;
use crate::launch::yaml;

pub(super) fn inference_service(site: &Site<'_>) -> Result<Written, Inexpressible> {
    let gpus = site.on_one_node("inferenceservice_one_node")?;
    let run = pod::plain(&serving(site.start()));
    let replicas = site.wanted.layout.layout.dp;
    let mut predictor = Map::new();
    predictor.insert("minReplicas".to_owned(), json!(replicas));
    predictor.insert("maxReplicas".to_owned(), json!(replicas));
    // a new pod must not wait for GPUs that the old one holds
    predictor.insert("deploymentStrategy".to_owned(), json!({"type": "Recreate"}));
    if let Value::Object(pod) = pod::pod(site, "kserve-container", &run, Spread { pods: 1, gpus })? {
        predictor.extend(pod);
    }
    let mut metadata = pod::metadata(site, json!({"app": site.name}));
    metadata["annotations"]["serving.kserve.io/deploymentMode"] = json!("Standard");
    let object = json!({
        "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
        "metadata": metadata,
        "spec": {"predictor": predictor},
    });
    let objects: Vec<Value> = pod::options(site, site.start().options).into_iter().chain([object]).collect();
    Ok(Written {
        files: vec![LaunchFile::yaml("inferenceservice.yaml", yaml::file(&site.comment(), &objects))],
        notes: vec![
            "KServe before 0.16 calls this mode RawDeployment; Knative would take the pods away while nobody asks."
                .to_owned(),
        ],
    })
}
