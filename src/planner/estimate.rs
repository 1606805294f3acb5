//! Values that say how far they can be trusted.

use serde::Serialize;
use utoipa::ToSchema;

/// Where an estimate comes from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Read off a real machine of this kind.
    Measured,
    /// A physical model whose constants were fitted to measurements of this kind of system.
    Calibrated,
    /// The same model outside what was measured.
    Extrapolated,
    /// A plain formula on assumed constants; nothing was measured.
    Assumed,
}

/// An estimated figure with the interval that it is expected to lie in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Estimate {
    /// The central figure, in the unit of the field that holds it.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// What the figure rests on.
    pub basis: Basis,
}

impl Estimate {
    /// A figure with an interval of factors around it, e.g. `0.8..1.3`.
    #[must_use]
    pub fn within(value: f64, low_factor: f64, high_factor: f64, basis: Basis) -> Self {
        Self { value, low: value * low_factor, high: value * high_factor, basis }
    }

    /// The same estimate in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
            basis: self.basis,
        }
    }
}

/// A constant that an answer rests on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Assumption {
    /// The name by which `assumptions` in a request overrides it.
    pub name: String,
    /// The value used: a number, or a text where the assumption is a choice.
    pub value: AssumptionValue,
    /// The unit, empty for a pure number or a choice.
    pub unit: String,
    /// Where the value comes from.
    pub source: String,
    /// True when the caller gave it.
    pub given: bool,
}

/// The value of an [`Assumption`].
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AssumptionValue {
    /// A quantity in the unit of the assumption.
    Number(f64),
    /// A choice that was made for the caller.
    Text(String),
}
