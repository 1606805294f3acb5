//! Names that may become part of an address: nothing else of a caller's input ever does.

use std::fmt;

/// Characters of an organisation or a model's name on the hub.
const NAME_CHARS: usize = 96;
/// Characters of a branch, tag or commit.
const REVISION_CHARS: usize = 128;

/// A model's id on the hub: `org/name`, each of letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HubId {
    org: String,
    name: String,
}

impl HubId {
    /// Read `org/name`. `None` when it could be anything but that.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (org, name) = text.split_once('/')?;
        (is_word(org, NAME_CHARS) && is_word(name, NAME_CHARS))
            .then(|| Self { org: org.to_owned(), name: name.to_owned() })
    }

    /// The part before the slash.
    #[must_use]
    pub fn org(&self) -> &str {
        &self.org
    }

    /// The part after the slash.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.name)
    }
}

/// A branch, tag, commit, or `refs/pr/<number>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(String);

impl Revision {
    /// Read a revision. `None` when it holds anything that could change an address.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let proposal = text.strip_prefix("refs/pr/").is_some_and(is_number);
        (proposal || is_word(text, REVISION_CHARS)).then(|| Self(text.to_owned()))
    }

    /// The text; a slash in it is to be encoded, as it is one segment of an address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Letters, digits, `.`, `_`, `-`; starts and ends with a letter, digit or `_`; no two dots in a row.
fn is_word(text: &str, most: usize) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = text.as_bytes();
    (1..=most).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
        && edge(bytes.first())
        && edge(bytes.last())
        && !text.contains("..")
}

fn is_number(text: &str) -> bool {
    (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_as_published_are_read() {
        for id in ["meta-llama/Llama-3.1-70B-Instruct", "01-ai/Yi-34B", "a/b", "nvidia/x_y.z-1", "_o/n_"] {
            assert_eq!(HubId::read(id).map(|i| i.to_string()).as_deref(), Some(id));
        }
        for revision in ["main", "v1.0", "5206a32e0bd3067aef1ce90f5528ade7d866253f", "refs/pr/12"] {
            assert_eq!(Revision::read(revision).map(|r| r.to_string()).as_deref(), Some(revision));
        }
    }

    #[test]
    fn nothing_that_could_change_an_address_is_read() {
        let long = format!("a/{}", "b".repeat(97));
        for id in [
            "",
            "a",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/.",
            "a/b..c",
            "a%2fb/c",
            "a/b%2f..%2fc",
            "a/b?x=1",
            "a/b#x",
            "http://evil/x",
            "evil.example:80/x",
            "user@evil/x",
            "[::1]/x",
            "a/b c",
            "a\\b/c",
            "a/b\n",
            "a/b\0",
            "ä/b",
            "a/-b",
            "a/b.",
            "//evil/x",
            ".git/config",
            &long,
        ] {
            assert_eq!(HubId::read(id), None, "{id:?}");
        }
        for revision in [
            "",
            "..",
            "a/b",
            "refs/pr/",
            "refs/pr/1/../..",
            "refs/pr/x",
            "main%2f..",
            "main?x",
            ".",
            "a b",
            "-x",
        ] {
            assert_eq!(Revision::read(revision), None, "{revision:?}");
        }
    }
}
