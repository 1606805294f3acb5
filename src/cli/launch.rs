//! `shardwise launch`: a layout to the files that start it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::args::{EngineArgs, SearchArgs, TableOrJson, WhatIfArgs, WorkloadArgs};
use super::exit::Exit;
use super::number;
use super::request::{self, Unreadable};
use crate::ingest::json::Document;
use crate::service::ServiceError;
use crate::service::checks::Status;
use crate::service::launches::{LaunchesAnswer, PlatformLaunch, launches_offline};

/// `shardwise launch`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 written, 2 bad input, 3 the layout does not fit or a platform cannot express it."
)]
pub struct LaunchArgs {
    /// A model id or alias, or the path of a config.json.
    #[arg(long, value_name = "ID|PATH")]
    pub model: String,
    /// The GPUs as text, or @FILE.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub cluster: String,
    /// What to write for: command, kubernetes, leader-worker-set, production-stack, llm-d, llm-d-kustomize, kserve,
    /// kserve-inference-service, dynamo, dynamo-request, ray-serve, skypilot, aibrix, gpustack, jobset, sglang-router, compose. Several: comma-separated.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "command")]
    pub platform: Vec<String>,
    /// Which layout of the plan, best first.
    #[arg(long, value_name = "N")]
    pub rank: Option<String>,
    /// Prefill workers beside the layout, which then runs the decode workers: sizes and what carries the cache, e.g.
    /// tp=4,dp=2,connector=nixl. The decode workers' sizes are those of --tp, --pp, --dp, … (1 where not said).
    #[arg(long, value_name = "SIZE=N,…", value_delimiter = ',')]
    pub prefill: Vec<String>,
    /// Write the files into this folder (one folder a platform when there are several) instead of to stdout.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Name of the deployment.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Container image, where it is not the engine's own.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Resource of GPUs, e.g. nvidia.com/gpu.
    #[arg(long, value_name = "NAME")]
    pub gpu_resource: Option<String>,
    /// Resource of RDMA devices, e.g. rdma/ib.
    #[arg(long, value_name = "NAME")]
    pub rdma_resource: Option<String>,
    /// Kueue queue of a JobSet.
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
    /// table = the files, json = the API's answer.
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub what_if: WhatIfArgs,
}

/// Run the command.
pub fn run(args: &LaunchArgs) -> Exit {
    let question = match question(args) {
        Ok(question) => question,
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    };
    match launches_offline(&Document { value: question, duplicates: Vec::new() }) {
        Ok(answer) => shown(&answer, args),
        Err(ServiceError::Internal(why)) => Exit::Internal.because(&why),
        Err(ServiceError::Invalid(faults)) => {
            let exit = if faults.iter().all(|f| f.code == "does_not_fit") {
                Exit::DoesNotFit
            } else {
                Exit::BadInput
            };
            exit.because(&faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        Err(fault) => Exit::UpstreamFailed.because(&fault.to_string()),
    }
}

fn question(args: &LaunchArgs) -> Result<Value, Unreadable> {
    let asked = request::Question {
        model: Some(args.model.as_str()),
        cluster: Some(args.cluster.as_str()),
        engine: &args.engine,
        workload: &args.workload,
        search: &args.search,
        what_if: &args.what_if,
    };
    let mut question = Value::Object(request::body(&asked)?);
    question["platforms"] = json!(args.platform);
    if let Some(rank) = &args.rank {
        question["rank"] = number::json(rank);
    }
    if !args.prefill.is_empty() {
        split(args, &mut question)?;
    }
    for (key, value) in [
        ("name", &args.name),
        ("image", &args.image),
        ("gpu_resource", &args.gpu_resource),
        ("rdma_resource", &args.rdma_resource),
        ("queue", &args.queue),
    ] {
        if let Some(value) = value {
            question[key] = json!(value);
        }
    }
    Ok(question)
}

/// The sizes of both halves. Those of the decode workers are the layout, not sizes to try.
fn split(args: &LaunchArgs, question: &mut Value) -> Result<(), Unreadable> {
    let mut prefill = Map::new();
    for part in &args.prefill {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| Unreadable::NoValue { flag: "prefill", given: part.clone() })?;
        let value = if name == "connector" { json!(value) } else { number::json(value) };
        prefill.insert(name.trim().replace('-', "_"), value);
    }
    let mut layout = Map::new();
    for (name, sizes) in args.search.sizes() {
        let size = match sizes.as_slice() {
            [] => continue,
            [one] => number::json(one),
            // refused by name: a half has one size of each kind
            several => json!(several),
        };
        layout.insert(name.to_owned(), size);
    }
    if let Some(question) = question.as_object_mut() {
        question.remove("search");
        question.insert("prefill".to_owned(), Value::Object(prefill));
        question.insert("layout".to_owned(), Value::Object(layout));
    }
    Ok(())
}

fn shown(answer: &LaunchesAnswer, args: &LaunchArgs) -> Exit {
    if args.format == TableOrJson::Json {
        println!("{}", serde_json::to_string_pretty(answer).unwrap_or_default());
    }
    let mut exit = Exit::Fits;
    let alone = answer.launches.len() == 1;
    for launch in &answer.launches {
        if let Some(why) = &launch.refused {
            exit = Exit::DoesNotFit.because(&format!("{}: {} ({})", launch.platform, why.message, why.code));
            continue;
        }
        if let Some(check) = launch.check.as_ref().filter(|check| check.verdict == Status::Fail) {
            exit = Exit::DoesNotFit.because(&format!("{}: {}", launch.platform, check.message));
        }
        match (&args.output, args.format) {
            (Some(folder), _) => {
                let folder = if alone { folder.clone() } else { folder.join(&launch.platform) };
                if let Err(fault) = written(launch, &folder) {
                    return Exit::BadInput.because(&format!("--output {}: {fault}", folder.display()));
                }
            }
            (None, TableOrJson::Table) => printed(launch, alone && launch.files.len() == 1),
            (None, TableOrJson::Json) => {}
        }
        for note in &launch.notes {
            eprintln!("note: {}: {note}", launch.platform);
        }
    }
    exit
}

fn printed(launch: &PlatformLaunch, alone: bool) {
    for file in &launch.files {
        if !alone {
            println!("# ---- {}/{}", launch.platform, file.name);
        }
        print!("{}", file.text);
    }
}

fn written(launch: &PlatformLaunch, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for file in &launch.files {
        let path = folder.join(&file.name);
        fs::write(&path, &file.text)?;
        println!("{}", path.display());
    }
    Ok(())
}
