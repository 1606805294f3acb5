//! Which models a question names, and names that are none.

use std::ops::Range;

use super::fillers::is_filler;
use super::words::Words;
use crate::catalogue::models::{self, CatalogueModel};

/// Models of one question at most.
const MOST_MODELS: usize = 8;
/// Near ones that are offered.
const MOST_NEAR: usize = 4;
/// A size in a name is rounded by up to this share of the parameters.
const ROUNDED: f64 = 0.15;
/// Models of about a size, where nothing else was said of one.
const ABOUT: f64 = 0.05;

/// A model that was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) id: String,
    run: Range<usize>,
}

/// A name that is no model's, with those that may have been meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    pub(super) asked: String,
    pub(super) near: Vec<&'static str>,
}

/// Take the models: of the catalogue, or an id of a hub.
pub(super) fn take(words: &mut Words) -> Vec<Named> {
    let known = |text: &str| {
        let filler = !text.contains(' ') && is_filler(&text.to_lowercase());
        let number = text.chars().all(|c| !c.is_alphabetic());
        if filler || number { None } else { models::known(text).map(|model| model.id.to_owned()) }
    };
    let mut named: Vec<Named> = Vec::new();
    while named.len() < MOST_MODELS {
        // the longest run first: a short name within a long one is not another model
        let found = words.longest(known);
        let found = if named.is_empty() { found.or_else(|| words.longest(of_hub)) } else { found };
        let Some((run, id)) = found else { break };
        words.take_all(run.clone());
        named.push(Named { id, run });
    }
    named.sort_by_key(|model| model.run.start);
    named
}

fn of_hub(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let is_id = matches!(parts.as_slice(), [org, name] if org.chars().any(char::is_alphabetic) && name.chars().count() > 2)
        && !text.contains(' ')
        && !matches!(parts.as_slice(), [_, "sec" | "second" | "min" | "minute" | "token" | "user"])
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_id.then(|| text.to_owned())
}

/// A name beside the models, or in their place, that is no model's: "deepseek coder 33b", "llama 13b", "a 70B".
pub(super) fn unknown(words: &mut Words, named: &[Named]) -> Option<Unknown> {
    for model in named {
        let run = around(words, &model.run);
        let beside: Vec<usize> = run.clone().filter(|i| !model.run.contains(i)).collect();
        let differs = |i: &usize| words.at(*i).is_some_and(|word| contradicts(word, &model.id));
        if beside.iter().any(differs) {
            return Some(named_otherwise(words, &run));
        }
        words.take_all(run);
    }
    let size = |words: &Words, i: usize| words.at(i).and_then(parameters);
    if let [model] = named {
        // "deepseek on 8 H100, the 33b": the size stands apart
        let apart = (0..words.len()).find(|i| size(words, *i).is_some());
        if let Some(i) = apart {
            let word = words.at(i).unwrap_or_default();
            if contradicts(word, &model.id) {
                let asked = format!("{} {word}", words.written(&model.run));
                return Some(Unknown { near: near(&asked), asked });
            }
            words.take(i);
        }
        return None;
    }
    if !named.is_empty() {
        return None;
    }
    let of_family = |i: &usize| {
        words
            .at(*i)
            .is_some_and(|word| !is_filler(word) && (parameters(word).is_some() || models::begins_name(word)))
    };
    let first = (0..words.len()).find(of_family)?;
    let run = around(words, &(first..first + 1));
    Some(named_otherwise(words, &run))
}

fn named_otherwise(words: &Words, run: &Range<usize>) -> Unknown {
    let asked = words.written(run).to_owned();
    Unknown { near: near(&asked), asked }
}

/// The run with the free words at both sides that may be of a model's name.
fn around(words: &Words, run: &Range<usize>) -> Range<usize> {
    let of_name = |i: usize| {
        words
            .at(i)
            .is_some_and(|word| (parameters(word).is_some() || models::is_in_names(word)) && !is_filler(word))
    };
    let mut run = run.clone();
    while run.start.checked_sub(1).is_some_and(of_name) {
        run.start -= 1;
    }
    while of_name(run.end) {
        run.end += 1;
    }
    run
}

/// True when a word beside a model's name makes it another's.
fn contradicts(word: &str, id: &str) -> bool {
    let Ok(model) = models::find(id) else { return false };
    match parameters(word) {
        Some(size) => !near_size(model, size, ROUNDED),
        None => models::is_in_names(word) && !models::is_ending(word),
    }
}

fn near_size(model: &CatalogueModel, size: f64, within: f64) -> bool {
    let near = |parameters: u64| (parameters as f64 - size).abs() <= within * size;
    near(model.parameters) || near(model.active_parameters)
}

/// "70b", "1.5b", "8x7b" as parameters.
pub(super) fn parameters(word: &str) -> Option<f64> {
    let number = word.strip_suffix('b')?;
    let product =
        number.split('x').map(|part| part.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0));
    product.collect::<Option<Vec<f64>>>().map(|parts| parts.iter().product::<f64>() * 1e9)
}

/// Models that may have been meant.
fn near(asked: &str) -> Vec<&'static str> {
    let size = asked.to_lowercase().split_whitespace().find_map(parameters);
    let mut near = match size {
        // "a 70B" names nothing but a size
        Some(size) if !asked.contains(' ') => of_size(size),
        _ => models::find(asked).err().map(|unknown| unknown.suggestions).unwrap_or_default(),
    };
    if let Some(size) = size.filter(|_| near.is_empty()) {
        near = of_size(size);
    }
    near.truncate(MOST_NEAR);
    near
}

/// The newest models of a size as published by their makers, one of each family.
fn of_size(size: f64) -> Vec<&'static str> {
    let mut sized: Vec<&CatalogueModel> =
        models::all().iter().filter(|model| model.base.is_none() && near_size(model, size, ABOUT)).collect();
    sized.sort_by_key(|model| (std::cmp::Reverse(model.released), model.id));
    let mut families: Vec<&str> = Vec::new();
    sized.retain(|model| {
        let first = !families.contains(&model.family);
        families.push(model.family);
        first
    });
    sized.into_iter().map(|model| model.id).collect()
}
