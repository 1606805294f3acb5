//! Quantities with their units in the type. Arithmetic saturates instead of wrapping,
//! so a hostile number can make an answer "too large" but never wrong or a panic.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

macro_rules! count {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);

            /// The bare number, in the unit of the type.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The number as a float, for ratios and times.
            #[must_use]
            #[expect(clippy::cast_precision_loss, reason = "ratios and times are estimates")]
            pub fn as_f64(self) -> f64 {
                self.0 as f64
            }

            /// `self - other`, or zero when `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The part that one of `n` equal shares holds, rounded up; `n = 0` counts as 1.
            #[must_use]
            pub const fn share(self, n: u64) -> Self {
                Self(self.0.div_ceil(if n == 0 { 1 } else { n }))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                self.saturating_sub(other)
            }
        }

        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, factor: u64) -> Self {
                Self(self.0.saturating_mul(factor))
            }
        }

        impl Div<u64> for $name {
            type Output = Self;
            fn div(self, divisor: u64) -> Self {
                Self(self.0.checked_div(divisor).unwrap_or(0))
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{} ", $unit), grouped(self.0))
            }
        }
    };
}

count!(
    /// Bytes of memory or on a link.
    Bytes,
    "B"
);
count!(
    /// Tokens of a sequence, or of cache.
    Tokens,
    "tokens"
);

impl Bytes {
    /// Whole gibibytes (2^30 bytes), rounded down to the byte; negative and NaN count as zero.
    #[must_use]
    pub fn from_gib(gib: f64) -> Self {
        Self::from_f64(gib * 1_073_741_824.0)
    }

    /// A float of bytes rounded down; negative and NaN count as zero, too large saturates.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, which is the documented behaviour"
    )]
    pub fn from_f64(bytes: f64) -> Self {
        Self(bytes as u64)
    }

    /// Gibibytes (2^30 bytes).
    #[must_use]
    pub fn gib(self) -> f64 {
        self.as_f64() / 1_073_741_824.0
    }
}

/// 1234567 as "1,234,567": how engines print token counts.
#[must_use]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_996_143, "1,996,143")] {
            assert_eq!(grouped(n), text);
        }
    }

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
        assert_eq!(Bytes(1) - Bytes(2), Bytes::ZERO);
        assert_eq!(Bytes(7) / 0, Bytes::ZERO);
        assert_eq!(Bytes::from_f64(f64::NAN), Bytes::ZERO);
    }
}
