//! `--assert 'kv_tokens>=200000'`: a condition on the best layout.

use serde_json::Value;
use thiserror::Error;

use super::number;

/// A condition that a pipeline wants to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Assertion {
    /// As it was written.
    pub text: String,
    field: String,
    compare: Compare,
    wanted: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
    Different,
}

/// Longer signs first, so that `>=` is not read as `>`.
const SIGNS: &[(&str, Compare)] = &[
    (">=", Compare::AtLeast),
    ("<=", Compare::AtMost),
    ("==", Compare::Equal),
    ("!=", Compare::Different),
    (">", Compare::Above),
    ("<", Compare::Below),
    ("=", Compare::Equal),
];

/// Short names of what is asserted most, and where they stand in a layout.
const NAMES: &[(&str, &str)] = &[
    ("kv_tokens", "/capacity/kv_tokens_total"),
    ("kv_tokens_per_replica", "/capacity/kv_tokens_per_replica"),
    ("max_sequence_tokens", "/capacity/max_sequence_tokens"),
    ("sequences", "/capacity/sequences_total"),
    ("replication_factor", "/kv/replication_factor"),
    ("ttft_ms", "/latency/ttft_ms"),
    ("tpot_ms", "/latency/tpot_ms"),
    ("output_tokens_per_s", "/throughput/output_tokens_per_s"),
    ("output_tokens_per_s_per_gpu", "/throughput/output_tokens_per_s_per_gpu"),
    ("requests_per_s", "/throughput/requests_per_s"),
    ("usd_per_hour", "/cost/usd_per_hour"),
    ("usd_per_million_output_tokens", "/cost/usd_per_million_output_tokens"),
    ("gpus", "/layout/gpus"),
    ("idle_gpus", "/layout/idle_gpus"),
    ("tp", "/layout/tp"),
    ("pp", "/layout/pp"),
    ("dp", "/layout/dp"),
];

/// A condition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreadable {
    #[error(
        "`{0}` is not a condition: write NAME, one of >= <= > < == !=, and a value, e.g. kv_tokens>=200000"
    )]
    NoSign(String),
    #[error(
        "there is no figure `{field}` in a layout: use one of {names}, or a path such as latency.tpot_ms.high",
        names = names()
    )]
    NoSuchFigure { field: String },
    #[error(
        "`{0}` compares with something that is no number: write e.g. kv_tokens>=200000 or ttft_ms<=1.5e3"
    )]
    Incomparable(String),
}

fn names() -> String {
    NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// How an assertion came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The condition as it was written.
    pub text: String,
    pub holds: bool,
    /// What the figure is, for the message.
    pub found: String,
}

impl Assertion {
    /// Read a condition.
    ///
    /// # Errors
    /// [`Unreadable`] when there is no comparison in it.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let (at, sign, compare) = SIGNS
            .iter()
            .filter_map(|(sign, compare)| text.find(sign).map(|at| (at, *sign, *compare)))
            .min_by_key(|(at, sign, _)| (*at, std::cmp::Reverse(sign.len())))
            .ok_or_else(|| Unreadable::NoSign(text.to_owned()))?;
        let (field, rest) = text.split_at(at);
        let (field, wanted) = (field.trim(), rest.trim_start_matches(sign).trim());
        if field.is_empty() || wanted.is_empty() {
            return Err(Unreadable::NoSign(text.to_owned()));
        }
        let ordered = !matches!(compare, Compare::Equal | Compare::Different);
        let figure = wanted
            .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | '<' | '>' | '='))
            && !wanted.contains(|c: char| c.is_ascii_alphabetic());
        if (ordered || figure) && number::read(wanted).is_none_or(|n| !n.is_finite()) {
            return Err(Unreadable::Incomparable(text.to_owned()));
        }
        Ok(Self { text: text.to_owned(), field: field.to_owned(), compare, wanted: wanted.to_owned() })
    }

    /// Check it on the best layout (as JSON); `None` when nothing fits.
    ///
    /// # Errors
    /// [`Unreadable::NoSuchFigure`] when a layout has no such figure.
    pub fn check(&self, best: Option<&Value>) -> Result<Outcome, Unreadable> {
        let Some(best) = best else {
            return Ok(Outcome { text: self.text.clone(), holds: false, found: "nothing fits".to_owned() });
        };
        let path = NAMES
            .iter()
            .find(|(name, _)| *name == self.field)
            .map_or_else(|| format!("/{}", self.field.replace('.', "/")), |(_, path)| (*path).to_owned());
        let found =
            best.pointer(&path).ok_or_else(|| Unreadable::NoSuchFigure { field: self.field.clone() })?;
        // an estimate is compared by its central value; its ends have paths of their own
        let found = found.get("value").unwrap_or(found);
        let holds = match (found.as_f64(), number::read(&self.wanted)) {
            (Some(found), Some(wanted)) => self.compare.holds(found.partial_cmp(&wanted)),
            _ => match found.as_str() {
                Some(text) => self.compare.holds(Some(text.cmp(&self.wanted))),
                None => self.compare.holds(None) && !found.is_null(),
            },
        };
        let shown = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        let found = if found.is_null() {
            format!("{} is not known", self.field)
        } else {
            format!("{} is {shown}", self.field)
        };
        Ok(Outcome { text: self.text.clone(), holds, found })
    }
}

impl Compare {
    fn holds(self, order: Option<std::cmp::Ordering>) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match self {
            Self::AtLeast => matches!(order, Some(Greater | Equal)),
            Self::AtMost => matches!(order, Some(Less | Equal)),
            Self::Above => order == Some(Greater),
            Self::Below => order == Some(Less),
            Self::Equal => order == Some(Equal),
            Self::Different => order != Some(Equal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(condition: &str) -> bool {
        let layout = json!({
            "layout": {"tp": 8, "gpu": "h100-sxm5-80gb"},
            "capacity": {"kv_tokens_total": 200_000},
            "latency": {"ttft_ms": {"value": 800.5, "low": 700.0, "high": 900.0}},
            "cost": {"usd_per_hour": null},
        });
        let condition = Assertion::read(condition).expect(condition);
        condition.check(Some(&layout)).expect("a figure").holds
    }

    #[test]
    fn conditions_compare_as_written() {
        for (condition, expected) in [
            ("kv_tokens>=200000", true),
            ("kv_tokens >= 200k", true),
            ("kv_tokens>200_000", false),
            ("kv_tokens<200001", true),
            ("ttft_ms<=800", false),
            ("ttft_ms<=800.5", true),
            ("latency.ttft_ms.high<=900", true),
            ("tp==8", true),
            ("tp=8", true),
            ("tp!=8", false),
            ("layout.gpu==h100-sxm5-80gb", true),
            ("layout.gpu==a100", false),
            ("usd_per_hour<=100", false),
            ("usd_per_hour!=100", false),
        ] {
            assert_eq!(holds(condition), expected, "{condition}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        assert!(matches!(Assertion::read("kv_tokens"), Err(Unreadable::NoSign(_))));
        assert!(matches!(Assertion::read(">=3"), Err(Unreadable::NoSign(_))));
        for unreadable in ["kv_tokens>=NaN", "tp==1.5.5", "tp=>1", "kv_tokens>=1e999", "ttft_ms<=fast"] {
            assert!(matches!(Assertion::read(unreadable), Err(Unreadable::Incomparable(_))), "{unreadable}");
        }
        let unknown = Assertion::read("kv_tokns>=1").expect("a condition").check(Some(&json!({})));
        assert!(matches!(unknown, Err(Unreadable::NoSuchFigure { .. })));
    }

    #[test]
    fn nothing_that_fits_fails_every_condition() {
        assert!(!Assertion::read("tp!=8").expect("a condition").check(None).expect("an outcome").holds);
    }
}
