//! The words of a cluster text: numbers in figures and letters, sizes, product and node names,
//! links, units. The lexer never fails: what it does not know becomes [`Word::Unknown`].

use std::ops::Range;

use winnow::Parser;
use winnow::combinator::{alt, opt};
use winnow::error::ModalResult;
use winnow::token::{one_of, take_while};

use super::numbers::number_or_size;
use super::vocabulary::{Fabric, LoadWord, Unit, load_word, number_word, plain_word};
use crate::catalogue::hardware::{Described, Form, HardwareCatalogue};
use crate::planner::hardware::Link;

/// One word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word<'c> {
    Number(u64),
    Negative,
    /// A number beyond every limit, as written.
    Huge(String),
    /// "4k", "1M": a count where GPUs follow, else a length in tokens. With the words as written.
    Thousands(u64, String),
    /// A size in GB, or a range of sizes.
    Memory {
        low_gb: f64,
        high_gb: f64,
    },
    /// "400G": a memory size, or a rate when a fabric stands beside it.
    Gigas(f64),
    /// Gbit/s.
    Rate(f64),
    /// A MIG profile: compute slices and GB.
    Mig {
        slices: u64,
        gb: u64,
    },
    /// A product or node type, with its spelling.
    Name(&'c Described, String),
    /// "-8" joined to a name: "v6e-8".
    Suffix(u64),
    Link(Link),
    Fabric(Fabric),
    Form(Form),
    Unit(Unit),
    Times,
    Plus,
    Comma,
    Slash,
    /// Joins that mean nothing of their own: ":", "=", brackets.
    Join,
    /// "a", "an".
    Article,
    The,
    Of,
    /// "each", "per", "every".
    Each,
    /// "on", "across", "over".
    Over,
    And,
    Half,
    /// "quarter": a part of what follows, one of so many.
    Share(u64),
    /// "some", "several".
    Vague,
    No,
    Bridge,
    Between,
    Inside,
    Dgx,
    SuperPod,
    ScalableUnit,
    /// "RAM", "host memory".
    HostMemory,
    /// A flag or key of a scheduler whose number counts nodes, GPUs of a node, or GPUs.
    NodesFlag,
    PerNodeFlag,
    TotalFlag,
    /// Words that do not change the meaning.
    Filler,
    /// Words of a question around the cluster.
    Question,
    /// "2N8G": nodes, and GPUs of each.
    NodesAndGpus(u64, u64),
    /// What a load or a layout counts, not a cluster: "tokens", "users", "tp". With the words as written.
    Load(LoadWord, String),
    Unknown(String),
}

/// Split a cleaned text into words.
pub(super) fn words<'c>(text: &str, catalogue: &'c HardwareCatalogue) -> Vec<Word<'c>> {
    words_at(text, catalogue).into_iter().map(|(word, _)| word).collect()
}

/// The same, each with its bytes in the text.
pub(super) fn words_at<'c>(text: &str, catalogue: &'c HardwareCatalogue) -> Vec<(Word<'c>, Range<usize>)> {
    let mut words: Vec<(Word<'c>, Range<usize>)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.starts_with(' ') {
            rest = rest.trim_start();
            continue;
        }
        let after_blank =
            text.len() == rest.len() || text.as_bytes().get(text.len() - rest.len() - 1) == Some(&b' ');
        let before = rest;
        let word = next_word(&mut rest, words.last().map(|(word, _)| word), after_blank, catalogue);
        words.push((word, text.len() - before.len()..text.len() - rest.len()));
        if rest.len() >= before.len() {
            // Every reader takes something; this keeps the loop finite if one ever does not.
            break;
        }
    }
    words
}

fn next_word<'c>(
    rest: &mut &str,
    last: Option<&Word<'c>>,
    after_blank: bool,
    catalogue: &'c HardwareCatalogue,
) -> Word<'c> {
    // SageMaker writes its machines' names with a prefix
    if let Some(behind) =
        rest.strip_prefix("ml.").filter(|behind| catalogue.names().longest_at(behind).is_some())
    {
        *rest = behind;
    }
    let joined_to_name = !after_blank && matches!(last, Some(Word::Name(..)));
    if let Ok(Some(word)) = opt(scheduler_flag).parse_next(rest) {
        return word;
    }
    let link = link_at(rest, catalogue);
    let name = catalogue.names().longest_at(rest);
    // The longer wins: "gaudi2-roce" is a link, "H100 NVL" a product.
    if let Some((length, described)) = name.filter(|n| link.as_ref().is_none_or(|l| n.0 >= l.0)) {
        let spelling = rest.get(..length).unwrap_or("").to_owned();
        *rest = without_plural(rest.get(length..).unwrap_or(""));
        return Word::Name(described, spelling);
    }
    if let Some((length, link)) = link {
        *rest = rest.get(length..).unwrap_or("");
        return Word::Link(link);
    }
    if rest.starts_with('-') && rest.get(1..).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
        *rest = rest.get(1..).unwrap_or("");
        return match (number_or_size(rest), joined_to_name) {
            (Word::Number(n), true) => Word::Suffix(n),
            (Word::Number(_) | Word::Huge(_), false) if after_blank => Word::Negative,
            (word, _) => word,
        };
    }
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        if let Some(length) = radeon(rest) {
            let name = rest.get(..length).unwrap_or("").to_owned();
            *rest = rest.get(length..).unwrap_or("");
            return Word::Unknown(name);
        }
        return match number_or_size(rest) {
            // "H100 x 1k"
            Word::Thousands(n, _) if last == Some(&Word::Times) => Word::Number(n),
            word => word,
        };
    }
    if let Some(word) = times(rest, last) {
        return word;
    }
    if rest.starts_with(|c: char| c.is_alphabetic()) {
        return spelled(rest);
    }
    symbol(rest)
}

/// A plural "s" behind a product name.
fn without_plural(rest: &str) -> &str {
    match rest.strip_prefix(['s', 'S']) {
        Some(behind) if !behind.starts_with(|c: char| c.is_ascii_alphanumeric()) => behind,
        _ => rest,
    }
}

/// A link by key or alias, or a fabric with its rate ("ethernet-25").
fn link_at(rest: &str, catalogue: &HardwareCatalogue) -> Option<(usize, Link)> {
    let named = catalogue.link_names().longest_at(rest).and_then(|(length, described)| {
        let spelling = rest.get(..length)?;
        // "H100 PCIe 4 nodes": a blank parts the form factor from the number.
        let parted = spelling.len() >= 4
            && spelling.get(..4).is_some_and(|s| s.eq_ignore_ascii_case("pcie"))
            && spelling.contains(' ')
            && !spelling.to_ascii_lowercase().contains("gen");
        (!parted).then(|| catalogue.link_meant(described).cloned()).flatten().map(|link| (length, link))
    });
    let by_rate = || {
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.')).unwrap_or(rest.len());
        let spelling = rest.get(..length)?;
        let digit = spelling.rsplit('-').next().is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
        (digit && spelling.contains('-'))
            .then(|| catalogue.link(spelling))
            .flatten()
            .map(|link| (length, link))
    };
    match (named, by_rate()) {
        (Some(named), Some(rated)) if rated.0 > named.0 => Some(rated),
        (named, rated) => named.or(rated),
    }
}

/// `-N 2`, `--nodes=2`, `gpu:h100:8`, `--gres=gpu:a100:4`, `nvidia.com/gpu: 8`.
fn scheduler_flag<'c>(input: &mut &str) -> ModalResult<Word<'c>> {
    let start = *input;
    let found = alt((
        tres,
        alt(("--gres=gpu:", "--gres gpu:", "gres/gpu:", "gres=gpu:", "gres:gpu:", "Gres=gpu:"))
            .value(Word::PerNodeFlag),
        alt(("--gpus-per-node", "--ntasks-per-node", "nvidia.com/gpu", "amd.com/gpu"))
            .value(Word::PerNodeFlag),
        alt(("--nodes", "-N", "--num-nodes", "--nnodes")).value(Word::NodesFlag),
        alt(("--gpus", "-G", "--num-gpus")).value(Word::TotalFlag),
        alt(("gpu:", "GPU:")).value(Word::PerNodeFlag),
    ))
    .parse_next(input)?;
    let ends_in_letter = start.len() > input.len()
        && start
            .get(..start.len() - input.len())
            .is_some_and(|s| s.ends_with(|c: char| c.is_ascii_alphabetic()));
    if ends_in_letter && input.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-') {
        *input = start;
        return Err(winnow::error::ErrMode::Backtrack(winnow::error::ContextError::new()));
    }
    let _: &str = take_while(0.., ['=', ':', ' ']).parse_next(input)?;
    Ok(found)
}

/// "gres/gpu=16", "gres/gpu:h100=16": Slurm's trackable resources count the GPUs of a whole job.
fn tres<'c>(input: &mut &str) -> ModalResult<Word<'c>> {
    let behind = "gres/gpu".parse_next(input).map(|_| *input)?;
    let word = behind.split([' ', ',']).next().unwrap_or("");
    if !word.contains('=') {
        return Err(winnow::error::ErrMode::Backtrack(winnow::error::ContextError::new()));
    }
    let _ = one_of([':', '=']).parse_next(input)?;
    Ok(Word::TotalFlag)
}

/// "x", "*" or "times" between two things.
fn times<'c>(input: &mut &str, last: Option<&Word<'c>>) -> Option<Word<'c>> {
    if let Some(behind) = input.strip_prefix('*') {
        *input = behind;
        return Some(Word::Times);
    }
    let behind = input.strip_prefix(['x', 'X'])?;
    if last == Some(&Word::Times) {
        return None;
    }
    let counts = matches!(
        last,
        Some(
            Word::Number(_)
                | Word::Name(..)
                | Word::Memory { .. }
                | Word::Unit(_)
                | Word::Form(_)
                | Word::Gigas(_)
                | Word::Huge(_)
        )
    );
    let free = behind.is_empty() || behind.starts_with(|c: char| !c.is_alphabetic() || c.is_ascii_digit());
    (free || counts).then(|| {
        *input = behind;
        Word::Times
    })
}

/// A word in letters: of the vocabulary, a number word, or unknown.
fn spelled<'c>(input: &mut &str) -> Word<'c> {
    if let Some((word, behind)) = plain_word(input) {
        *input = behind;
        return word;
    }
    if let Some((n, behind)) = number_word(input) {
        *input = behind;
        return Word::Number(n);
    }
    if let Some((kind, word, behind)) = load_word(input) {
        *input = behind;
        return Word::Load(kind, word.to_owned());
    }
    unknown(input)
}

/// The length of "7900 XTX": a number whose "X" multiplies nothing.
fn radeon(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|n| *n == 4)?;
    let behind = text.get(digits..)?;
    let blanks = behind.len() - behind.trim_start_matches([' ', '-']).len();
    let letters = behind.get(blanks..)?;
    let length = letters.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(letters.len());
    let model = letters.get(..length)?;
    ["xt", "xtx", "gre"].iter().any(|m| model.eq_ignore_ascii_case(m)).then_some(digits + blanks + length)
}

/// Makers' series whose products are told apart by a number behind the name.
const BRANDS: [&str; 8] = ["rtx", "gtx", "gt", "rx", "radeon", "arc", "titan", "quadro"];

pub(super) fn unknown<'c>(input: &mut &str) -> Word<'c> {
    let length = input
        .char_indices()
        .find(|(i, c)| *i > 0 && !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .map_or(input.len(), |(i, _)| i);
    let word = input.get(..length).unwrap_or(input);
    // "GTX 1080": a brand and its number are one name
    let brand = BRANDS.iter().any(|brand| word.eq_ignore_ascii_case(brand));
    let behind = input.get(length..).unwrap_or("");
    let number = radeon(behind.trim_start()).unwrap_or_else(|| {
        behind.trim_start().find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.trim_start().len())
    });
    let blanks = behind.len() - behind.trim_start().len();
    let length = if brand && number > 0 { length + blanks + number } else { length };
    let word = input.get(..length).unwrap_or(input).to_owned();
    *input = input.get(length..).unwrap_or("");
    Word::Unknown(word)
}

fn symbol<'c>(input: &mut &str) -> Word<'c> {
    let Some(c) = input.chars().next() else { return Word::Filler };
    // "$2/hr": a price
    if c == '$' {
        let length = input
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '$' | '.' | '/')))
            .unwrap_or(input.len());
        let (price, behind) = input.split_at_checked(length).unwrap_or((*input, ""));
        *input = behind;
        return Word::Load(LoadWord::Behind, price.to_owned());
    }
    *input = input.get(c.len_utf8()..).unwrap_or("");
    match c {
        '+' | ';' | '&' => Word::Plus,
        ',' => Word::Comma,
        '/' => Word::Slash,
        _ => Word::Join,
    }
}
