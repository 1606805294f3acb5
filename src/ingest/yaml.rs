//! YAML with the line of every value, within bounds: depth, number of nodes, size. Aliases are followed by copying
//! a node that is already read, and count against the same bound, so that no document can grow without end.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use thiserror::Error;

/// Bytes of a document.
pub const MAX_BYTES: usize = 1 << 20;
/// Nodes of all documents together.
pub const MAX_NODES: usize = 100_000;
/// Levels of nesting.
pub const MAX_DEPTH: usize = 64;

/// A text that is no YAML, or too much of it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct YamlError {
    pub line: u32,
    pub message: String,
}

/// A value and the line on which it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub line: u32,
    pub value: Yaml,
}

/// A YAML value. Scalars keep their text: what they mean depends on who reads them.
#[derive(Debug, Clone, PartialEq)]
pub enum Yaml {
    /// A scalar; `plain` when it stood without quotes and may be a number, a truth value or null.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    /// In the order of the document; of repeated keys the last counts.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value of `key` in a map.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Yaml::Map(pairs) => pairs.iter().rev().find(|(k, _)| k == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The value under a path of keys.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The items of a list; of anything else none.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Yaml::List(items) => items,
            _ => &[],
        }
    }

    /// The pairs of a map; of anything else none.
    #[must_use]
    pub fn pairs(&self) -> &[(String, Self)] {
        match &self.value {
            Yaml::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// The text of a scalar; null and the other kinds have none.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Yaml::Scalar { text, plain } if *plain && matches!(text.as_str(), "" | "~" | "null") => None,
            Yaml::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A whole number.
    #[must_use]
    pub fn whole(&self) -> Option<u64> {
        self.text()?.trim().parse().ok()
    }

    /// `true` or `false` in the spellings that YAML readers take.
    #[must_use]
    pub fn flag(&self) -> Option<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }
}

/// Read every document of `text`.
///
/// # Errors
/// The first place that is no YAML, or where a bound is passed.
pub fn read(text: &str) -> Result<Vec<Node>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError { line: 1, message: format!("more than {MAX_BYTES} bytes") });
    }
    let mut reader = Reader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| YamlError {
            line: u32::try_from(e.marker().line()).unwrap_or(u32::MAX),
            message: e.info().to_owned(),
        })?;
        reader.take(event, u32::try_from(span.start.line()).unwrap_or(u32::MAX))?;
    }
    Ok(reader.documents)
}

/// A list or map that is still open.
struct Open {
    line: u32,
    anchor: usize,
    items: Vec<Node>,
    pairs: Option<Vec<(String, Node)>>,
    key: Option<String>,
}

#[derive(Default)]
struct Reader {
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

impl Reader {
    fn take(&mut self, event: Event<'_>, line: u32) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                // a block is said to begin on its first line that is not empty
                let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let empty = if block { text.chars().take_while(|c| *c == '\n').count() } else { 0 };
                let line = line.saturating_sub(u32::try_from(empty).unwrap_or(u32::MAX));
                self.put(Node { line, value: Yaml::Scalar { text: text.into_owned(), plain } }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, None),
            Event::MappingStart(anchor, _) => self.begin(line, anchor, Some(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.pairs {
                    Some(pairs) => Yaml::Map(pairs),
                    None => Yaml::List(open.items),
                };
                self.put(Node { line: open.line, value }, open.anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(YamlError { line, message: "an alias of something unknown".to_owned() });
                };
                self.nodes = self.nodes.saturating_add(size(&node));
                self.put(node, 0)
            }
            _ => Ok(()),
        }
    }

    fn begin(
        &mut self,
        line: u32,
        anchor: usize,
        pairs: Option<Vec<(String, Node)>>,
    ) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlError { line, message: format!("nested deeper than {MAX_DEPTH} levels") });
        }
        self.open.push(Open { line, anchor, items: Vec::new(), pairs, key: None });
        Ok(())
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            return Err(YamlError { line: node.line, message: format!("more than {MAX_NODES} values") });
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some(Open { pairs: Some(pairs), key, .. }) => match key.take() {
                Some(key) => pairs.push((key, node)),
                None => {
                    *key = Some(match node.value {
                        Yaml::Scalar { text, .. } => text,
                        _ => String::new(),
                    });
                }
            },
            Some(open) => open.items.push(node),
        }
        Ok(())
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Yaml::Scalar { .. } => 1,
        Yaml::List(items) => items.iter().fold(1, |sum, item| sum.saturating_add(size(item))),
        Yaml::Map(pairs) => pairs.iter().fold(1, |sum, (_, item)| sum.saturating_add(size(item))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_lines() {
        let docs = read("a: 1\nb:\n  - x\n  - {c: \"8\"}\n---\nkind: K\n").expect("yaml");
        assert_eq!(docs.len(), 2);
        let b = docs[0].get("b").expect("b");
        assert_eq!(
            (b.items()[0].line, b.items()[1].get("c").map(|c| (c.line, c.whole()))),
            (3, Some((4, Some(8))))
        );
        assert_eq!(docs[1].get("kind").and_then(Node::text), Some("K"));
        assert_eq!(docs[1].get("kind").map(|n| n.line), Some(6));
    }

    #[test]
    fn a_block_of_text_begins_where_its_first_line_stands() {
        for text in
            ["a:\n  run: |\n    first\n    second\n", "a: {run: x}\nb: |\n\n  first\n", "- >-\n  first\n"]
        {
            let docs = read(text).expect("yaml");
            fn find(node: &Node) -> Option<(u32, String)> {
                match &node.value {
                    Yaml::Scalar { text, .. } if text.contains("first") => Some((node.line, text.clone())),
                    Yaml::Map(pairs) => pairs.iter().find_map(|(_, n)| find(n)),
                    Yaml::List(items) => items.iter().find_map(find),
                    Yaml::Scalar { .. } => None,
                }
            }
            let (line, value) = find(&docs[0]).expect("it is there");
            let above = |text: &str| text.split("first").next().unwrap_or_default().matches('\n').count();
            assert_eq!(line as usize + above(&value), above(text) + 1, "{text}");
        }
    }

    #[test]
    fn documents_cannot_grow_without_end() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let before = format!("*a{}", i - 1);
            bomb.push_str(&format!("a{i}: &a{i} [{}]\n", [before.as_str(); 10].join(", ")));
        }
        assert!(read(&bomb).is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(10_000)).is_err());
        assert!(read("a: [").is_err());
        assert!(read(&" ".repeat(MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn what_is_no_value_has_none() {
        let docs = read("a: ~\nb: 'null'\nc: yes\nd: 0x\n").expect("yaml");
        let of = |key: &str| docs[0].get(key).expect("key");
        assert_eq!(
            (of("a").text(), of("b").text(), of("c").flag(), of("d").whole()),
            (None, Some("null"), Some(true), None)
        );
    }
}
