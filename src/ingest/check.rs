//! The JSON of `POST /v1/checks`: a command or a manifest, the cluster it is meant for, and what is not allowed.

use std::path::Path;

use serde_json::{Map, Value};

use super::command::{self, EngineCommand, FileText, Finding};
use super::fields::{Fields, short_text};
use super::json::Document;
use super::manifest::{self, Deployment, Manifest};
use super::yaml::{self, Node};
use super::{FieldError, Pointer, bounds};

/// Codes in a policy, at most.
const MOST_CODES: usize = 64;

/// The question.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckAsk {
    pub deployments: Vec<Described>,
    /// Findings that belong to no single deployment.
    pub findings: Vec<Finding>,
    /// What a plan question shares with this one: `cluster`, `model`, `workload`, `assumptions`, `slo`.
    pub base: Map<String, Value>,
    pub engine_version: Option<String>,
    pub policy: Policy,
}

/// A deployment and the kind of file it stands in.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// `command`, or the platform of a manifest.
    pub platform: &'static str,
    pub deployment: Deployment,
}

/// Codes that decide otherwise than their own severity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// These fail.
    pub deny: Vec<String>,
    /// These are let pass, unless nothing would start.
    pub allow: Vec<String>,
}

impl Policy {
    /// A policy file: YAML or JSON, `deny: kv_replicated` or a list.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let documents = yaml::read(text).map_err(|e| e.to_string())?;
        let mut policy = Self::default();
        for (key, node) in documents.first().map(Node::pairs).unwrap_or_default() {
            let codes = match node.text() {
                Some(one) => one.split(',').map(|c| c.trim().to_owned()).collect(),
                None => node.items().iter().filter_map(|i| i.text().map(str::to_owned)).collect(),
            };
            match key.as_str() {
                "deny" => policy.deny = codes,
                "allow" => policy.allow = codes,
                other => {
                    return Err(format!(
                        "line {}: a policy has `deny` and `allow`, not `{other}`",
                        node.line
                    ));
                }
            }
        }
        Ok(policy)
    }
}

impl CheckAsk {
    /// Read a question.
    ///
    /// # Errors
    /// All its faults; a text without any engine command is one.
    pub fn read(document: &Document) -> Result<Self, Vec<FieldError>> {
        let mut faults = document.duplicates.clone();
        let mut ask = None;
        if let Some(mut fields) = Fields::of(&document.value, Pointer::root(), &mut faults) {
            ask = read_ask(&mut fields);
            fields.finish();
        }
        match ask {
            Some(ask) if faults.is_empty() => Ok(ask),
            _ => Err(faults),
        }
    }
}

fn read_ask(fields: &mut Fields<'_, '_>) -> Option<CheckAsk> {
    let mut base = Map::new();
    for key in ["model", "cluster", "workload", "assumptions", "slo", "latency_model"] {
        if let Some(value) = fields.raw(key) {
            base.insert(key.to_owned(), value.clone());
        }
    }
    let engine_version = fields.text("engine_version", bounds::NAME_CHARS).map(str::to_owned);
    let policy = read_policy(fields);
    let given: Vec<(&'static str, &str)> = ["command", "manifest", "text"]
        .into_iter()
        .filter_map(|name| Some((name, fields.raw(name)?.as_str()?)))
        .collect();
    let [(name, text)] = given.as_slice() else {
        fields.refuse("command", "missing", "give one of `command`, `manifest` or `text`, as a string");
        return None;
    };
    let described = match *name {
        "command" => Ok(of_command(text)),
        "manifest" => of_manifest(text),
        // a text that is both is taken for a manifest when one is found in it
        _ => match of_manifest(text) {
            Ok((found, findings)) if !found.is_empty() || !findings.is_empty() => Ok((found, findings)),
            _ => Ok(of_command(text)),
        },
    };
    match described {
        Ok((deployments, findings)) if !deployments.is_empty() || !findings.is_empty() => {
            Some(CheckAsk { deployments, findings, base, engine_version, policy })
        }
        Ok(_) => {
            fields.refuse(
                name,
                "no_engine",
                "no engine is started in it: `vllm serve`, `sglang.launch_server` and `trtllm-serve` are known, and \
                 manifests that hold them",
            );
            None
        }
        Err(fault) => {
            fields.refuse(name, "invalid_yaml", fault);
            None
        }
    }
}

type Read = (Vec<Described>, Vec<Finding>);

fn of_command(text: &str) -> Read {
    let mut commands = command::read(text);
    if commands.iter().all(|c| c.role.as_deref() == Some("headless")) {
        // the leader stands elsewhere: its workers say the same
        for command in &mut commands {
            command.role = None;
        }
    }
    let described = commands
        .into_iter()
        .enumerate()
        .map(|(i, command)| Described { platform: "command", deployment: alone(command, i) });
    (described.collect(), Vec::new())
}

/// A command as a deployment of its own. Commands of workers (`--headless`) are part of their leader's.
fn alone(command: EngineCommand, index: usize) -> Deployment {
    let named = |role: &&str| matches!(*role, "prefill" | "decode" | "headless");
    let role = command.role.as_deref().filter(named).unwrap_or("both");
    Deployment {
        name: format!("command {}", index + 1),
        role: role.to_owned(),
        replicas: 1,
        pods: 1,
        gpus_per_pod: None,
        gpu: None,
        command,
    }
}

/// The deployments of some files that were written together: the first holds them, others may hold settings.
///
/// # Errors
/// One sentence.
pub fn written(files: &[(&str, &str)]) -> Result<(Vec<Described>, Vec<Finding>), String> {
    let Some(((name, text), others)) = files.split_first() else { return Ok((Vec::new(), Vec::new())) };
    if Path::new(name).extension().is_some_and(|e| e == "sh") {
        return Ok(of_command(text));
    }
    let beside: Vec<FileText<'_>> =
        others.iter().map(|(name, text)| FileText { name, text, line: 1 }).collect();
    Ok(described(manifest::read_with(text, &beside).map_err(|e| e.to_string())?))
}

fn of_manifest(text: &str) -> Result<Read, String> {
    Ok(described(manifest::read(text).map_err(|e| e.to_string())?))
}

fn described(manifests: Vec<Manifest>) -> Read {
    let mut described = Vec::new();
    let mut findings = Vec::new();
    for manifest in manifests {
        findings.extend(manifest.findings);
        let platform = manifest.platform;
        described
            .extend(manifest.deployments.into_iter().map(|deployment| Described { platform, deployment }));
    }
    (described, findings)
}

fn read_policy(fields: &mut Fields<'_, '_>) -> Policy {
    let Some(mut policy) = fields.object("policy") else { return Policy::default() };
    let mut codes = |name: &'static str| -> Vec<String> {
        match policy.raw(name) {
            None => Vec::new(),
            Some(Value::String(one)) => one.split(',').map(|c| c.trim().to_owned()).collect(),
            Some(Value::Array(items)) if items.len() <= MOST_CODES => {
                let place = policy.place_of(name);
                let mut read = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    match short_text(item, &place.index(i), bounds::NAME_CHARS) {
                        Ok(code) => read.push(code.to_owned()),
                        Err(fault) => policy.push(fault),
                    }
                }
                read
            }
            Some(_) => {
                policy.refuse(
                    name,
                    "wrong_type",
                    format!("expected a code or a list of at most {MOST_CODES} codes"),
                );
                Vec::new()
            }
        }
    };
    let (deny, allow) = (codes("deny"), codes("allow"));
    policy.finish();
    Policy { deny, allow }
}
