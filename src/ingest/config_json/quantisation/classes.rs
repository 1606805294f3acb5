//! Layers that a checkpoint's lists treat alike. Lists name modules layer by layer, mostly the same ones in each: what was
//! found out for one layer holds for all of its class.

use std::collections::BTreeMap;

use super::super::by_name::ByName;
use super::super::names::{Pattern, Patterns};
use super::super::reader::MAX_LAYERS;
use super::format::Format;

/// The class of each layer.
#[derive(Debug, Default)]
pub struct Classes {
    /// Layers that a list names; all others are of class 0. `None`: a pattern may mean any part of any layer.
    named: Option<BTreeMap<u64, usize>>,
}

/// What a list says of one layer: patterns before and behind the layer's name, in their order among those that hold for all.
type Said<'p> = Vec<(Option<Format>, usize, &'p str, &'p str)>;

impl Classes {
    /// Sort the layers by what the ignore list and the list of formats say of them.
    pub fn of(ignore: &Patterns, formats: &ByName) -> Self {
        let mut layers: BTreeMap<u64, Said<'_>> = BTreeMap::new();
        let mut for_all = 0;
        let listed = ignore.all().map(|pattern| (pattern, None));
        let formats = formats.in_order().map(|(pattern, format)| (pattern, Some(format)));
        for (pattern, format) in listed.chain(formats) {
            match place(pattern) {
                Place::Anywhere => for_all += 1,
                Place::In { layer, before, behind } => {
                    // an ignored module is ignored wherever it stands in the list
                    let order = if format.is_some() { for_all } else { 0 };
                    for layer in beginning_with(layer, behind.starts_with('*')) {
                        layers.entry(layer).or_default().push((format, order, before, behind));
                    }
                }
                Place::Unclear => return Self { named: None },
            }
        }
        let mut distinct: Vec<Said<'_>> = vec![Said::new()];
        let named = layers.into_iter().map(|(layer, said)| {
            let class = distinct.iter().rposition(|known| *known == said).unwrap_or_else(|| {
                distinct.push(said);
                distinct.len() - 1
            });
            (layer, class)
        });
        Self { named: Some(named.collect()) }
    }

    /// The class of what lies under `prefix`, where that is a layer: `layers.3`.
    pub fn class_of(&self, prefix: &str) -> Option<usize> {
        let layer = prefix.strip_prefix(LAYERS)?.parse().ok()?;
        Some(self.named.as_ref()?.get(&layer).copied().unwrap_or(0))
    }
}

const LAYERS: &str = "layers.";

/// The layer, and where its number is the beginning of one ("layers.1*") those of two more digits at most.
fn beginning_with(layer: u64, open: bool) -> impl Iterator<Item = u64> {
    let powers = if open && layer > 0 { [1, 10, 100].as_slice() } else { &[1] };
    powers.iter().flat_map(move |power| {
        let first = layer.saturating_mul(*power);
        (first..first.saturating_add(*power)).take_while(|n| *n <= MAX_LAYERS)
    })
}

/// Which layers a pattern may be about.
enum Place<'p> {
    Anywhere,
    In { layer: u64, before: &'p str, behind: &'p str },
    Unclear,
}

/// A pattern as the lists hold it.
pub enum Listed<'p> {
    Text(&'p str),
    Expression(&'p str),
}

impl<'p> From<&'p Pattern> for Listed<'p> {
    fn from(pattern: &'p Pattern) -> Self {
        match pattern {
            Pattern::Name(text) | Pattern::Glob(text) => Self::Text(text),
            Pattern::Expression(expression) => Self::Expression(expression.as_str()),
        }
    }
}

fn place(pattern: Listed<'_>) -> Place<'_> {
    let text = match pattern {
        Listed::Text(text) => text,
        // an expression may count layers
        Listed::Expression(text) if text.contains(|c: char| c.is_ascii_digit()) => return Place::Unclear,
        Listed::Expression(_) => return Place::Anywhere,
    };
    let numbered = |(at, _): &(usize, &str)| {
        text.get(at + LAYERS.len()..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut found = text.match_indices(LAYERS).filter(numbered);
    let (Some((at, _)), None) = (found.next(), found.next()) else {
        let several = text.match_indices(LAYERS).filter(numbered).count() > 1;
        return if several { Place::Unclear } else { Place::Anywhere };
    };
    let number_and_rest = text.get(at + LAYERS.len()..).unwrap_or_default();
    let end = number_and_rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(number_and_rest.len());
    let (digits, behind) = number_and_rest.split_at_checked(end).unwrap_or((number_and_rest, ""));
    match digits.parse() {
        // a bare "layers.1" may mean layer 10
        Ok(layer) if behind.starts_with(['.', '*']) && (digits == "0" || !digits.starts_with('0')) => {
            Place::In { layer, before: text.get(..at).unwrap_or_default(), behind }
        }
        _ => Place::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(ignored: &[&str]) -> Vec<Option<usize>> {
        let mut ignore = Patterns::default();
        for text in ignored {
            ignore.push(Pattern::parse(text).expect("a pattern"));
        }
        let classes = Classes::of(&ignore, &ByName::default());
        (0..4).map(|layer| classes.class_of(&format!("layers.{layer}"))).collect()
    }

    #[test]
    fn layers_of_which_the_same_is_said_are_of_one_class() {
        assert_eq!(classes(&["lm_head", "*.gate", "re:.*router.*"]), [Some(0); 4]);
        let alike = ["model.layers.1.self_attn*", "model.layers.2.self_attn*", "model.layers.3.mlp.gate"];
        assert_eq!(classes(&alike), [Some(0), Some(1), Some(1), Some(2)]);
        let twice = ["mtp.layers.0.mlp.experts.0.w1", "model.layers.0.x", "model.layers.1.x"];
        assert_eq!(classes(&twice), [Some(1), Some(2), Some(0), Some(0)]);
        for unclear in ["model.layers.1", "re:.*layers.0.*", "a.layers.1.b.layers.2.c", "layers.01.x"] {
            assert_eq!(classes(&[unclear]), [None; 4], "{unclear}");
        }
    }
}
