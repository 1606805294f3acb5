//! The words of a cluster text: numbers in figures and letters, sizes, product and node names,
//! links, units. The lexer never fails: what it does not know becomes [`Word::Unknown`].

use winnow::Parser;
use winnow::ascii::digit1;
use winnow::combinator::{alt, opt, preceded, repeat};
use winnow::error::ModalResult;
use winnow::token::{one_of, take_while};

use super::vocabulary::{Fabric, Unit, number_word, plain_word};
use crate::catalogue::hardware::{Described, Form, HardwareCatalogue};
use crate::planner::hardware::Link;

/// One word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word<'c> {
    Number(u64),
    Negative,
    /// A number beyond every limit, as written.
    Huge(String),
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
    Unknown(String),
}

/// Split a cleaned text into words.
pub(super) fn words<'c>(text: &str, catalogue: &'c HardwareCatalogue) -> Vec<Word<'c>> {
    let mut words: Vec<Word<'c>> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.starts_with(' ') {
            rest = rest.trim_start();
            continue;
        }
        let after_blank =
            text.len() == rest.len() || text.as_bytes().get(text.len() - rest.len() - 1) == Some(&b' ');
        let before = rest;
        let word = next_word(&mut rest, words.last(), after_blank, catalogue);
        words.push(word);
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
        return number_or_size(rest);
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
        alt(("--gres=gpu:", "--gres gpu:", "gres/gpu:", "gres/gpu=", "gres=gpu:", "gres:gpu:", "Gres=gpu:"))
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

/// A number and its unit, if it has one. The input starts with a digit.
fn number_or_size<'c>(input: &mut &str) -> Word<'c> {
    if let Ok(Some(word)) = opt(mig).parse_next(input) {
        return word;
    }
    if let Ok(Some((low, high))) = opt(size_range).parse_next(input) {
        return Word::Memory { low_gb: low, high_gb: high };
    }
    let start = *input;
    let Ok(Some(value)) = opt(figure).parse_next(input) else {
        return unknown(input);
    };
    if let Ok(Some(gigabytes)) = opt(memory_unit).parse_next(input) {
        return Word::Memory { low_gb: value * gigabytes, high_gb: value * gigabytes };
    }
    if let Ok(Some(gbit)) = opt(rate_unit).parse_next(input) {
        return Word::Rate(value * gbit);
    }
    let mut unit = *input;
    match ends_word(unit, &["G", "g"]) {
        Some(behind) => {
            *input = behind;
            return Word::Gigas(value);
        }
        None => unit = input,
    }
    if let Some(behind) = ends_word(unit, &["B", "b"]) {
        // "70B" is the size of a model.
        *input = behind;
        return Word::Question;
    }
    let scale = match ends_word(unit, &["k", "K"]) {
        Some(behind) => {
            *input = behind;
            1e3
        }
        None => match ends_word(unit, &["M"]) {
            Some(behind) => {
                *input = behind;
                1e6
            }
            None => 1.0,
        },
    };
    let written = start.get(..start.len() - input.len()).unwrap_or("").trim_end();
    whole(value * scale, written)
}

/// A count, or a number that is none.
fn whole<'c>(value: f64, written: &str) -> Word<'c> {
    if value >= 1e12 {
        return Word::Huge(written.to_owned());
    }
    if value.fract() != 0.0 {
        return Word::Unknown(written.to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and below 10^12")]
    Word::Number(value as u64)
}

/// `rest` behind one of `units`, when a word ends there.
fn ends_word<'t>(rest: &'t str, units: &[&str]) -> Option<&'t str> {
    units
        .iter()
        .filter_map(|unit| rest.strip_prefix(unit))
        .find(|behind| !behind.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// 16, 1,024, 1e6, 1.5
fn figure(input: &mut &str) -> ModalResult<f64> {
    let thousands = (digit1, repeat::<_, _, (), _, _>(1.., preceded(',', digits3)))
        .take()
        .map(|text: &str| text.replace(',', "").parse::<f64>().unwrap_or(f64::INFINITY));
    let exponent = (digit1, one_of(['e', 'E']), digit1).take().parse_to();
    let power = (digit1, '^', digit1).map(|(base, _, power): (&str, _, &str)| {
        let base: f64 = base.parse().unwrap_or(f64::INFINITY);
        base.powi(power.parse().unwrap_or(i32::MAX))
    });
    let decimal = (digit1, '.', digit1).take().parse_to();
    let plain = digit1.map(|text: &str| text.parse::<f64>().unwrap_or(f64::INFINITY));
    alt((thousands, exponent, power, decimal, plain)).parse_next(input)
}

fn digits3<'t>(input: &mut &'t str) -> ModalResult<&'t str> {
    take_while(3..=3, |c: char| c.is_ascii_digit()).parse_next(input)
}

/// "1g.10gb"
fn mig<'c>(input: &mut &str) -> ModalResult<Word<'c>> {
    (digit1.parse_to::<u64>(), one_of(['g', 'G']), '.', digit1.parse_to::<u64>(), alt(("gb", "GB")))
        .map(|(slices, _, _, gb, _)| Word::Mig { slices, gb })
        .parse_next(input)
}

/// "24GB..40GB"
fn size_range(input: &mut &str) -> ModalResult<(f64, f64)> {
    let size = |input: &mut &str| -> ModalResult<f64> {
        let value: f64 = (digit1, opt(('.', digit1))).take().parse_to().parse_next(input)?;
        Ok(value * opt(memory_unit).parse_next(input)?.unwrap_or(1.0))
    };
    let low = size(input)?;
    let _ = "..".parse_next(input)?;
    Ok((low, size(input)?))
}

/// GB in one of the unit; a word must end behind it.
fn memory_unit(input: &mut &str) -> ModalResult<f64> {
    const UNITS: [(&str, f64); 10] = [
        ("bytes", 1e-9),
        ("gib", 1.073_741_824),
        ("gigabytes", 1.0),
        ("gigabyte", 1.0),
        ("gigs", 1.0),
        ("gb", 1.0),
        ("tib", 1_099.511_627_776),
        ("tb", 1000.0),
        ("mib", 0.001_048_576),
        ("mb", 0.001),
    ];
    unit_of(input, &UNITS)
}

/// Gbit/s in one of the unit.
fn rate_unit(input: &mut &str) -> ModalResult<f64> {
    const UNITS: [(&str, f64); 9] = [
        ("gbit/s", 1.0),
        ("gb/s", 1.0),
        ("gbps", 1.0),
        ("gbits", 1.0),
        ("gbit", 1.0),
        ("gbe", 1.0),
        ("tbit/s", 1000.0),
        ("tbps", 1000.0),
        ("tb/s", 1000.0),
    ];
    unit_of(input, &UNITS)
}

fn unit_of(input: &mut &str, units: &[(&str, f64)]) -> ModalResult<f64> {
    let bare = input.strip_prefix(['-', ' ']).unwrap_or(input);
    for (unit, factor) in units {
        let Some(head) = bare.get(..unit.len()).filter(|h| h.eq_ignore_ascii_case(unit)) else { continue };
        let behind = bare.get(head.len()..).unwrap_or("");
        let rate = behind.starts_with('/') && !unit.contains('/');
        if rate || behind.starts_with(|c: char| c.is_ascii_alphanumeric() && !c.eq_ignore_ascii_case(&'x')) {
            continue;
        }
        *input = behind;
        return Ok(*factor);
    }
    Err(winnow::error::ErrMode::Backtrack(winnow::error::ContextError::new()))
}

/// "x", "*" or "times" between two things.
fn times<'c>(input: &mut &str, last: Option<&Word<'c>>) -> Option<Word<'c>> {
    if let Some(behind) = input.strip_prefix('*') {
        *input = behind;
        return Some(Word::Times);
    }
    let behind = input.strip_prefix(['x', 'X'])?;
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
    unknown(input)
}

fn unknown<'c>(input: &mut &str) -> Word<'c> {
    let length = input
        .char_indices()
        .find(|(i, c)| *i > 0 && !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .map_or(input.len(), |(i, _)| i);
    let word = input.get(..length).unwrap_or(input).to_owned();
    *input = input.get(length..).unwrap_or("");
    Word::Unknown(word)
}

fn symbol<'c>(input: &mut &str) -> Word<'c> {
    let Some(c) = input.chars().next() else { return Word::Filler };
    *input = input.get(c.len_utf8()..).unwrap_or("");
    match c {
        '+' | ';' | '&' => Word::Plus,
        ',' => Word::Comma,
        '/' => Word::Slash,
        _ => Word::Join,
    }
}
