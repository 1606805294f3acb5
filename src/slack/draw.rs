//! Answers as messages: a verdict, the best, the second or a caveat, a link. Every figure is one of the answer.

use serde_json::json;

use super::blocks::{Audience, Button, Message, safe};
use super::link;
use super::said::WORDS;
use crate::catalogue::models;
use crate::ingest::FieldError;
use crate::ingest::fields::nearest;
use crate::planner::answer::short;
use crate::planner::plan::{Plan, RankedLayout};
use crate::planner::units::grouped;
use crate::service::ServiceError;
use crate::service::followups::follow_ups;
use crate::service::questions::QuestionAnswer;

/// The action of the button that shows the next layouts or models.
pub const NEXT: &str = "next";
/// The action of the button that opens the dashboard. Slack tells of the press; there is nothing to do.
pub const OPEN: &str = "open";
/// Layouts or models that a press of [`NEXT`] shows.
const PAGE: usize = 5;

/// What an answer is drawn with.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// Address of the dashboard, where it is known.
    pub dashboard: Option<String>,
    /// The command as people type it here.
    pub command: String,
}

impl Frame {
    /// An answer in at most four lines, with what may be asked next on buttons.
    #[must_use]
    pub fn answer(&self, audience: Audience, answer: &QuestionAnswer) -> Message {
        let lines = match (&answer.plan, &answer.fits, &answer.sizing) {
            (Some(plan), ..) => plan_lines(&plan.plan, answer),
            (_, Some(fits), _) => {
                let verdict = if fits.models_fitting > 0 { "Fits" } else { "Nothing fits" };
                let best = fits.items.first().and_then(|row| {
                    let best = row.fit.best.as_ref()?;
                    Some(format!(
                        "First: {}",
                        model_line(&row.model, &best.layout.name(), best.kv_tokens_total)
                    ))
                });
                vec![headed(verdict, &answer.answer), best.unwrap_or_default(), notes(answer)]
            }
            (_, _, Some(sizing)) => {
                let verdict = if sizing.feasible { "Fewest GPUs" } else { "Not carried" };
                let caveat = sizing.products.iter().filter_map(|product| {
                    Some(format!("{}: {}", safe(&product.gpu), safe(&product.why_not.as_ref()?.message)))
                });
                vec![headed(verdict, &answer.answer), caveat.take(1).collect(), notes(answer)]
            }
            _ if answer.sweep.is_some() => {
                vec![headed("Compared", &answer.answer), String::new(), notes(answer)]
            }
            _ if answer.batch.is_some() => {
                vec![headed("Side by side", &answer.answer), String::new(), notes(answer)]
            }
            _ if answer.model.is_some() => {
                vec![headed("The model", &answer.answer), String::new(), notes(answer)]
            }
            _ => return self.unclear(answer),
        };
        let mut lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let address = self.dashboard.as_deref().and_then(|base| link::of(base, answer));
        if let Some(address) = &address {
            lines.push(format!("<{}|Open in the dashboard>", safe_address(address)));
        }
        Message::of(audience, &lines, buttons(answer, address))
    }

    /// What can be asked.
    #[must_use]
    pub fn help(&self) -> Message {
        let command = safe(&self.command);
        let mut lines = vec![
            format!(
                "*Ask in plain words:* `{command} llama 3.1 70b on 2x8 H100 at 32k`, `{command} what fits on 16 H100s`,"
            ),
            format!(
                "`{command} how many H200 for deepseek r1 with 50 users at 32k`, `{command} is TP=16 worth it for llama 70b`."
            ),
            format!(
                "`{command} share …` shows the answer to the channel; `{command} default 16 H100s` sets the GPUs meant where none are named."
            ),
        ];
        if let Some(base) = &self.dashboard {
            lines.push(format!("<{}|Open the dashboard>", safe_address(base)));
        }
        Message::of(Audience::Ephemeral, &lines, Vec::new())
    }

    /// A question that was not understood, with what may have been meant.
    fn unclear(&self, answer: &QuestionAnswer) -> Message {
        // the examples have a line of their own here
        let why = answer.answer.split(" You can ask").next().unwrap_or_default();
        let mut lines = vec![headed("Not understood", why)];
        let first = answer.question.split_whitespace().next().unwrap_or_default();
        let words = answer.not_understood.join(" ");
        let may_be_model = words.chars().any(|c| c.is_ascii_digit());
        let model = models::find(&words).err().filter(|_| may_be_model).map(|unknown| unknown.suggestions);
        if let Some(word) = nearest(first, &WORDS) {
            lines.push(format!("Did you mean `{} {word}`?", safe(&self.command)));
        } else if let Some(model) = model.iter().flatten().next() {
            lines.push(format!("Did you mean {}?", safe(model)));
        }
        let examples: Vec<String> = answer
            .examples
            .iter()
            .take(2)
            .map(|text| format!("`{} {}`", safe(&self.command), safe(text)))
            .collect();
        if !examples.is_empty() {
            lines.push(format!("For example: {}.", examples.join(", ")));
        }
        lines.push(format!("`{} help` shows more.", safe(&self.command)));
        Message::of(Audience::Ephemeral, &lines, Vec::new())
    }

    /// Why there is no answer.
    #[must_use]
    pub fn fault(&self, error: &ServiceError) -> Message {
        let mut lines = match error {
            ServiceError::Invalid(faults) => {
                let mut lines = vec!["*I cannot answer that.*".to_owned()];
                lines.extend(faults.iter().take(2).map(fault_line));
                lines
            }
            ServiceError::Unavailable(_) => {
                vec!["*The database is away.* Planning goes on without it; nothing was stored.".to_owned()]
            }
            ServiceError::Internal(why) => {
                tracing::error!(why, "a question from Slack failed");
                vec!["*Something went wrong here.* It was written to the log.".to_owned()]
            }
            other => vec![headed("I cannot answer that", &other.to_string())],
        };
        lines.push(format!("`{} help` shows what can be asked.", safe(&self.command)));
        Message::of(Audience::Ephemeral, &lines, Vec::new())
    }
}

/// The layouts or models from the `from`th on.
#[must_use]
pub fn next(answer: &QuestionAnswer, from: usize) -> Message {
    let rows: Vec<String> = match (&answer.plan, &answer.fits) {
        (Some(plan), _) => {
            plan.plan.layouts.iter().map(|l| format!("{}. {}", l.rank, layout_line(l))).collect()
        }
        (_, Some(fits)) => fits
            .items
            .iter()
            .enumerate()
            .filter_map(|(i, row)| {
                let best = row.fit.best.as_ref()?;
                Some(format!(
                    "{}. {}",
                    i + 1,
                    model_line(&row.model, &best.layout.name(), best.kv_tokens_total)
                ))
            })
            .collect(),
        _ => Vec::new(),
    };
    let shown: Vec<String> = rows.iter().skip(from).take(PAGE).cloned().collect();
    if shown.is_empty() {
        return Message::of(Audience::Ephemeral, &["There are no more.".to_owned()], Vec::new());
    }
    let more = next_button(answer, from + PAGE, rows.len());
    Message::of(Audience::Ephemeral, &shown, more.into_iter().collect())
}

/// One line to the one who asked.
#[must_use]
pub fn told(line: &str) -> Message {
    Message::of(Audience::Ephemeral, &[line.to_owned()], Vec::new())
}

fn headed(verdict: &str, sentence: &str) -> String {
    format!("*{verdict}:* {}", safe(sentence))
}

fn plan_lines(plan: &Plan, answer: &QuestionAnswer) -> Vec<String> {
    let subject = format!("{} on {}.", plan.model.id, plan.cluster.words);
    let first = |verdict| format!("{} {}", headed(verdict, &subject), notes(answer)).trim_end().to_owned();
    let Some(best) = plan.layouts.first() else {
        // the near miss: what lacks the fewest bytes
        let nearest = plan.refused.iter().min_by_key(|refused| refused.short_by_bytes.unwrap_or(u64::MAX));
        let why = nearest.map(|refused| format!("Nearest: {}", safe(&refused.message)));
        let advice = plan.advice.first().map(|advice| format!("Instead: {}", safe(&advice.message)));
        return vec![first("Does not fit"), why.unwrap_or_default(), advice.unwrap_or_default()];
    };
    let verdict = match best.meets_slo {
        _ if !plan.feasible => "Does not hold one sequence",
        true => "Fits",
        false => "Fits, but misses the limits",
    };
    // what the sentence about the best says already is no second line, nor is a load that nobody asked for
    let asked_load = answer.request.as_ref().is_some_and(|r| r.pointer("/workload/concurrency").is_some());
    let caveat = best.warnings.iter().find(|warning| match warning.code.as_str() {
        "idle_gpus" | "context_does_not_fit" => false,
        "concurrency_exceeds_capacity" | "preemption" => asked_load,
        _ => true,
    });
    let third = match (caveat, plan.layouts.get(1)) {
        (Some(caveat), _) => format!("Mind: {}", safe(&caveat.message)),
        (None, Some(second)) => format!("Next: {}", layout_line(second)),
        (None, None) => String::new(),
    };
    vec![first(verdict), safe(&plan.answer), third]
}

/// What was assumed, and what was not understood: without it an answer could be taken for one to another question.
fn notes(answer: &QuestionAnswer) -> String {
    let assumed =
        (!answer.assumed.is_empty()).then(|| format!("_Assumed: {}._", safe(&answer.assumed.join(", "))));
    let missed = (!answer.not_understood.is_empty())
        .then(|| format!("_Not understood: {}._", safe(&answer.not_understood.join(" "))));
    assumed.into_iter().chain(missed).collect::<Vec<_>>().join(" ")
}

fn layout_line(row: &RankedLayout) -> String {
    let copies = if row.kv.replication_factor > 1.0 {
        format!(", cache held {:.2} times", row.kv.replication_factor)
    } else {
        String::new()
    };
    let idle = if row.layout.idle_gpus > 0 {
        format!(", {} GPUs idle", row.layout.idle_gpus)
    } else {
        String::new()
    };
    format!(
        "{}: {} KV tokens, {} sequences, TPOT {:.1} ms{copies}{idle}",
        safe(&row.layout.name()),
        short(row.capacity.kv_tokens_total),
        grouped(row.capacity.sequences_total),
        row.latency.tpot_ms.value,
    )
}

fn model_line(model: &str, layout: &str, kv_tokens: u64) -> String {
    format!("{}, {}: {} KV tokens", safe(model), safe(layout), short(kv_tokens))
}

fn fault_line(fault: &FieldError) -> String {
    let allowed = if fault.allowed.is_empty() {
        String::new()
    } else {
        let some: Vec<&str> = fault.allowed.iter().take(3).map(String::as_str).collect();
        format!(" Did you mean {}?", safe(&some.join(", ")))
    };
    let told = fault.to_string();
    // the sentence may say it already
    if told.contains("did you mean") {
        safe(&told)
    } else {
        format!("{}.{allowed}", safe(told.trim_end_matches('.')))
    }
}

fn buttons(answer: &QuestionAnswer, address: Option<String>) -> Vec<Button> {
    let carried =
        |kind: &str, request: &serde_json::Value| json!({"kind": kind, "request": request}).to_string();
    let mut buttons: Vec<Button> = follow_ups(answer)
        .iter()
        .filter_map(|next| Button::sending(next.name, &next.label, carried(&next.kind, &next.request)))
        .collect();
    let rows = match (&answer.plan, &answer.fits) {
        (Some(plan), _) => plan.plan.layouts.len(),
        (_, Some(fits)) => fits.items.len(),
        _ => 0,
    };
    buttons.extend(next_button(answer, 1, rows));
    buttons.extend(address.and_then(|address| Button::opening(OPEN, "Open in the dashboard", address)));
    buttons
}

fn next_button(answer: &QuestionAnswer, from: usize, rows: usize) -> Option<Button> {
    let label = if answer.plan.is_some() { "Next layouts" } else { "Next models" };
    let value = json!({"kind": answer.kind, "request": answer.request, "from": from}).to_string();
    if rows > from { Button::sending(NEXT, label, value) } else { None }
}

/// An address between the marks of a link: ours, but a question's words are in it.
fn safe_address(address: &str) -> String {
    address.replace('&', "&amp;").replace(['<', '>', '|', '\n', '\r'], "")
}
