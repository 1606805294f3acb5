//! Which pieces of a longer text speak of GPUs: for a reader of questions, who hands those on.

use std::ops::Range;

use super::vocabulary::{Unit, number_word};
use super::words::{Word, words_at};
use crate::catalogue::hardware::HardwareCatalogue;

/// What a piece of a text is to a reader of clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A GPU product.
    Product,
    /// A machine or rack by its name, or "DGX": with its GPUs inside.
    System,
    /// A number, or a word in its place.
    Count,
    /// "a", "an".
    Article,
    /// "GPUs", "nodes", "racks": what is counted.
    Unit,
    /// "and", "+", a comma, the end of a line: what may stand between two groups.
    Separator,
    /// What is said of GPUs: memory, form, links.
    Detail,
    /// What joins the others and means nothing at an end.
    Join,
    /// Anything else.
    Other,
}

/// A piece with its bytes in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub part: Part,
    pub at: Range<usize>,
}

/// The pieces of a cleaned text.
#[must_use]
pub fn pieces(text: &str, catalogue: &HardwareCatalogue) -> Vec<Piece> {
    let words = words_at(text, catalogue).into_iter();
    words.map(|(word, at)| Piece { part: part_of(&word, text.get(at.clone()).unwrap_or("")), at }).collect()
}

fn part_of(word: &Word<'_>, spelling: &str) -> Part {
    match word {
        Word::Name(described, _) if described.nodes().is_empty() => Part::Product,
        Word::Name(..) | Word::Dgx | Word::SuperPod => Part::System,
        // "how many H100", "any H100": a question, not a count
        Word::Vague if ["many", "any"].iter().any(|word| spelling.eq_ignore_ascii_case(word)) => Part::Other,
        Word::Number(_)
        | Word::Negative
        | Word::Huge(_)
        | Word::Thousands(..)
        | Word::NodesAndGpus(..)
        | Word::Share(_)
        | Word::Half
        | Word::Vague => Part::Count,
        Word::Article => Part::Article,
        Word::Unit(Unit::Port) => Part::Detail,
        Word::Unit(_) => Part::Unit,
        Word::Plus | Word::And | Word::Comma => Part::Separator,
        Word::Memory { .. }
        | Word::Gigas(_)
        | Word::Rate(_)
        | Word::Mig { .. }
        | Word::Suffix(_)
        | Word::Link(_)
        | Word::Fabric(_)
        | Word::Form(_)
        | Word::Times
        | Word::Bridge
        | Word::HostMemory
        | Word::ScalableUnit
        | Word::NodesFlag
        | Word::PerNodeFlag
        | Word::TotalFlag => Part::Detail,
        Word::Slash
        | Word::Join
        | Word::The
        | Word::Of
        | Word::Each
        | Word::Over
        | Word::No
        | Word::Between
        | Word::Inside
        | Word::Filler => Part::Join,
        Word::Question | Word::Load(..) | Word::Unknown(_) => Part::Other,
    }
}

/// A whole word as a number: "five", "twenty-four".
#[must_use]
pub fn spelled_number(word: &str) -> Option<u64> {
    number_word(word).filter(|(_, behind)| behind.is_empty()).map(|(n, _)| n)
}
