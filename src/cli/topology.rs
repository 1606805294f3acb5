//! `shardwise topology`: what a cluster is understood as.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::Value;

use super::args::{TableOrJson, TopologyArgs};
use super::exit::Exit;
use super::request::is_contract;
use crate::ingest::Pointer;
use crate::service::{ServiceError, Understood, parse_cluster};

/// Larger files are refused unread: the reader's own limit is half of it.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Run the command; what went wrong is on stderr.
pub fn run(args: &TopologyArgs) -> Exit {
    let text = match text_of(&args.cluster) {
        Ok(text) => text,
        Err(fault) => return Exit::BadInput.because(&format!("{}: {fault}", args.cluster)),
    };
    // an object of the contract is taken as such, any other JSON is a machine's own
    let value = serde_json::from_str(&text).ok().filter(is_contract).unwrap_or(Value::String(text));
    match parse_cluster(&value, args.gpu.as_deref(), args.nodes, &Pointer::root()) {
        Ok(understood) => show(&understood, args.format),
        Err(ServiceError::Invalid(faults)) => {
            for fault in faults {
                eprintln!("error: {}: {}", args.cluster, fault.detail);
                if !fault.allowed.is_empty() {
                    eprintln!("  one of: {}", fault.allowed.join(", "));
                }
            }
            Exit::BadInput
        }
        Err(fault) => Exit::Internal.because(&fault.to_string()),
    }
}

/// Stdin, the file of this name, or the words themselves.
fn text_of(given: &str) -> io::Result<String> {
    let path = Path::new(given.strip_prefix('@').unwrap_or(given));
    let source: Box<dyn Read> = match given {
        "-" => Box::new(io::stdin()),
        _ if given.starts_with('@') || path.is_file() => Box::new(File::open(path)?),
        _ => return Ok(given.to_owned()),
    };
    let mut text = String::new();
    if source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 16 MiB"));
    }
    Ok(text)
}

fn show(understood: &Understood, format: TableOrJson) -> Exit {
    let text = match format {
        TableOrJson::Json => match serde_json::to_string_pretty(understood) {
            Ok(json) => json + "\n",
            Err(fault) => return Exit::Internal.because(&fault.to_string()),
        },
        TableOrJson::Table => table(understood),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(fault) if fault.kind() != io::ErrorKind::BrokenPipe => Exit::Internal.because(&fault.to_string()),
        _ => Exit::Fits,
    }
}

fn table(understood: &Understood) -> String {
    let mut text = String::new();
    let cluster = &understood.cluster;
    let _ = writeln!(text, "Cluster      {} ({} GPUs)", cluster.text, cluster.gpus);
    let _ = writeln!(text, "Read as      {}", understood.format);
    for pool in &cluster.node_pools {
        let _ = writeln!(text, "\nPool         {} x {} {}", pool.nodes, pool.gpus_per_node, pool.gpu_name);
        let islands = if pool.island_gpus >= pool.gpus_per_node {
            "all GPUs".to_owned()
        } else {
            format!("groups of {}", pool.island_gpus)
        };
        let _ = writeln!(text, "  inside     {} joins {islands}", pool.intra_link);
        if let Some(host) = &pool.host_link {
            let _ = writeln!(text, "  between    {host} joins the groups of a node");
        }
        let _ = writeln!(text, "  nodes      {} joins nodes", pool.inter_link);
    }
    for (title, lines) in [
        (
            "Assumed",
            understood
                .assumptions
                .iter()
                .map(|a| format!("{} = {}: {}", a.name, a.value, a.source))
                .collect::<Vec<_>>(),
        ),
        ("Warnings", understood.warnings.iter().map(|w| format!("{}: {}", w.code, w.message)).collect()),
    ] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    text
}
