//! Formats by module name. A mixed checkpoint names thousands of modules and asks for each, so plain names are
//! looked up and only globs and expressions are tried one by one.

use std::collections::BTreeMap;

use super::names::Pattern;
use super::quantisation::{Format, Listed};

/// Patterns with their formats; the first that matches wins.
#[derive(Default)]
pub struct ByName {
    names: BTreeMap<String, (usize, Format)>,
    patterns: Vec<(usize, Pattern, Format)>,
    pushed: usize,
}

impl ByName {
    /// A pattern after all that are there.
    pub fn push(&mut self, pattern: Pattern, format: Format) {
        let place = self.pushed;
        self.pushed += 1;
        match pattern {
            Pattern::Name(name) => _ = self.names.entry(name).or_insert((place, format)),
            other => self.patterns.push((place, other, format)),
        }
    }

    /// True without any pattern.
    pub const fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// Every pattern with its format, as the list has them.
    pub fn in_order(&self) -> impl Iterator<Item = (Listed<'_>, Format)> {
        let names = self.names.iter().map(|(name, (place, format))| (*place, Listed::Text(name), *format));
        let patterns =
            self.patterns.iter().map(|(place, pattern, format)| (*place, Listed::from(pattern), *format));
        let mut all: Vec<_> = names.chain(patterns).collect();
        all.sort_by_key(|(place, ..)| *place);
        all.into_iter().map(|(_, pattern, format)| (pattern, format))
    }

    /// The format of a module that is called `name`, or `shards` where it is fused of several.
    pub fn find(&self, name: &str, shards: &[String]) -> Option<Format> {
        let called = || std::iter::once(name).chain(shards.iter().map(String::as_str));
        let by_name =
            called().filter_map(|name| self.names.get(name)).min_by_key(|(place, _)| *place).copied();
        let before = by_name.map_or(usize::MAX, |(place, _)| place);
        let by_pattern = self
            .patterns
            .iter()
            .take_while(|(place, ..)| *place < before)
            .find(|(_, pattern, _)| called().any(|name| pattern.matches(name)))
            .map(|(_, _, format)| *format);
        by_pattern.or(by_name.map(|(_, format)| format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_wins_whatever_its_kind() {
        let (first, second) = (Format::Mxfp8, Format::Mxfp4);
        let glob_first = |glob: &str| {
            let mut rules = ByName::default();
            rules.push(Pattern::whole(glob), first);
            rules.push(Pattern::whole("layers.0.q_proj"), second);
            rules.push(Pattern::whole("layers.0.q_proj"), first);
            rules
        };
        assert_eq!(glob_first("layers.0.*").find("layers.0.q_proj", &[]), Some(first));
        assert_eq!(glob_first("layers.1.*").find("layers.0.q_proj", &[]), Some(second));
        let fused = ["layers.0.q_proj".to_owned()];
        assert_eq!(glob_first("layers.1.*").find("layers.0.qkv_proj", &fused), Some(second));
        assert_eq!(glob_first("layers.1.*").find("layers.2.x", &[]), None);
    }
}
