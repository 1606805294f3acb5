//! The words of a question, and which of them were taken.

use std::ops::Range;

use super::fillers::is_filler;
use crate::ingest::cluster::clean;

/// Words of a model's name at most.
const LONGEST: usize = 8;

/// A question word by word.
pub(super) struct Words {
    /// What was asked, in plain characters.
    text: String,
    /// Each word's bytes in it, without the marks around it.
    places: Vec<Range<usize>>,
    /// In lower case.
    words: Vec<String>,
    taken: Vec<bool>,
}

impl Words {
    pub(super) fn of(text: &str) -> Self {
        let text = clean(text);
        let mut places = Vec::new();
        let mut start = None;
        for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
            let alone = matches!(c, '<' | '>' | '≤' | '≥');
            let between = c.is_whitespace() || matches!(c, ',' | ';' | '?' | '!' | '(' | ')' | '"' | '`');
            if alone || between {
                places.extend(start.take().and_then(|start| within_marks(&text, start..at)));
            } else if start.is_none() {
                start = Some(at);
            }
            if alone {
                places.push(at..at + c.len_utf8());
            }
        }
        let words: Vec<String> =
            places.iter().map(|at| text.get(at.clone()).unwrap_or_default().to_lowercase()).collect();
        let taken = vec![false; words.len()];
        Self { text, places, words, taken }
    }

    pub(super) const fn len(&self) -> usize {
        self.words.len()
    }

    /// The word at `i` in lower case, unless it was taken.
    pub(super) fn at(&self, i: usize) -> Option<&str> {
        let free = !self.taken.get(i).copied().unwrap_or(true);
        self.words.get(i).map(String::as_str).filter(|_| free)
    }

    /// The word at `i` in lower case, whether it was taken or not.
    pub(super) fn said(&self, i: usize) -> &str {
        self.words.get(i).map_or("", String::as_str)
    }

    /// The free word `back` places before `i`.
    pub(super) fn before(&self, i: usize, back: usize) -> Option<&str> {
        self.at(i.checked_sub(back)?)
    }

    pub(super) fn take(&mut self, i: usize) {
        if let Some(taken) = self.taken.get_mut(i) {
            *taken = true;
        }
    }

    pub(super) fn take_all(&mut self, run: Range<usize>) {
        run.for_each(|i| self.take(i));
    }

    /// A run of words as it was written, with what stands between them.
    pub(super) fn written(&self, run: &Range<usize>) -> &str {
        let first = self.places.get(run.start).map_or(0, |place| place.start);
        let last = run.end.checked_sub(1).and_then(|last| self.places.get(last)).map_or(first, |at| at.end);
        self.text.get(first..last).unwrap_or_default()
    }

    /// The words that have a part in these bytes of what [`Words::written`] gave for the run from `start`.
    pub(super) fn under(&self, start: usize, bytes: &Range<usize>) -> Range<usize> {
        let offset = self.places.get(start).map_or(0, |place| place.start);
        let (from, to) = (offset.saturating_add(bytes.start), offset.saturating_add(bytes.end));
        let first = self.places.partition_point(|place| place.end <= from);
        let end = self.places.partition_point(|place| place.start < to);
        first..end.max(first)
    }

    /// Runs of words of which none was taken, longest possible.
    pub(super) fn free_runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for i in (0..self.len()).filter(|i| self.at(*i).is_some()) {
            match runs.last_mut() {
                Some(run) if run.end == i => run.end = i + 1,
                _ => runs.push(i..i + 1),
            }
        }
        runs
    }

    /// The longest run of free words that `means` something, the first of several.
    pub(super) fn longest<T>(&self, means: impl Fn(&str) -> Option<T>) -> Option<(Range<usize>, T)> {
        (1..=LONGEST.min(self.len())).rev().find_map(|length| {
            (0..=self.len() - length).find_map(|start| {
                let run = start..start + length;
                if run.clone().any(|i| self.at(i).is_none()) {
                    return None;
                }
                let text: Vec<&str> =
                    run.clone().filter_map(|i| self.text.get(self.places.get(i)?.clone())).collect();
                means(&text.join(" ")).map(|found| (run, found))
            })
        })
    }

    /// Whether one of these phrases was said, taken or not.
    pub(super) fn says(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.phrase(phrase).is_some())
    }

    /// Where a phrase was said.
    pub(super) fn phrase(&self, phrase: &str) -> Option<Range<usize>> {
        let wanted: Vec<&str> = phrase.split(' ').collect();
        let start = self.words.windows(wanted.len()).position(|said| said.iter().eq(wanted.iter()))?;
        Some(start..start + wanted.len())
    }

    /// Words that were neither taken nor are fillers.
    pub(super) fn left(&self) -> Vec<String> {
        let left = |i: &usize| self.at(*i).is_some_and(|word| !is_filler(word));
        (0..self.len()).filter(left).map(|i| self.written(&(i..i + 1)).to_owned()).collect()
    }
}

/// The word without marks before and behind it; `None` where nothing else is left.
fn within_marks(text: &str, place: Range<usize>) -> Option<Range<usize>> {
    let word = text.get(place.clone())?;
    let behind = word.trim_start_matches(['.', ':', '\'', '=']);
    let start = place.start + (word.len() - behind.len());
    let length = behind.trim_end_matches(['.', ':', '\'']).len();
    (length > 0).then(|| start..start + length)
}
