//! Numbers in figures, with their units: counts, sizes, rates, MIG profiles.

use winnow::Parser;
use winnow::ascii::{alphanumeric1, digit1};
use winnow::combinator::{alt, not, opt, peek, preceded, repeat};
use winnow::error::ModalResult;
use winnow::token::{one_of, take_while};

use super::vocabulary::scale_word;
use super::words::{Word, unknown};

/// A number and its unit, if it has one. The input starts with a digit.
pub(super) fn number_or_size<'c>(input: &mut &str) -> Word<'c> {
    if let Ok(Some(word)) = opt(mig).parse_next(input) {
        return word;
    }
    if let Ok(Some((low, high))) = opt(size_range).parse_next(input) {
        return Word::Memory { low_gb: low, high_gb: high };
    }
    let start = *input;
    if let Ok(Some((nodes, gpus))) = opt(nodes_and_gpus).parse_next(input) {
        return Word::NodesAndGpus(nodes, gpus);
    }
    let Ok(Some(mut value)) = opt(figure).parse_next(input) else {
        return unknown(input);
    };
    if let Some((scale, behind)) = scale_word(input) {
        value *= scale;
        *input = behind;
    }
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
    let scaled = [(&["k", "K"][..], 1e3), (&["M"], 1e6)]
        .into_iter()
        .find_map(|(units, scale)| ends_word(unit, units).map(|behind| (scale, behind)));
    *input = scaled.map_or(unit, |(_, behind)| behind);
    let written = start.get(..start.len() - input.len()).unwrap_or("").trim_end();
    match (scaled, whole(value * scaled.map_or(1.0, |(scale, _)| scale), written)) {
        (Some(_), Word::Number(n)) => Word::Thousands(n, written.to_owned()),
        (_, word) => word,
    }
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

/// "2N8G", as benchmarks name their clusters
fn nodes_and_gpus(input: &mut &str) -> ModalResult<(u64, u64)> {
    let (nodes, _, gpus, _, ()) = (
        digit1.parse_to::<u64>(),
        one_of(['n', 'N']),
        digit1.parse_to::<u64>(),
        one_of(['g', 'G']),
        peek(not(alphanumeric1)).void(),
    )
        .parse_next(input)?;
    Ok((nodes, gpus))
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
