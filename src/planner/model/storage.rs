//! How numbers of a weight are stored: the packed elements and what belongs to them.

use smallvec::SmallVec;

use super::dtype::Dtype;
use super::ledger::round_up;

/// A storage format: elements, scales, and the tiles a kernel pads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Storage {
    /// Format of one element.
    pub element: Dtype,
    /// What is stored beside the elements.
    pub extras: SmallVec<[Extra; 3]>,
    /// Multiples that the kernel pads each part's rows, and the columns, of a rank to. `(1, 1)`: none.
    pub tile: (u64, u64),
    /// Multiple that all rows of a rank together are padded to. 1: none.
    pub row_multiple: u64,
}

/// Something stored beside the elements of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extra {
    /// One scale of `bytes` for each block of `rows` × `cols`.
    Block { rows: u64, cols: u64, bytes: u64 },
    /// As [`Extra::Block`], a grid for each part. Where the cut axis (`by_rows`: the rows of a part, else the columns) is not a
    /// multiple on a rank, the engine refines the grid to the greatest common divisor of the block, the rows of a part and the columns.
    RefinedBlock { block: u64, by_rows: bool, bytes: u64 },
    /// `bits` for each row and each group of `cols` columns (scales, zero points).
    Group { cols: u64, bits: u64 },
    /// `bytes` for each row.
    Row { bytes: u64 },
    /// `bytes` for each column of one copy.
    Column { bytes: u64 },
    /// `bytes` for each fused matrix.
    Part { bytes: u64 },
    /// `bytes` for each copy on the rank.
    Copy { bytes: u64 },
    /// `bytes` for each copy of the whole model, on every rank.
    EveryCopy { bytes: u64 },
}

impl Storage {
    /// Plain numbers without scales.
    #[must_use]
    pub fn plain(element: Dtype) -> Self {
        Self { element, extras: SmallVec::new(), tile: (1, 1), row_multiple: 1 }
    }

    /// Elements with something beside them.
    #[must_use]
    pub fn with(element: Dtype, extras: &[Extra]) -> Self {
        Self { element, extras: SmallVec::from_slice(extras), tile: (1, 1), row_multiple: 1 }
    }

    /// True when stored in fewer bits than 16.
    #[must_use]
    pub const fn is_quantised(&self) -> bool {
        self.element.bits() < 16
    }

    /// Bytes of `copies` matrices of `parts` rows × `cols` columns on one rank; `all_copies` over the whole model.
    #[must_use]
    pub fn bytes(&self, parts: &[u64], cols: u64, copies: u64, all_copies: u64) -> u64 {
        let cols = round_up(cols, self.tile.1);
        let rows = parts.iter().fold(0u64, |sum, part| sum.saturating_add(round_up(*part, self.tile.0)));
        let rows = round_up(rows, self.row_multiple);
        let elements = rows.saturating_mul(cols);
        let one = elements.saturating_mul(self.element.bits()).div_ceil(8);
        let mut beside = 0u64;
        let mut everywhere = 0u64;
        for extra in &self.extras {
            match extra {
                Extra::EveryCopy { bytes } => {
                    everywhere = everywhere.saturating_add(bytes.saturating_mul(all_copies));
                }
                extra => beside = beside.saturating_add(extra.bytes_of_one(parts, rows, cols)),
            }
        }
        one.saturating_add(beside).saturating_mul(copies).saturating_add(everywhere)
    }
}

impl Extra {
    /// Bytes beside one matrix of `rows` × `cols`, of which `parts` are the fused matrices.
    fn bytes_of_one(self, parts: &[u64], rows: u64, cols: u64) -> u64 {
        match self {
            Self::Block { rows: r, cols: c, bytes } => {
                rows.div_ceil(r.max(1)).saturating_mul(cols.div_ceil(c.max(1))).saturating_mul(bytes)
            }
            Self::RefinedBlock { block, by_rows, bytes } => {
                let part = parts.first().copied().unwrap_or(0);
                let cut = if by_rows { part } else { cols };
                let grain =
                    if cut.is_multiple_of(block.max(1)) { block } else { gcd(gcd(block, part), cols) };
                parts
                    .iter()
                    .fold(0u64, |sum, part| sum.saturating_add(part.div_ceil(grain.max(1))))
                    .saturating_mul(cols.div_ceil(grain.max(1)))
                    .saturating_mul(bytes)
            }
            Self::Group { cols: c, bits } => {
                rows.saturating_mul(cols / c.max(1)).saturating_mul(bits).div_ceil(8)
            }
            Self::Row { bytes } => rows.saturating_mul(bytes),
            Self::Column { bytes } => cols.saturating_mul(bytes),
            Self::Part { bytes } => u64::try_from(parts.len()).unwrap_or(u64::MAX).saturating_mul(bytes),
            Self::Copy { bytes } => bytes,
            Self::EveryCopy { .. } => 0,
        }
    }
}

/// Greatest common divisor; `gcd(0, n) = n`.
#[must_use]
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
