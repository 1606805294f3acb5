//! `shardwise ask`: a question in plain words, from the embedded catalogue.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::ask::print_json;
use super::exit::Exit;
use super::output::{self, Style};
use super::plan::tell;
use crate::service::questions::{QuestionAnswer, ask_offline};

/// `shardwise ask`.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// E.g. "how many H200 for deepseek r1 with 50 users at 32k".
    #[arg(required = true, value_name = "QUESTION")]
    question: Vec<String>,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

/// The form of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    #[default]
    Text,
    Json,
}

/// Answer, and show what was understood beside it.
pub fn ask(args: &AskArgs, no_color: Option<&str>) -> Exit {
    let answer = match ask_offline(&args.question.join(" ")) {
        Ok(answer) => answer,
        Err(fault) => return tell(&fault, |pointer| pointer.trim_start_matches(['#', '/']).to_owned()),
    };
    let printed = match args.format {
        Form::Json => print_json(&answer),
        Form::Text => output::print(&shown(&answer, Style::for_stdout(no_color))),
    };
    printed.max(exit_of(&answer))
}

/// The answer as its own command shows it, and what was understood.
fn shown(answer: &QuestionAnswer, style: Style) -> String {
    let mut text = match (&answer.fits, &answer.sizing, &answer.sweep, &answer.plan) {
        (Some(fits), ..) => output::fits(fits, style),
        (_, Some(sizing), ..) => output::sizing(sizing, style),
        (_, _, Some(sweep), _) => {
            output::sentence(&answer.answer, style) + "\n" + &output::sweep(&sweep.sweep, style)
        }
        (.., Some(plan)) => {
            output::sentence(&answer.answer, style) + "\n" + &output::layouts(&plan.plan, style)
        }
        _ => output::sentence(&answer.answer, style),
    };
    for item in answer.batch.iter().flat_map(|batch| &batch.items) {
        if let Some(best) = item.plan.as_ref().and_then(|plan| plan.layouts.first()) {
            let (cluster, model) = (named(&item.cluster), named(&item.model));
            let tokens = best.capacity.kv_tokens_total;
            let _ = writeln!(
                text,
                "  {model} on {cluster}: {}, {tokens} KV tokens, {} sequences, TPOT {:.1} ms",
                best.layout.name(),
                best.capacity.sequences_total,
                best.latency.tpot_ms.value
            );
        }
    }
    if let Some(request) = &answer.request {
        let _ = writeln!(text, "Understood as {}: {request}", answer.kind);
    }
    if !answer.assumed.is_empty() {
        let _ = writeln!(text, "Assumed: {}.", answer.assumed.join(", "));
    }
    if !answer.examples.is_empty() && !answer.answer.contains("for example") {
        let _ = writeln!(text, "You can ask: {}.", answer.examples.join("; "));
    }
    if !answer.not_understood.is_empty() {
        let _ = writeln!(text, "Not understood: {}.", answer.not_understood.join(", "));
    }
    text
}

/// A model or cluster as asked.
fn named(asked: &Value) -> String {
    asked.get("id").unwrap_or(asked).as_str().map_or_else(|| asked.to_string(), str::to_owned)
}

fn exit_of(answer: &QuestionAnswer) -> Exit {
    let fits = answer.plan.as_ref().map(|p| p.plan.feasible);
    let fits = fits.or(answer.sizing.as_ref().map(|s| s.feasible));
    let fits = fits.or(answer.batch.as_ref().map(|b| b.feasible > 0));
    let fits = fits.or(answer.fits.as_ref().map(|f| f.models_fitting > 0));
    match (answer.request.is_some(), fits) {
        (false, _) => Exit::BadInput,
        (true, Some(false)) => Exit::DoesNotFit,
        (true, _) => Exit::Fits,
    }
}
