//! Parallel sizes that a question names, and the alternatives that it puts them in.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

use super::words::Words;
use crate::ingest::bounds;

/// Names of a size, those that hold another's first.
const NAMES: [(&str, Axis); 8] = [
    ("attention_dp", Axis::AttentionDp),
    ("attention-dp", Axis::AttentionDp),
    ("adp", Axis::AttentionDp),
    ("dcp", Axis::Dcp),
    ("tp", Axis::Tp),
    ("pp", Axis::Pp),
    ("dp", Axis::Dp),
    ("ep", Axis::Ep),
];

/// Names in several words or as an engine's flag.
const LONG_NAMES: [(&str, Axis); 12] = [
    ("tensor parallel size", Axis::Tp),
    ("tensor parallel", Axis::Tp),
    ("tensor parallelism", Axis::Tp),
    ("tensor-parallel-size", Axis::Tp),
    ("pipeline parallel size", Axis::Pp),
    ("pipeline parallel", Axis::Pp),
    ("pipeline parallelism", Axis::Pp),
    ("pipeline-parallel-size", Axis::Pp),
    ("decode context parallel", Axis::Dcp),
    ("attention dp", Axis::AttentionDp),
    ("dp attention", Axis::AttentionDp),
    ("decode-context-parallel-size", Axis::Dcp),
];

/// A parallel size, under its name in `search`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Axis {
    Tp,
    Pp,
    Dp,
    Ep,
    AttentionDp,
    Dcp,
}

impl Axis {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Pp => "pp",
            Self::Dp => "dp",
            Self::Ep => "ep",
            Self::AttentionDp => "attention_dp",
            Self::Dcp => "dcp",
        }
    }
}

/// Sizes that belong to one layout.
pub(super) type Layout = BTreeMap<Axis, u64>;

/// The layouts that are named: one, or several to compare.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) layouts: Vec<Layout>,
    /// "DP attention vs TP8": named without a size.
    attention_dp: bool,
}

impl Sizes {
    /// Take "tp=16", "TP16", "tp 16", "tensor parallel 16", "tp8pp2", "pp 2 or 4".
    pub(super) fn take(words: &mut Words) -> Self {
        let mut named: Vec<(Layout, bool)> = Vec::new();
        let mut last = None;
        let mut i = 0;
        while i < words.len() {
            let Some((sizes, run)) = named_at(words, i) else {
                i += 1;
                continue;
            };
            let other = last.is_some_and(|last| parts(words, last, i));
            last = Some(run.end);
            i = run.end;
            words.take_all(run);
            let axis = sizes.keys().next().copied();
            named.push((sizes, other));
            // "pp 2 or 4", "tp 4, 8 or 16": the name stands once
            while let Some((axis, (size, run))) = axis.zip(number_behind(words, i)) {
                last = Some(run.end);
                i = run.end;
                words.take_all(run);
                named.push((Layout::from([(axis, size)]), true));
            }
        }
        let attention_dp =
            (0..words.len()).find(|i| matches!(name_at(words, *i), Some((Axis::AttentionDp, 2))));
        if let Some(i) = attention_dp {
            words.take_all(i..i + 2);
        }
        Self { layouts: alternatives(named), attention_dp: attention_dp.is_some() }
    }

    /// "DP attention vs TP8": the same GPUs in as many attention groups as TP has ranks.
    pub(super) fn against_attention_dp(&mut self) {
        if let ([layout], true) = (self.layouts.as_slice(), self.attention_dp)
            && let Some(tp) = layout.get(&Axis::Tp).copied()
        {
            self.layouts.push(Layout::from([(Axis::Tp, 1), (Axis::AttentionDp, tp)]));
        }
    }

    /// The `search` of a plan, when a size is named.
    pub(super) fn search(&self) -> Option<Value> {
        let mut search: BTreeMap<Axis, Vec<u64>> = BTreeMap::new();
        for (axis, size) in self.layouts.iter().flatten() {
            let sizes = search.entry(*axis).or_default();
            if !sizes.contains(size) {
                sizes.push(*size);
            }
        }
        let fields: Map<String, Value> =
            search.into_iter().map(|(axis, sizes)| (axis.name().to_owned(), json!(sizes))).collect();
        (!fields.is_empty()).then_some(Value::Object(fields))
    }

    /// The one size that all of the layouts are told apart by, with its values.
    pub(super) fn one_axis(&self) -> Option<(Axis, Vec<u64>)> {
        let axis = *self.layouts.first()?.keys().next()?;
        let size = |layout: &Layout| layout.get(&axis).copied().filter(|_| layout.len() == 1);
        let mut values: Vec<u64> = self.layouts.iter().map(size).collect::<Option<_>>()?;
        values.sort_unstable();
        values.dedup();
        Some((axis, values))
    }

    /// Each layout as the axis of that name takes it: "tp=8 pp=2".
    pub(super) fn in_words(&self) -> Vec<String> {
        let text = |layout: &Layout| {
            let rest = layout.iter().filter(|(axis, _)| **axis != Axis::Tp);
            let tp = format!("tp={}", layout.get(&Axis::Tp).copied().unwrap_or(1));
            rest.fold(tp, |text, (axis, size)| format!("{text} {}={size}", axis.name()))
        };
        self.layouts.iter().map(text).collect()
    }

    /// GPUs of the largest replica that is named.
    pub(super) fn most_gpus(&self) -> u64 {
        let ranks = |layout: &Layout| {
            let of = |axis| layout.get(&axis).copied().unwrap_or(1);
            of(Axis::Tp).saturating_mul(of(Axis::Pp)).saturating_mul(of(Axis::AttentionDp))
        };
        self.layouts.iter().map(ranks).max().unwrap_or(1)
    }
}

/// "tp8 pp2" is one layout, "tp8 or pp2" are two, and so are "tp4, tp8".
fn alternatives(named: Vec<(Layout, bool)>) -> Vec<Layout> {
    let apart = named.iter().any(|(_, other)| *other);
    let mut layouts: Vec<Layout> = Vec::new();
    for (sizes, other) in named {
        match layouts.last_mut() {
            Some(layout) if !(apart && other) && sizes.keys().all(|axis| !layout.contains_key(axis)) => {
                layout.extend(sizes);
            }
            _ => layouts.push(sizes),
        }
    }
    let mut distinct: Vec<Layout> = Vec::new();
    for layout in layouts {
        if !distinct.contains(&layout) {
            distinct.push(layout);
        }
    }
    distinct
}

/// True when the words between two sizes put one against the other.
fn parts(words: &Words, from: usize, to: usize) -> bool {
    let between = from.saturating_sub(1)..to.saturating_add(1);
    let said = (from..to).any(|i| {
        matches!(words.said(i), "or" | "vs" | "versus" | "against" | "than" | "instead" | "compared" | "over")
    });
    // "TP2PP2, PP4 or TP4", but "tp=8, pp=2" alone is one layout
    let listed = words.written(&between).contains(',') && words.says(&["or", "vs", "versus"]);
    said || listed
}

/// Sizes that are named from `i` on, and their words.
fn named_at(words: &Words, i: usize) -> Option<(Layout, Range<usize>)> {
    let word = words.at(i)?;
    if let Some(sizes) = joined(word) {
        return Some((sizes, i..i + 1));
    }
    let (axis, length) = name_at(words, i)?;
    let behind = i + length;
    let skipped = usize::from(matches!(words.at(behind), Some("of" | "size" | "=")));
    let size = size_of(words.at(behind + skipped)?)?;
    Some((Layout::from([(axis, size)]), i..behind + skipped + 1))
}

/// The name of a size at `i` and its words.
fn name_at(words: &Words, i: usize) -> Option<(Axis, usize)> {
    let long = LONG_NAMES.iter().find_map(|(name, axis)| {
        let parts: Vec<&str> = name.split(' ').collect();
        let said = parts
            .iter()
            .enumerate()
            .all(|(n, part)| words.at(i + n).is_some_and(|w| w.trim_start_matches('-') == *part));
        said.then_some((*axis, parts.len()))
    });
    let word = words.at(i)?.trim_start_matches('-').trim_end_matches('=');
    long.or_else(|| NAMES.iter().find(|(name, _)| *name == word).map(|(_, axis)| (*axis, 1)))
}

/// "tp8", "tp=8", "tp8pp2", "tp8xpp2", "tensor-parallel-size=8".
fn joined(word: &str) -> Option<Layout> {
    let mut rest = word.trim_start_matches('-');
    if let Some((name, size)) = rest.split_once('=')
        && let Some((_, axis)) = LONG_NAMES.iter().find(|(long, _)| *long == name)
    {
        return Some(Layout::from([(*axis, size_of(size)?)]));
    }
    let mut sizes = Layout::new();
    while !rest.is_empty() {
        let (name, axis) = NAMES.iter().find(|(name, _)| rest.starts_with(name))?;
        let behind = rest.get(name.len()..)?.trim_start_matches(['=', '-', ':', '_']);
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (digits, more) = behind.split_at_checked(end)?;
        sizes.insert(*axis, size_of(digits)?);
        rest = more.trim_start_matches(['x', '*', '+', '/', '-', '_', '×', '&']);
    }
    (!sizes.is_empty()).then_some(sizes)
}

/// "or 4", "/ 8": a further value of the size before, that counts nothing else.
fn number_behind(words: &Words, i: usize) -> Option<(u64, Range<usize>)> {
    let joins = |word: &str| matches!(word, "or" | "vs" | "versus" | "/");
    let comma = words.written(&(i.saturating_sub(1)..i + 1)).contains(',');
    let start = if joins(words.at(i)?) { i + 1 } else { i };
    if start == i && !comma {
        return None;
    }
    let size = size_of(words.at(start)?)?;
    // "tp 8 or 16 H100s": that counts GPUs
    let counts =
        words.at(start + 1).is_some_and(|next| next.contains(|c: char| c.is_ascii_digit()) || next == "x");
    (!counts).then_some((size, i..start + 1))
}

fn size_of(digits: &str) -> Option<u64> {
    digits.trim_start_matches('=').parse().ok().filter(|n| bounds::PARALLEL.contains(n))
}
