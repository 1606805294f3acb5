//! Module names: patterns of ignore lists, and the matrices that an engine fuses into one.

use std::collections::BTreeSet;

use regex::Regex;

use super::quantisation::Listed;

/// Longest regular expression that is read.
const MAX_PATTERN: usize = 500;

/// A regular expression with a bound on its size.
fn bounded_regex(text: &str) -> Option<Regex> {
    if text.len() > MAX_PATTERN {
        return None;
    }
    regex::RegexBuilder::new(&format!("^(?:{text})")).size_limit(1 << 20).build().ok()
}

/// A pattern of an ignore list or a target list.
pub enum Pattern {
    /// A module name without the wrappers above the layers.
    Name(String),
    /// A name with `*`.
    Glob(String),
    /// `re:...`, matched from the start of the name.
    Expression(Regex),
}

/// Wrappers that files put before the names of layers; engines map them away.
const WRAPPERS: [&str; 5] = ["model.", "language_model.", "transformer.", "backbone.", "thinker."];

/// A name without its wrappers.
pub fn bare(mut name: &str) -> &str {
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        name = rest;
    }
    name
}

impl Pattern {
    /// Read a pattern.
    ///
    /// # Errors
    /// A sentence when it is a regular expression that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(expression) = text.strip_prefix("re:") {
            return bounded_regex(expression)
                .map(Self::Expression)
                .ok_or_else(|| "this regular expression cannot be read".to_owned());
        }
        Ok(Self::whole(text))
    }

    /// A name or glob.
    pub fn whole(text: &str) -> Self {
        let name = bare(text).to_owned();
        if name.contains('*') || name.contains('?') { Self::Glob(name) } else { Self::Name(name) }
    }

    /// True when it names this (bare) module.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Glob(glob) => glob_matches(glob, name),
            Self::Expression(expression) => {
                expression.is_match(name)
                    || expression.is_match(&format!("model.{name}"))
                    || expression.is_match(&format!("language_model.model.{name}"))
            }
        }
    }

    /// True when the pattern is a name that begins so.
    pub fn begins_with(&self, start: &str) -> bool {
        match self {
            Self::Name(own) | Self::Glob(own) => own.starts_with(start),
            Self::Expression(_) => false,
        }
    }
}

/// Many patterns: whole names in a set, so that a long list costs no more than a short one.
#[derive(Default)]
pub struct Patterns {
    names: BTreeSet<String>,
    /// Of those, the names of experts and their parts.
    of_experts: Vec<String>,
    others: Vec<Pattern>,
}

impl Patterns {
    pub fn push(&mut self, pattern: Pattern) {
        match pattern {
            Pattern::Name(name) => {
                if name.contains("experts") {
                    self.of_experts.push(name.clone());
                }
                self.names.insert(name);
            }
            other => self.others.push(other),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.others.is_empty()
    }

    /// Every pattern.
    pub fn all(&self) -> impl Iterator<Item = Listed<'_>> {
        let names = self.names.iter().map(|name| Listed::Text(name));
        names.chain(self.others.iter().map(Listed::from))
    }

    /// True when one names this module.
    pub fn matches(&self, name: &str) -> bool {
        self.names.contains(name) || self.others.iter().any(|pattern| pattern.matches(name))
    }

    /// True when the text of a whole name occurs within this one.
    pub fn is_part_of(&self, name: &str) -> bool {
        // a list names thousands of modules of other layers, which can only stand at the start of this one's name
        let layer_within = name.rfind("layers.").is_some_and(|at| at > 0);
        self.names.iter().any(|own| {
            if own.starts_with("layers.") && !layer_within {
                name.starts_with(own.as_str())
            } else {
                !own.is_empty() && name.contains(own.as_str())
            }
        })
    }

    /// True when one begins so.
    pub fn begins_with(&self, start: &str) -> bool {
        self.names.range(start.to_owned()..).next().is_some_and(|own| own.starts_with(start))
            || self.others.iter().any(|pattern| pattern.begins_with(start))
    }

    /// True when one names something under this module (an ignored single expert).
    pub fn lies_under(&self, name: &str) -> bool {
        self.of_experts.iter().any(|own| own.contains(name))
    }
}

/// `*` matches any run of characters, `?` one: linear backtracking.
fn glob_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(c) if *c == b'?' || Some(c) == name.get(n) => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    g = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    glob.get(g..).is_some_and(|rest| rest.iter().all(|c| *c == b'*'))
}

/// The names under which a checkpoint keeps the matrices that the engine fuses.
const FUSED: [(&str, &[&str]); 9] = [
    ("qkv_proj", &["q_proj", "k_proj", "v_proj"]),
    ("gate_up_proj", &["gate_proj", "up_proj"]),
    ("fused_qkv_a_proj", &["q_a_proj", "kv_a_proj_with_mqa"]),
    ("in_proj_qkvz", &["in_proj_qkv", "in_proj_z"]),
    ("in_proj_ba", &["in_proj_b", "in_proj_a"]),
    ("wk_weights_proj", &["wk", "weights_proj"]),
    ("w13", &["w1", "w3"]),
    ("experts", &["experts.0.up_proj", "experts.0.w1", "experts.0.gate_proj"]),
    ("fused_wqa_wkv", &["wq_a", "wkv"]),
];

/// The unfused names of a module, empty when it is not fused.
pub fn shards(name: &str) -> Vec<String> {
    let (stem, last) = name.rsplit_once('.').unwrap_or(("", name));
    FUSED
        .iter()
        .find(|(fused, _)| *fused == last)
        .map(|(_, parts)| {
            parts
                .iter()
                .map(|part| if stem.is_empty() { (*part).to_owned() } else { format!("{stem}.{part}") })
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_engine_reads_them() {
        for (pattern, name, matches) in [
            ("model.layers.0.mlp.gate", "layers.0.mlp.gate", true),
            ("model.layers.0*", "layers.0.self_attn.o_proj", true),
            ("model.layers.1.*", "layers.10.self_attn.o_proj", false),
            ("re:.*self_attn.*", "layers.3.self_attn.q_proj", true),
            ("re:vision_tower.*", "vision_tower.x", true),
            ("*.attn.*", "layers.3.attn.wq", true),
            ("lm_head", "lm_head", true),
        ] {
            let parsed = Pattern::parse(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(parsed.matches(name), matches, "{pattern} on {name}");
        }
    }
}
