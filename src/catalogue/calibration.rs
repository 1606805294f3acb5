//! The fitted constants of the latency model, and corrections of memory: those in the binary, or a caller's own file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::planner::engine::MemoryCorrection;
pub use crate::planner::latency::calibrated::Calibration;
use crate::planner::latency::calibrated::collective::{Algorithm, Algorithms};
use crate::planner::latency::calibrated::parameters::{PRIORS, Values};
use crate::planner::latency::calibrated::range::Ranges;

/// `data/calibration/latency.json`, and what `shardwise calibrate` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationFile {
    /// Names the fit.
    pub version: String,
    /// Where its measurements come from.
    pub source: String,
    /// How near it comes, in words; nothing computes with it.
    #[serde(default)]
    pub fit: Vec<String>,
    pub constants: Vec<Constant>,
    pub collectives: Algorithms,
    pub ranges: Ranges,
    /// Corrections of estimated memory, learnt from a fleet's own start-ups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryCorrection>,
}

/// One fitted constant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    pub name: String,
    pub value: f64,
    #[serde(default)]
    pub unit: String,
    /// What it was taken to be before the fit.
    #[serde(default)]
    pub prior: f64,
    #[serde(default)]
    pub meaning: String,
}

/// A calibration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    #[error("not a calibration file: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{name} is {value}: not a constant of this model, or not a positive number")]
    Constant { name: String, value: f64 },
    #[error("the memory correction for {0} has a figure that cannot be used, or stands there twice")]
    Memory(String),
    #[error("a calibration is already in use: it is chosen once, at start")]
    InUse,
    #[error("a collective of {0:?} has a negative or missing figure")]
    Collective(crate::planner::latency::calibrated::collective::WireKind),
    #[error("the calibration file {path} cannot be read: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the calibration file {path} cannot be used: {source}")]
    Unusable { path: PathBuf, source: Box<CalibrationError> },
}

/// The longest calibration file that is read.
const MOST_BYTES: u64 = 16 << 20;

const EMBEDDED: &str = include_str!("../../data/calibration/latency.json");

static IN_USE: OnceLock<InUse> = OnceLock::new();

/// What answers rest on.
struct InUse {
    latency: Arc<Calibration>,
    memory: Arc<[MemoryCorrection]>,
}

impl InUse {
    fn of(text: &str) -> Result<Self, CalibrationError> {
        let file: CalibrationFile = serde_json::from_str(text)?;
        let memory = checked(&file.memory)?;
        Ok(Self { latency: Arc::new(of_file(file)?), memory })
    }
}

fn in_use() -> &'static InUse {
    IN_USE.get_or_init(|| {
        InUse::of(EMBEDDED).unwrap_or_else(|_| InUse { latency: Arc::new(priors()), memory: [].into() })
    })
}

/// The calibration in use: the caller's where one was installed, else the one in the binary, read once.
/// The embedded file is checked by a test; a broken one would leave the priors.
#[must_use]
pub fn calibration() -> Arc<Calibration> {
    Arc::clone(&in_use().latency)
}

/// The corrections of memory in use; none in the binary's own calibration.
#[must_use]
pub fn memory_corrections() -> Arc<[MemoryCorrection]> {
    Arc::clone(&in_use().memory)
}

fn checked(memory: &[MemoryCorrection]) -> Result<Arc<[MemoryCorrection]>, CalibrationError> {
    for (i, correction) in memory.iter().enumerate() {
        let same = |other: &&MemoryCorrection| {
            (&other.engine, &other.version, &other.gpu)
                == (&correction.engine, &correction.version, &correction.gpu)
        };
        if !correction.is_usable() || memory.iter().take(i).any(|other| same(&other)) {
            let name = format!("{} {} on {}", correction.engine, correction.version, correction.gpu);
            return Err(CalibrationError::Memory(name));
        }
    }
    Ok(memory.into())
}

/// Use a caller's own calibration from now on: called once, at start, before any answer.
///
/// # Errors
/// When the text is no calibration, or another is already in use.
pub fn install(text: &str) -> Result<(), CalibrationError> {
    IN_USE.set(InUse::of(text)?).map_err(|_| CalibrationError::InUse)
}

/// Use the calibration of a file from now on, as [`install`].
///
/// # Errors
/// Those of [`install`], with the path.
pub fn install_file(path: &Path) -> Result<(), CalibrationError> {
    install(&text_of(path)?)
        .map_err(|source| CalibrationError::Unusable { path: path.to_owned(), source: Box::new(source) })
}

/// The calibration of a file.
///
/// # Errors
/// When it cannot be read, or used; both with the path.
pub fn read_file(path: &Path) -> Result<Calibration, CalibrationError> {
    read(&text_of(path)?)
        .map_err(|source| CalibrationError::Unusable { path: path.to_owned(), source: Box::new(source) })
}

fn text_of(path: &Path) -> Result<String, CalibrationError> {
    let unreadable = |source| CalibrationError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let mut file = File::open(path).map_err(unreadable)?.take(MOST_BYTES + 1);
    file.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MOST_BYTES {
        let fault = io::Error::other(format!("it has more than {MOST_BYTES} bytes"));
        return Err(CalibrationError::Unreadable { path: path.to_owned(), source: fault });
    }
    Ok(text)
}

/// A calibration from the text of a file. Constants that it leaves out keep their priors.
///
/// # Errors
/// When the text is no calibration, or a figure in it cannot be used.
pub fn read(text: &str) -> Result<Calibration, CalibrationError> {
    of_file(serde_json::from_str(text)?)
}

fn of_file(file: CalibrationFile) -> Result<Calibration, CalibrationError> {
    let mut values = Values::priors();
    for constant in &file.constants {
        if !values.set(&constant.name, constant.value) {
            return Err(CalibrationError::Constant { name: constant.name.clone(), value: constant.value });
        }
    }
    let positive = |x: f64| x.is_finite() && x > 0.0;
    let usable = |a: &Algorithm| {
        positive(a.share)
            && a.loss.is_finite()
            && [a.fixed_us, a.hop_us].iter().all(|us| (0.0..1e9).contains(us))
    };
    if let Some(bad) = file.collectives.0.iter().find(|a| !usable(a)) {
        return Err(CalibrationError::Collective(bad.wire));
    }
    Ok(Calibration {
        version: file.version,
        source: file.source,
        values,
        algorithms: file.collectives,
        ranges: file.ranges,
    })
}

/// A calibration as a file, with what each constant is.
#[must_use]
pub fn write(calibration: &Calibration, fit: Vec<String>) -> CalibrationFile {
    let constants = calibration
        .values
        .iter()
        .zip(PRIORS)
        .map(|((prior, value), _)| Constant {
            name: prior.name.to_owned(),
            value,
            unit: prior.unit.to_owned(),
            prior: prior.value,
            meaning: prior.meaning.to_owned(),
        })
        .collect();
    CalibrationFile {
        version: calibration.version.clone(),
        source: calibration.source.clone(),
        fit,
        constants,
        collectives: calibration.algorithms.clone(),
        ranges: calibration.ranges.clone(),
        memory: Vec::new(),
    }
}

/// Nothing fitted.
#[must_use]
pub fn priors() -> Calibration {
    Calibration {
        version: "priors".to_owned(),
        source: String::new(),
        values: Values::priors(),
        algorithms: Algorithms::default(),
        ranges: Ranges::unlearnt(),
    }
}
