//! Deployment manifests to the engine commands in them, with the line of every value.
//!
//! Each platform's fields are turned into the words of the engine's own command line, so a setting means the same
//! wherever it stands. What a platform would drop or refuse is a finding of its own.
//!
//! Sources: vLLM production-stack chart 0.1.12, llm-d modelservice chart 0.4.12, KServe 0.20 (`LLMInferenceService`,
//! `InferenceService`), Ray Serve LLM 2.60, NVIDIA Dynamo 1.6 (`DynamoGraphDeployment` and its request), LeaderWorkerSet v1, SkyPilot 0.14, AIBrix
//! (`StormService`), JobSet v1alpha2, GPUStack (body of a model).

mod charts;
mod dynamo;
mod kserve;
mod pods;
mod predictor;
mod ray;

use super::command::{At, EngineCommand, FileText, Finding, Severity, Word, read_words};
use super::yaml::{self, Node, YamlError};

/// What a file deploys.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// `production-stack`, `llm-d`, `kserve`, `kserve-inference-service`, `ray-serve`, `dynamo`, `leader-worker-set`, `kubernetes`, `skypilot`, …
    pub platform: &'static str,
    pub deployments: Vec<Deployment>,
    pub findings: Vec<Finding>,
}

/// Equal engine instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    pub name: String,
    /// `both`, `prefill`, `decode`.
    pub role: String,
    pub command: EngineCommand,
    /// Independent copies.
    pub replicas: u64,
    /// Pods of one copy.
    pub pods: u64,
    /// GPUs of a pod, where the file says so.
    pub gpus_per_pod: Option<At<u64>>,
    /// The GPU product, where the file names one.
    pub gpu: Option<String>,
}

impl Deployment {
    /// GPUs of one copy, where the file says so.
    #[must_use]
    pub fn gpus(&self) -> Option<u64> {
        self.gpus_per_pod.as_ref().map(|g| g.value.saturating_mul(self.pods))
    }
}

/// Read every document of a file. Documents without an engine (services, routes) are passed over.
///
/// # Errors
/// The first place that is no YAML.
pub fn read(text: &str) -> Result<Vec<Manifest>, YamlError> {
    read_with(text, &[])
}

/// The same with files that lie beside it: what an engine in it names as its settings is read from them, and from the
/// `ConfigMap`s of the file itself.
///
/// # Errors
/// The first place that is no YAML.
pub fn read_with(text: &str, beside: &[FileText<'_>]) -> Result<Vec<Manifest>, YamlError> {
    let documents = yaml::read(text)?;
    let mut files: Vec<FileText<'_>> = documents.iter().flat_map(config_map).collect();
    files.extend_from_slice(beside);
    let mut found: Vec<Manifest> = documents.iter().filter_map(read_document).collect();
    for deployment in found.iter_mut().flat_map(|manifest| &mut manifest.deployments) {
        let path = deployment.command.settings_file.as_ref().map(|path| path.value.clone());
        if let Some(file) = path.and_then(|path| files.iter().find(|f| f.is_at(&path))) {
            deployment.command = deployment.command.clone().with_file(file);
        }
    }
    for manifest in &mut found {
        for deployment in &manifest.deployments {
            gpus_add_up(deployment, &mut manifest.findings);
        }
    }
    found.retain(|manifest| !manifest.deployments.is_empty() || !manifest.findings.is_empty());
    Ok(found)
}

/// The files in a `ConfigMap`.
fn config_map(node: &Node) -> Vec<FileText<'_>> {
    if node.get("kind").and_then(Node::text) != Some("ConfigMap") {
        return Vec::new();
    }
    node.get("data")
        .map(Node::pairs)
        .unwrap_or_default()
        .iter()
        .filter_map(|(name, file)| Some(FileText { name, text: file.text()?, line: file.line }))
        .collect()
}

fn read_document(node: &Node) -> Option<Manifest> {
    let kind = node.get("kind").and_then(Node::text).unwrap_or_default();
    let mut out = Manifest { platform: "kubernetes", deployments: Vec::new(), findings: Vec::new() };
    match kind {
        "LLMInferenceService" => kserve::read(node, &mut out),
        "InferenceService" => predictor::read(node, &mut out),
        "LeaderWorkerSet" => pods::leader_worker_set(node, &mut out),
        "DynamoGraphDeployment" => dynamo::read(node, &mut out),
        "DynamoGraphDeploymentRequest" => dynamo::request(node, &mut out),
        "RayService" => ray::service(node, &mut out),
        "StormService" => pods::storm_service(node, &mut out),
        "JobSet" => pods::job_set(node, &mut out),
        _ if node.at(&["servingEngineSpec", "modelSpec"]).is_some() => {
            charts::production_stack(node, &mut out);
        }
        _ if node.get("modelArtifacts").is_some() => charts::llm_d(node, &mut out),
        _ if node.get("backend_parameters").is_some() => charts::gpustack(node, &mut out),
        _ if node.get("applications").is_some() => ray::config(node, &mut out),
        _ if node.get("run").is_some() && node.get("resources").is_some() => charts::skypilot(node, &mut out),
        _ if kind.is_empty() && node.get("services").is_some() => charts::compose(node, &mut out),
        _ if kind.is_empty() => charts::settings_file(node, &mut out),
        _ => pods::any(node, &mut out),
    }
    (!out.deployments.is_empty() || !out.findings.is_empty()).then_some(out)
}

/// A pod must be given as many GPUs as its share of the ranks.
fn gpus_add_up(deployment: &Deployment, findings: &mut Vec<Finding>) {
    let (Some(given), Some(at)) = (deployment.gpus(), &deployment.gpus_per_pod) else { return };
    if deployment.role == "headless" {
        return;
    }
    let needed = deployment.command.ranks();
    if given != needed {
        findings.push(Finding::at(
            at.line,
            if given < needed { Severity::Fail } else { Severity::Warn },
            "gpu_count_mismatch",
            format!(
                "{}: {} pods of {} GPUs hold {given}, the engine is started for {needed} ranks",
                deployment.name, deployment.pods, at.value
            ),
        ));
    }
}

impl EngineCommand {
    /// GPUs of one instance, as the command says: TP × PP × the data-parallel ranks that it starts.
    #[must_use]
    pub fn ranks(&self) -> u64 {
        let size = |at: &Option<At<u64>>| at.as_ref().map_or(1, |a| a.value);
        size(&self.tp).saturating_mul(size(&self.pp)).saturating_mul(size(&self.data_parallel))
    }
}

/// Words of an engine's command line, gathered from fields.
struct Args(Vec<Word>);

impl Args {
    fn new() -> Self {
        Self(Vec::new())
    }

    /// `--name value`, where the field is there.
    fn value(&mut self, name: &str, node: Option<&Node>) {
        if let Some((text, line)) = node.and_then(|n| Some((n.text()?, n.line))) {
            self.0.push(Word::new(format!("--{name}"), line));
            self.0.push(Word::new(text, line));
        }
    }

    /// `--name` where the field is true.
    fn switch(&mut self, name: &str, node: Option<&Node>) {
        if let Some(node) = node.filter(|n| n.flag() == Some(true)) {
            self.0.push(Word::new(format!("--{name}"), node.line));
        }
    }

    /// Words of a list of arguments. A flag and its value in one item reach the engine as one word, which it refuses.
    fn list(&mut self, node: Option<&Node>, findings: &mut Vec<Finding>) {
        let Some(node) = node else { return };
        if let Some(text) = node.text() {
            self.shell(text, node.line);
            return;
        }
        for item in node.items() {
            let Some(text) = item.text() else { continue };
            match text.split_once(char::is_whitespace) {
                Some((flag, value)) if flag.starts_with("--") && !flag.contains('=') => {
                    findings.push(Finding::at(
                        item.line,
                        Severity::Fail,
                        "flag_and_value_in_one_word",
                        format!("\"{flag} …\" is one argument: write the flag and its value as two items, or with ="),
                    ));
                    self.0.push(Word::new(flag, item.line));
                    self.0.push(Word::new(value.trim(), item.line));
                }
                _ => self.0.push(word_of(text, item.line)),
            }
        }
    }

    /// The words of a piece of shell that begins on `line`.
    fn shell(&mut self, text: &str, line: u32) {
        for command in super::command::commands(text) {
            self.0.extend(command.words.into_iter().map(|w| Word { line: later(w.line, line), ..w }));
        }
    }

    fn command(&self, engine: &'static str, line: u32) -> EngineCommand {
        read_words(engine, &self.0, line)
    }
}

fn word_of(text: &str, line: u32) -> Word {
    // two dollars are one that means nothing
    let left = text.replace("$$", "");
    Word { text: text.replace("$$", "$"), line, expands: left.contains("$(") || left.contains("${") }
}

/// The line in the file of a line in a text that begins on `first`.
fn later(line: u32, first: u32) -> u32 {
    first.saturating_add(line.saturating_sub(1))
}

/// A model by its place: `hf://org/name` and `pvc://…/org/name` name it.
fn model_of_uri(uri: &str) -> String {
    uri.split_once("://").map_or(uri, |(_, rest)| rest).to_owned()
}

#[cfg(test)]
mod tests;
