//! `shardwise ask`: a question in plain words, from the embedded catalogue.

use clap::{Args, ValueEnum};

use super::exit::Exit;
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
pub fn ask(args: &AskArgs) -> Exit {
    let answer = match ask_offline(&args.question.join(" ")) {
        Ok(answer) => answer,
        Err(fault) => return tell(&fault, |pointer| pointer.trim_start_matches(['#', '/']).to_owned()),
    };
    match args.format {
        Form::Json => match serde_json::to_string_pretty(&answer) {
            Ok(json) => println!("{json}"),
            Err(fault) => return Exit::Internal.because(&fault.to_string()),
        },
        Form::Text => {
            println!("{}", answer.answer);
            if let Some(request) = &answer.request {
                println!("\nUnderstood as {}: {request}", answer.kind);
            }
            if !answer.assumed.is_empty() {
                println!("Assumed: {}.", answer.assumed.join(", "));
            }
            if !answer.not_understood.is_empty() {
                println!("Not understood: {}.", answer.not_understood.join(", "));
            }
        }
    }
    exit_of(&answer)
}

fn exit_of(answer: &QuestionAnswer) -> Exit {
    let fits = answer.plan.as_ref().map(|p| p.plan.feasible);
    let fits = fits.or(answer.sizing.as_ref().map(|s| s.feasible));
    let fits = fits.or(answer.fits.as_ref().map(|f| f.models_fitting > 0));
    match (answer.request.is_some(), fits) {
        (false, _) => Exit::BadInput,
        (true, Some(false)) => Exit::DoesNotFit,
        (true, _) => Exit::Fits,
    }
}
