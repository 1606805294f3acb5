//! A fleet's own start-ups to corrections of the estimated memory, by engine, rules and GPU.
//!
//! Each start-up says what its engine took beside weights and cache: `rest = predicted rest + (predicted pool − printed pool) /
//! share − (printed weights − predicted weights)`, bytes of the tightest GPU, where `share` is the part of what is left that
//! becomes cache. Per group two corrections are tried, one that multiplies the estimate by the median of the quotients and
//! one that adds the median of the differences; each start-up is predicted from the others, and the better one is kept, if
//! it leaves at most nine tenths of the distance without it: less may be chance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::ranges::quantile;
use crate::planner::engine::MemoryCorrection;
use crate::planner::units::Bytes;
use crate::service::observations::ObservationAnswer;

/// Start-ups of a group from which a correction is learnt, at least.
pub const LEAST: usize = 4;
/// What a correction must leave of the mean distance, at most.
const WORTHWHILE: f64 = 0.9;
const GIB: f64 = 1_073_741_824.0;

/// What one start-up says.
#[derive(Debug, Clone, PartialEq)]
pub struct StartUp {
    pub engine: String,
    /// The release whose rules predicted.
    pub version: String,
    /// Catalogue key.
    pub gpu: String,
    /// Activation, runtime memory and graphs of a GPU, as the rules estimate them, bytes.
    pub estimated: f64,
    /// What they cannot be less than, bytes.
    pub floor: f64,
    /// What the engine took, bytes.
    pub took: f64,
}

impl StartUp {
    /// What a kept observation says.
    ///
    /// # Errors
    /// Why it says nothing.
    pub fn of(answer: &ObservationAnswer) -> Result<Self, &'static str> {
        let gpu = answer.gpu.clone().ok_or("nothing says what it ran on")?;
        let memory = answer.memory.as_ref().ok_or("no memory was predicted for it")?;
        if answer.settings.kv_cache_memory_bytes.is_some() {
            return Err("its cache was given outright");
        }
        let item = |name: &str| answer.items.iter().find(|item| item.name == name).map(|item| item.observed);
        let pool = match (item("kv_pool"), item("kv_tokens")) {
            (Some(gib), _) => gib * GIB,
            // tokens fill the pool evenly
            (None, Some(tokens)) if memory.kv_tokens > 0 => {
                memory.kv_bytes as f64 * (tokens / memory.kv_tokens as f64)
            }
            _ => return Err("its log prints no pool and no tokens"),
        };
        let weights = item("weights").map_or(0.0, |gib| gib * GIB - memory.weights_bytes as f64);
        let estimated = memory.estimated_bytes as f64;
        let took = estimated + (memory.kv_bytes as f64 - pool) / memory.share_of_rest - weights;
        Self {
            engine: answer.engine.clone(),
            version: memory.rules.clone(),
            gpu,
            estimated,
            floor: memory.floor_bytes as f64,
            took,
        }
        .plausible()
    }

    /// The same, unless it took less than its floor: then another GPU or other weights ran.
    ///
    /// # Errors
    /// Why it says nothing.
    pub fn plausible(self) -> Result<Self, &'static str> {
        if !(self.took.is_finite() && self.estimated > 0.0) {
            return Err("its figures are no numbers");
        }
        if self.took < self.floor {
            return Err(
                "it took less than a pass over its tokens needs: another GPU, weights or settings ran",
            );
        }
        Ok(self)
    }
}

/// One group and what was made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub engine: String,
    pub version: String,
    pub gpu: String,
    pub start_ups: usize,
    /// Mean distance between what was taken and what is predicted, bytes: as estimated, and with the correction learnt from the
    /// other start-ups of the group.
    pub before: f64,
    pub held_out: Option<f64>,
    pub correction: Option<MemoryCorrection>,
}

/// Learn corrections; groups in order, and the same start-ups in any order give the same.
#[must_use]
pub fn fit(start_ups: &[StartUp], least: usize) -> Vec<Group> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&StartUp>> = BTreeMap::new();
    for start_up in start_ups {
        groups.entry((&start_up.engine, &start_up.version, &start_up.gpu)).or_default().push(start_up);
    }
    groups
        .into_iter()
        .map(|((engine, version, gpu), members)| group((engine, version, gpu), &members, least))
        .collect()
}

/// Start-ups to a factor and added bytes.
type Learn = fn(&[&StartUp]) -> Option<(f64, f64)>;

fn group((engine, version, gpu): (&str, &str, &str), members: &[&StartUp], least: usize) -> Group {
    let before = mean(members.iter().map(|s| (s.took - s.estimated).abs()));
    let named = |factor, added_bytes| MemoryCorrection {
        engine: engine.to_owned(),
        version: version.to_owned(),
        gpu: gpu.to_owned(),
        factor,
        added_bytes,
        low_bytes: 0.0,
        high_bytes: 0.0,
        observations: members.len() as u64,
    };
    let mut group = Group {
        engine: engine.to_owned(),
        version: version.to_owned(),
        gpu: gpu.to_owned(),
        start_ups: members.len(),
        before,
        held_out: None,
        correction: None,
    };
    if members.len() < least.max(2) {
        return group;
    }
    let tried: [Learn; 2] = [added, factor];
    let judged = tried.iter().filter_map(|learn| Some((*learn, held_out(members, *learn)?)));
    let Some((learn, error)) = judged.min_by(|a, b| a.1.total_cmp(&b.1)) else { return group };
    group.held_out = Some(error);
    if error < before * WORTHWHILE
        && let Some((factor, added)) = learn(members)
    {
        let mut correction = named(factor, added);
        let mut rest: Vec<f64> = members.iter().map(|s| s.took - corrected(&correction, s)).collect();
        rest.sort_by(f64::total_cmp);
        correction.low_bytes = quantile(&rest, 0.1).unwrap_or(0.0).floor();
        correction.high_bytes = quantile(&rest, 0.9).unwrap_or(0.0).ceil();
        group.correction = Some(correction);
    }
    group
}

/// Mean distance of each start-up from what is learnt of the others.
fn held_out(members: &[&StartUp], learn: Learn) -> Option<f64> {
    let mut errors = Vec::with_capacity(members.len());
    for (i, left) in members.iter().enumerate() {
        let others: Vec<&StartUp> =
            members.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, s)| *s).collect();
        let (factor, added) = learn(&others)?;
        let predicted = factor.mul_add(left.estimated, added).max(left.floor);
        errors.push((left.took - predicted).abs());
    }
    Some(mean(errors.into_iter()))
}

/// What a correction makes of a start-up's estimate, bytes.
#[must_use]
pub fn corrected(correction: &MemoryCorrection, start_up: &StartUp) -> f64 {
    correction.corrected(Bytes::from_f64(start_up.estimated), Bytes::from_f64(start_up.floor)).as_f64()
}

fn added(members: &[&StartUp]) -> Option<(f64, f64)> {
    Some((1.0, median(members.iter().map(|s| s.took - s.estimated))?.round()))
}

fn factor(members: &[&StartUp]) -> Option<(f64, f64)> {
    let factor = median(members.iter().map(|s| s.took / s.estimated))?;
    Some((((factor * 1e4).round() / 1e4).clamp(0.0, 100.0), 0.0))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// In order of size, so that the order in which they came does not matter.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len().max(1) as f64;
    sorted.into_iter().sum::<f64>() / count
}

/// The groups for people, a line each.
#[must_use]
pub fn report(groups: &[Group], least: usize) -> Vec<String> {
    groups
        .iter()
        .map(|group| {
            let mut line = format!(
                "{} {} on {}: {} start-ups, off by {:.2} GiB",
                group.engine,
                group.version,
                group.gpu,
                group.start_ups,
                group.before / GIB
            );
            let _ = match (&group.correction, group.held_out) {
                (Some(c), Some(held)) => write!(
                    line,
                    "; corrected by {}, held out off by {:.2} GiB",
                    if c.added_bytes == 0.0 {
                        format!("× {}", c.factor)
                    } else {
                        format!("{:+.2} GiB", c.added_bytes / GIB)
                    },
                    held / GIB
                ),
                (None, Some(held)) => {
                    write!(line, "; left as it is: corrected they would be off by {:.2} GiB", held / GIB)
                }
                _ => write!(line, "; fewer than {least}, left as they are"),
            };
            line
        })
        .collect()
}
