//! Names: one index from every spelling to the products and node types it may mean,
//! longest match in a running text, and "did you mean".

use std::collections::BTreeMap;

/// Longest name in squashed characters: bounds the work of a match.
const MAX_NAME: usize = 64;

/// What a name may mean: indices into the catalogue's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Gpu(usize),
    Node(usize),
    Link(usize),
    /// Known by name only.
    Incomplete(usize),
}

/// Every meaning of one spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    pub meanings: Vec<Name>,
    /// True when the spelling fixes the memory size, e.g. `a100-80`.
    pub has_memory: bool,
    /// True when it fixes the form factor, e.g. `h100 pcie`.
    pub has_form: bool,
}

impl Described {
    /// Products among the meanings.
    #[must_use]
    pub fn gpus(&self) -> Vec<usize> {
        self.meanings.iter().filter_map(|m| if let Name::Gpu(i) = m { Some(*i) } else { None }).collect()
    }

    /// Node types among the meanings.
    #[must_use]
    pub fn nodes(&self) -> Vec<usize> {
        self.meanings.iter().filter_map(|m| if let Name::Node(i) = m { Some(*i) } else { None }).collect()
    }
}

/// From squashed spelling to meanings.
#[derive(Debug, Default)]
pub struct NameIndex {
    by_name: BTreeMap<String, Described>,
}

/// Lower case without blanks and joiners: "RTX Pro 6000" and "rtx-pro-6000" are one name.
#[must_use]
pub fn squash(name: &str) -> String {
    name.chars().filter(|c| !is_joiner(*c)).flat_map(char::to_lowercase).collect()
}

const fn is_joiner(c: char) -> bool {
    matches!(c, ' ' | '-' | '_' | '.' | '\u{a0}' | '/')
}

impl NameIndex {
    /// Add a spelling. The same spelling may mean several products.
    pub(super) fn add(&mut self, spelling: &str, meaning: Name) {
        let key = squash(spelling);
        if key.is_empty() || key.len() > MAX_NAME {
            return;
        }
        let described = self.by_name.entry(key).or_default();
        if !described.meanings.contains(&meaning) {
            described.meanings.push(meaning);
        }
        described.has_memory |= names_memory(spelling);
        described.has_form |= names_form(spelling);
    }

    /// The meanings of a whole name.
    #[must_use]
    pub fn exact(&self, name: &str) -> Option<&Described> {
        self.by_name.get(&squash(name))
    }

    /// The longest name at the start of `text`: its length in bytes and its meanings.
    /// A name ends at the end of a word; a plural "s" and a following "x8" belong to the text, not the name.
    #[must_use]
    pub fn longest_at(&self, text: &str) -> Option<(usize, &Described)> {
        let mut squashed = String::with_capacity(MAX_NAME);
        let mut best = None;
        for (at, c) in text.char_indices() {
            if is_joiner(c) {
                // "a 100" is an article and a number.
                if squashed == "a" && c == ' ' {
                    break;
                }
                continue;
            }
            if !c.is_alphanumeric() || squashed.len() >= MAX_NAME {
                break;
            }
            squashed.extend(c.to_lowercase());
            let end = at + c.len_utf8();
            if ends_name(text.get(end..).unwrap_or(""), c)
                && let Some(described) = self.by_name.get(&squashed)
            {
                best = Some((end, described));
            }
        }
        best
    }
}

/// True when a name may end before `rest`.
fn ends_name(rest: &str, last: char) -> bool {
    let mut chars = rest.chars();
    let Some(next) = chars.next() else { return true };
    if !next.is_alphanumeric() {
        return true;
    }
    let after = chars.next();
    let word_over = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    match next {
        's' | 'S' if word_over(after) => true,
        // H100x8, 4090x2
        'x' | 'X' if last.is_ascii_digit() || last.is_alphabetic() => {
            after.is_some_and(|c| c.is_ascii_digit())
        }
        // 16卡H800, H800卡
        c if !c.is_ascii() => true,
        _ => false,
    }
}

/// True when a spelling ends in a memory size: `a100-80`, `h20 141gb`, `a100-sxm4-40gb`.
fn names_memory(spelling: &str) -> bool {
    let last = spelling.rsplit(is_joiner).next().unwrap_or("");
    let digits = last.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = last.get(digits.len()..).unwrap_or("").to_ascii_lowercase();
    spelling.contains(is_joiner)
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit())
        && matches!(unit.as_str(), "" | "g" | "gb")
        && digits.len() <= 3
        || last.eq_ignore_ascii_case("3e")
        || spelling.to_ascii_lowercase().contains("gb-")
        || spelling.to_ascii_lowercase().contains("gb ")
}

fn names_form(spelling: &str) -> bool {
    let s = spelling.to_ascii_lowercase();
    ["sxm", "pcie", "nvl", "hbm", "oam"].iter().any(|form| s.contains(form))
}

/// The canonical names whose spelling is closest to `wrong`, closest first, at most three.
/// Letters that look alike (O and 0, I and 1) count as equal.
pub(super) fn closest<'a>(wrong: &str, names: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let wrong = look_alike(&squash(wrong));
    if wrong.len() > MAX_NAME {
        return Vec::new();
    }
    let limit = (wrong.chars().count() / 3).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = Vec::new();
    for (spelling, canonical) in names {
        let distance = edit_distance(&wrong, &look_alike(&squash(spelling)));
        if distance > limit {
            continue;
        }
        match found.iter_mut().find(|(_, name)| *name == canonical) {
            Some(entry) => entry.0 = entry.0.min(distance),
            None => found.push((distance, canonical)),
        }
    }
    found.sort_by_key(|(distance, _)| *distance);
    found.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

fn look_alike(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            'o' => '0',
            'l' | 'i' => '1',
            c => c,
        })
        .collect()
}

/// Insertions, deletions and replacements between two short names.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, &cb) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
