//! The JSON of `POST /v1/sweeps`: a plan's question with one or two things that run.

use serde_json::Value;

use super::fields::{Fields, short_text, whole_number, wrong_type};
use super::request::{PlanRequest, read_request};
use super::{FieldError, Pointer, bounds};
use crate::planner::layout::Shape;

/// Values of one axis at most.
const MAX_VALUES: usize = 200;
/// Points of all curves at most.
pub const MAX_POINTS: usize = 2_000;

/// Curves that are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRequest {
    pub plan: PlanRequest,
    pub over: AxisRequest,
    /// One curve for each of its values.
    pub by: Option<AxisRequest>,
}

/// An axis with its values; none: the usual ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisRequest {
    pub name: AxisName,
    pub values: Values,
}

/// What an axis runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisName {
    Tp,
    Pp,
    Context,
    Concurrency,
    KvCacheDtype,
    InterLink,
    IntraLink,
    Gpu,
    Layout,
}

/// Values as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    Usual,
    Numbers(Vec<u64>),
    Texts(Vec<String>),
}

/// Names of axes.
pub const AXES: &[(&str, AxisName)] = &[
    ("tp", AxisName::Tp),
    ("pp", AxisName::Pp),
    ("context", AxisName::Context),
    ("concurrency", AxisName::Concurrency),
    ("kv_cache_dtype", AxisName::KvCacheDtype),
    ("inter_link", AxisName::InterLink),
    ("intra_link", AxisName::IntraLink),
    ("gpu", AxisName::Gpu),
    ("layout", AxisName::Layout),
];

impl SweepRequest {
    /// Read a request.
    ///
    /// # Errors
    /// All faults, in the order of the fields.
    pub fn read(value: &Value) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let request = Fields::of(value, Pointer::root(), &mut faults).and_then(|mut fields| {
            let request = read_sweep(&mut fields);
            fields.finish();
            request
        });
        match request {
            Some(request) if faults.is_empty() => Ok(request),
            _ => Err(faults),
        }
    }
}

fn read_sweep(fields: &mut Fields<'_, '_>) -> Option<SweepRequest> {
    let plan = read_request(fields);
    fields.required("over");
    let over = read_axis(fields, "over");
    let by = read_axis(fields, "by");
    if let (Some(over), Some(by)) = (&over, &by) {
        if over.name == by.name {
            fields.refuse("by", "conflict", "`by` runs over another thing than `over`");
        }
        let sizes = |name| matches!(name, AxisName::Tp | AxisName::Pp);
        if [over.name, by.name].contains(&AxisName::Layout) && (sizes(over.name) || sizes(by.name)) {
            fields.refuse("by", "conflict", "a layout has its own `tp` and `pp`");
        }
        let points = over.values.len().saturating_mul(by.values.len());
        if points > MAX_POINTS {
            fields.refuse("by", "out_of_range", format!("at most {MAX_POINTS} points in all, got {points}"));
        }
    }
    Some(SweepRequest { plan: plan?, over: over?, by })
}

/// `"tp"`, or `{"axis": "tp", "values": [1, 2, 4]}`.
fn read_axis(fields: &mut Fields<'_, '_>, field: &'static str) -> Option<AxisRequest> {
    match fields.raw(field)? {
        Value::String(_) => {
            fields.choice(field, AXES).map(|name| AxisRequest { name, values: Values::Usual })
        }
        Value::Object(_) => {
            let mut axis = fields.object(field)?;
            axis.required("axis");
            let name = axis.choice("axis", AXES);
            let values = name.and_then(|name| read_values(&mut axis, name));
            axis.finish();
            Some(AxisRequest { name: name?, values: values? })
        }
        other => {
            let fault = wrong_type(
                &fields.place_of(field),
                other,
                "the name of an axis, or an object with `axis` and `values`",
            );
            fields.push(fault);
            None
        }
    }
}

fn read_values(axis: &mut Fields<'_, '_>, name: AxisName) -> Option<Values> {
    let Some(value) = axis.raw("values") else { return Some(Values::Usual) };
    let place = axis.place_of("values");
    let Value::Array(items) = value else {
        axis.push(wrong_type(&place, value, "an array of values"));
        return None;
    };
    if items.is_empty() || items.len() > MAX_VALUES {
        let detail = format!("expected 1 to {MAX_VALUES} values, got {}", items.len());
        axis.push(FieldError::at(&place, "out_of_range", detail));
        return None;
    }
    let mut numbers = Vec::new();
    let mut texts = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let place = place.index(i);
        let read = match name.range() {
            Some(range) => whole_number(item, &place, &range).map(|n| numbers.push(n)),
            None => short_text(item, &place, bounds::NAME_CHARS).map(|t| texts.push(t.trim().to_owned())),
        };
        if let Err(fault) = read {
            axis.push(fault);
        }
    }
    let all = numbers.len() + texts.len() == items.len();
    all.then(|| if name.range().is_some() { Values::Numbers(numbers) } else { Values::Texts(texts) })
}

impl AxisName {
    /// What its numbers may be; `None` for an axis of names.
    fn range(self) -> Option<std::ops::RangeInclusive<u64>> {
        match self {
            Self::Tp | Self::Pp => Some(bounds::PARALLEL),
            Self::Context => Some(bounds::TOKENS),
            Self::Concurrency => Some(bounds::CONCURRENCY),
            Self::KvCacheDtype | Self::InterLink | Self::IntraLink | Self::Gpu | Self::Layout => None,
        }
    }
}

impl Values {
    /// How many there are, the usual ones counted as a handful.
    fn len(&self) -> usize {
        match self {
            Self::Usual => 16,
            Self::Numbers(list) => list.len(),
            Self::Texts(list) => list.len(),
        }
    }
}

/// A layout as people and answers write it: "tp=8 pp=2", "TP=8 × PP=2 × DP=1", "TP8,PP2". Sizes that are not named
/// are 1; replicas that are not named: as many as there is room for. `None` where it is no layout.
#[must_use]
pub fn layout(text: &str) -> Option<(Shape, Option<u64>)> {
    let text =
        text.to_lowercase().replace("attention dp", "attention_dp").replace("attention-dp", "attention_dp");
    let mut sizes =
        [("tp", None), ("pp", None), ("dp", None), ("ep", None), ("attention_dp", None), ("dcp", None)];
    for part in
        text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '×' | ';')).filter(|p| !p.is_empty())
    {
        let digits = part.find(|c: char| c.is_ascii_digit())?;
        let (name, size) = part.split_at_checked(digits)?;
        let size = size.parse().ok().filter(|size| bounds::PARALLEL.contains(size))?;
        let (_, slot) = sizes.iter_mut().find(|(known, _)| *known == name.trim_end_matches('='))?;
        if slot.replace(size).is_some() {
            return None;
        }
    }
    let [(_, tp), (_, pp), (_, dp), (_, ep), (_, attention_dp), (_, dcp)] = sizes;
    let one = |size: Option<u64>| size.unwrap_or(1);
    let shape = Shape { tp: tp?, pp: one(pp), ep: one(ep), attention_dp: one(attention_dp), dcp: one(dcp) };
    Some((shape, dp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(over: &Value, by: &Value) -> Result<SweepRequest, Vec<(String, &'static str)>> {
        SweepRequest::read(&json!({"model": "m", "cluster": "16 H100", "over": over, "by": by}))
            .map_err(|faults| faults.into_iter().map(|f| (f.pointer, f.code)).collect())
    }

    #[test]
    fn axes_are_read_short_and_long() {
        let request = read(&json!("tp"), &Value::Null).expect("valid");
        assert_eq!(request.over, AxisRequest { name: AxisName::Tp, values: Values::Usual });
        let request = read(
            &json!({"axis": "context", "values": [1024, 4096]}),
            &json!({"axis": "gpu", "values": ["H100", "H200"]}),
        )
        .expect("valid");
        assert_eq!(request.over.values, Values::Numbers(vec![1024, 4096]));
        let texts = ["H100", "H200"].map(str::to_owned).to_vec();
        assert_eq!(request.by.map(|by| by.values), Some(Values::Texts(texts)));
    }

    #[test]
    fn faulty_axes_are_told() {
        let many: Vec<u64> = (1..=150).collect();
        for (over, by, expected) in [
            (Value::Null, Value::Null, ("#/over", "missing")),
            (json!("tpp"), Value::Null, ("#/over", "not_allowed")),
            (json!(3), Value::Null, ("#/over", "wrong_type")),
            (json!({"axis": "tp", "values": []}), Value::Null, ("#/over/values", "out_of_range")),
            (json!({"axis": "tp", "values": [0]}), Value::Null, ("#/over/values/0", "out_of_range")),
            (json!({"axis": "gpu", "values": [1]}), Value::Null, ("#/over/values/0", "wrong_type")),
            (json!({"axis": "tp", "vals": [1]}), Value::Null, ("#/over/vals", "unknown_field")),
            (json!("tp"), json!("tp"), ("#/by", "conflict")),
            (json!("pp"), json!("layout"), ("#/by", "conflict")),
            (
                json!({"axis": "tp", "values": &many}),
                json!({"axis": "pp", "values": &many}),
                ("#/by", "out_of_range"),
            ),
        ] {
            let found = read(&over, &by).expect_err("faulty");
            assert_eq!(found, [(expected.0.to_owned(), expected.1)], "{over} {by}");
        }
    }

    #[test]
    fn layouts_are_read_as_they_are_written() {
        let shape = |tp, pp, attention_dp, dcp| Shape { tp, pp, ep: 1, attention_dp, dcp };
        for (text, expected) in [
            ("tp=8 pp=2", Some((shape(8, 2, 1, 1), None))),
            ("TP=8 × PP=2 × DP=3", Some((shape(8, 2, 1, 1), Some(3)))),
            ("TP=2 × attention DP=4 × DCP=2", Some((shape(2, 1, 4, 2), None))),
            ("TP16", Some((shape(16, 1, 1, 1), None))),
            ("", None),
            ("pp=2", None),
            ("tp=0", None),
            ("tp=8 tp=4", None),
            ("tp=8 zp=4", None),
            ("tp=99999999999999999999", None),
        ] {
            assert_eq!(layout(text), expected, "{text}");
        }
    }
}
