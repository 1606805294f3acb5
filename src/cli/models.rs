//! `shardwise models`: the catalogue as a list, one model in full, a configuration read or stored.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::exit::Exit;
use super::output;
use super::request::text_at;
use super::serve::{self, SettingsArgs};
use crate::catalogue::models::{CatalogueModel, all, find};
use crate::ingest::json as document;
use crate::planner::sizes::ModelSizes;
use crate::planner::units::grouped;
use crate::service::{self, ModelFacts, Put, ServiceError};

/// `shardwise models`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
    /// As `list TEXT`.
    text: Option<String>,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// The models of the catalogue, all or those whose id, plain name or family holds TEXT.
    List {
        text: Option<String>,
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// One model of the catalogue: what it is, its weights by purpose, its cache, the TP sizes that vLLM takes.
    Show {
        /// An id or a plain name.
        id: String,
        #[arg(long, value_enum, default_value_t)]
        format: ShowFormat,
    },
    /// Read a config.json without storing it; what cannot be read is named by its place.
    Inspect {
        /// The file; `-` reads stdin.
        #[arg(value_name = "FILE|-")]
        config: PathBuf,
        #[arg(long, value_enum, default_value_t)]
        format: ShowFormat,
    },
    /// Store a config.json under an id in the service's database.
    Add {
        #[arg(value_name = "ORG/NAME")]
        id: String,
        /// The file; `-` reads stdin.
        #[arg(value_name = "FILE|-")]
        config: PathBuf,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ListFormat {
    #[default]
    Table,
    Markdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ShowFormat {
    #[default]
    Table,
    Json,
}

/// Run the command.
pub fn run(args: &ModelsArgs) -> Exit {
    match &args.command {
        None => list(args.text.as_deref(), ListFormat::Table),
        Some(ModelsCommand::List { text, format }) => list(text.as_deref(), *format),
        Some(ModelsCommand::Show { id, format }) => show(id, *format),
        Some(ModelsCommand::Inspect { config, format }) => inspect(config, *format),
        Some(ModelsCommand::Add { id, config, settings }) => add(id, config, settings),
    }
}

fn list(text: Option<&str>, format: ListFormat) -> Exit {
    let needle = text.unwrap_or_default().to_lowercase();
    let named = |name: &str| name.to_lowercase().contains(&needle);
    let listed: Vec<&CatalogueModel> = all()
        .iter()
        .filter(|m| named(m.id) || named(m.family) || m.aliases.iter().any(|a| named(a)))
        .collect();
    match format {
        ListFormat::Markdown => output::print(&index_page(&listed)),
        ListFormat::Table => {
            let mut text = format!("{:<52} {:>17} {:>11}  weights\n", "id", "parameters", "context");
            for model in listed {
                let _ = writeln!(
                    text,
                    "{:<52} {:>17} {:>11}  {}",
                    model.id,
                    grouped(model.parameters),
                    grouped(model.context_length),
                    model.quantization
                );
            }
            output::print(&text)
        }
    }
}

/// The catalogue as a page: a table for each family.
fn index_page(listed: &[&CatalogueModel]) -> String {
    let mut families: BTreeMap<String, Vec<&CatalogueModel>> = BTreeMap::new();
    for model in listed {
        families.entry(model.family.to_lowercase()).or_default().push(model);
    }
    // without a count of parameters: the reader does not know the architecture yet
    let unread: Vec<&str> =
        listed.iter().filter(|model| model.parameters == 0).map(|model| model.id).collect();
    let but = if unread.is_empty() {
        String::new()
    } else {
        format!(
            " {} more are listed only, as their architecture is not read yet: {}.",
            unread.len(),
            unread.join(", ")
        )
    };
    let mut page = format!(
        "# Models\n\n{} models whose configuration is part of the program, by family. Each can be planned for by its id or by a plain name; any \
         other by its config.json or, where a hub is reached, by its hub id.{but}\n\nParameters are what the reader counts in the \
         configuration. Models of exactly one shape have the same weights, cache and speed. Made by `shardwise models list --format markdown`.\n",
        listed.len() - unread.len()
    );
    for models in families.values() {
        let Some(first) = models.first() else { continue };
        let _ = writeln!(page, "\n## {}\n", first.family);
        let _ = writeln!(
            page,
            "| id | plain names | parameters | active | context | weights | released | licence | relatives |"
        );
        let _ = writeln!(page, "|---|---|---:|---:|---:|---|---|---|---|");
        for model in models {
            let active = if model.active_parameters == model.parameters {
                String::new()
            } else {
                grouped(model.active_parameters)
            };
            let _ = writeln!(
                page,
                "| {} | {} | {} | {active} | {} | {} | {} | {} | {} |",
                model.id,
                model.aliases.join(", "),
                grouped(model.parameters),
                grouped(model.context_length),
                model.quantization,
                model.released.unwrap_or_default(),
                model.licence.unwrap_or_default(),
                relatives(model)
            );
        }
    }
    page
}

/// What a model is a form of, and which others have exactly its shape.
fn relatives(model: &CatalogueModel) -> String {
    let base = model.base.map(|base| format!("quantised {base}"));
    let others: Vec<&str> = model.of_same_shape().iter().map(|other| other.id).collect();
    let alike = (!others.is_empty()).then(|| format!("exactly the shape of {}", others.join(", ")));
    [base, alike].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn show(id: &str, format: ShowFormat) -> Exit {
    let model = match find(id) {
        Ok(model) => model,
        Err(fault) => return Exit::BadInput.because(&fault.to_string()),
    };
    match service::listed_model(model.id) {
        Ok(view) if format == ShowFormat::Json => json(&view),
        Ok(view) => {
            let mut text = format!("{} ({}, {})\n", view.id, model.family, view.source);
            text.push_str(&alike(&view.same_shape));
            text.push_str(&facts(&view.facts, &view.sizes));
            output::print(&text)
        }
        Err(fault) => Exit::Internal.because(&fault.to_string()),
    }
}

fn alike(others: &[String]) -> String {
    if others.is_empty() {
        String::new()
    } else {
        format!("has exactly the shape of {}\n", others.join(", "))
    }
}

fn inspect(config: &std::path::Path, format: ShowFormat) -> Exit {
    let body = match body(config) {
        Ok(body) => body,
        Err(fault) => return Exit::BadInput.because(&fault),
    };
    match service::inspect(&body) {
        Ok(read) if format == ShowFormat::Json => json(&read),
        Ok(read) => {
            let mut text = alike(&read.same_shape) + &facts(&read.facts, &read.sizes);
            for kind in &read.layer_kinds {
                let each = grouped(kind.parameters_per_layer);
                let _ = writeln!(text, "{} layers of {}: {each} parameters each", kind.layers, kind.name);
            }
            for note in &read.notes {
                let _ = writeln!(text, "- {} {}: {}", note.code, note.pointer, note.message);
            }
            output::print(&text)
        }
        Err(fault) => refused(&fault),
    }
}

fn add(id: &str, config: &std::path::Path, settings: &SettingsArgs) -> Exit {
    let body = match body(config) {
        Ok(body) => body,
        Err(fault) => return Exit::BadInput.because(&fault),
    };
    match serve::store_model(settings, id, &body) {
        Ok(Ok((put, view))) => {
            let done = if put == Put::Created { "stored" } else { "replaced" };
            output::print(&format!("{done} {}: {} parameters\n", view.id, grouped(view.facts.parameters)))
        }
        Ok(Err(fault @ ServiceError::Unavailable(_))) => Exit::UpstreamFailed.because(&fault.to_string()),
        Ok(Err(fault)) => refused(&fault),
        Err(fault) if fault.is_bad_input() => Exit::BadInput.because(&fault.to_string()),
        Err(fault) => Exit::UpstreamFailed.because(&fault.to_string()),
    }
}

/// The JSON of a file.
fn body(config: &std::path::Path) -> Result<Value, String> {
    let text = text_at(config).map_err(|fault| fault.to_string())?;
    let read = document::read(text.as_bytes()).map_err(|fault| format!("{}: {fault}", config.display()))?;
    Ok(read.value)
}

fn refused(fault: &ServiceError) -> Exit {
    if let ServiceError::Invalid(faults) = fault {
        for fault in faults {
            eprintln!("error: {fault}");
        }
        return Exit::BadInput;
    }
    Exit::Internal.because(&fault.to_string())
}

fn json(value: &impl Serialize) -> Exit {
    match serde_json::to_string_pretty(value) {
        Ok(text) => output::print(&(text + "\n")),
        Err(fault) => Exit::Internal.because(&fault.to_string()),
    }
}

fn facts(facts: &ModelFacts, sizes: &ModelSizes) -> String {
    let mut out = format!(
        "{}: {} layers, hidden {}, {} query heads, {} KV heads of {}; {}\n{} parameters ({} active), {} B as {}; context {}\n\n",
        facts.architecture,
        facts.layers,
        grouped(facts.hidden_size),
        facts.query_heads,
        facts.kv_heads,
        facts.head_size,
        facts.attention,
        grouped(facts.parameters),
        grouped(facts.active_parameters),
        grouped(facts.weights_bytes),
        facts.quantization,
        grouped(facts.context_length)
    );
    let _ = writeln!(out, "{:<20} {:>8} {:>18} {:>18}", "weights of", "tensors", "parameters", "bytes");
    for group in &sizes.ledger {
        let _ = writeln!(
            out,
            "{:<20} {:>8} {:>18} {:>18}",
            group.group,
            grouped(group.tensors),
            grouped(group.parameters),
            grouped(group.bytes)
        );
    }
    let _ = writeln!(out, "\nKV a token ({}): {}", sizes.kv_cache_dtype, sizes.kv_formula);
    if let Some(refused) = &sizes.refused {
        let _ = writeln!(out, "refused by {}: {refused}", sizes.rules);
    }
    let allowed: Vec<String> =
        sizes.tp_sizes.iter().filter(|t| t.allowed).map(|t| t.tp.to_string()).collect();
    let _ = writeln!(out, "TP ({}): {}", sizes.rules, allowed.join(", "));
    for size in &sizes.tp_sizes {
        if let Some(reason) = &size.reason {
            let _ = writeln!(out, "  TP={}: {reason}", size.tp);
        }
    }
    out
}
