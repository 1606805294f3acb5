//! The ways to store the weights of one layer.

use smallvec::SmallVec;

use crate::planner::model::dtype::Dtype;
use crate::planner::model::storage::{Extra, Storage};

/// One way to store the weights of a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 16 bits, as computed.
    Plain,
    /// 8-bit floats, one scale a block.
    Fp8Block { rows: u64, cols: u64, scale_bytes: u64 },
    /// 8-bit floats, one scale a matrix; `static_input`: one more for activations.
    Fp8Tensor { static_input: bool },
    /// 8-bit floats, one scale an output row; `input_bound`: beside each fused matrix the largest scale of activations (FBGEMM).
    Fp8Channel { static_input: bool, input_bound: bool },
    /// 8-bit integers, one scale an output row.
    Int8Channel,
    /// 4-bit floats in groups of `group` with fp8 scales, and scales for matrix and activations.
    Nvfp4 { group: u64, inputs: InputScale },
    /// 4-bit floats in groups of 32 with one-byte scales.
    Mxfp4,
    /// 8-bit floats in groups of 32 with one-byte scales.
    Mxfp8,
    /// Packed integers with 16-bit scales by group (0: one group for the row); `zero_points` packed beside them.
    PackedInt { bits: u64, group: u64, zero_points: bool, kind: Packing },
}

/// What lies beside 4-bit floats for their activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputScale {
    None,
    /// An fp32 number.
    Kept,
    /// A number that the checkpoint may hold and nothing uses: in the model's own format, for experts in fp32
    /// (`quantization/modelopt.py`, W4A16).
    Dropped,
}

/// Which tool packed integers, and so what else lies beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    CompressedTensors,
    Gptq { act_order: bool },
    Awq,
}

impl Format {
    /// For people.
    pub fn label(self) -> String {
        match self {
            Self::Plain => "16-bit".to_owned(),
            Self::Fp8Block { rows, cols, .. } => format!("fp8 block {rows}x{cols}"),
            Self::Fp8Tensor { .. } => "fp8 per tensor".to_owned(),
            Self::Fp8Channel { .. } => "fp8 per channel".to_owned(),
            Self::Int8Channel => "int8 per channel".to_owned(),
            Self::Nvfp4 { .. } => "nvfp4".to_owned(),
            Self::Mxfp4 => "mxfp4".to_owned(),
            Self::Mxfp8 => "mxfp8".to_owned(),
            Self::PackedInt { bits, group: 0, .. } => format!("int{bits} per channel"),
            Self::PackedInt { bits, group, .. } => format!("int{bits} group {group}"),
        }
    }

    /// Storage of a linear layer.
    pub fn linear(self, dtype: Dtype) -> Storage {
        match self {
            Self::Plain => Storage::plain(dtype),
            Self::Fp8Block { rows, cols, scale_bytes } => {
                Storage::with(Dtype::Fp8, &[Extra::Block { rows, cols, bytes: scale_bytes }])
            }
            Self::Fp8Tensor { static_input } => {
                Storage::with(Dtype::Fp8, &[Extra::Part { bytes: if static_input { 8 } else { 4 } }])
            }
            Self::Fp8Channel { static_input, input_bound } => Storage::with(
                Dtype::Fp8,
                &[
                    Extra::Row { bytes: 4 },
                    Extra::Part { bytes: if static_input { 4 } else { 0 } },
                    Extra::Copy { bytes: if input_bound { 4 } else { 0 } },
                ],
            ),
            Self::Int8Channel => Storage::with(Dtype::Int8, &[Extra::Row { bytes: 4 }]),
            Self::Nvfp4 { group, inputs } => {
                let input_scale = match inputs {
                    InputScale::None => 0,
                    InputScale::Kept => 4,
                    InputScale::Dropped => dtype.bytes(),
                };
                Storage::with(
                    Dtype::Fp4,
                    &[Extra::Group { cols: group, bits: 8 }, Extra::Part { bytes: 4 + input_scale }],
                )
            }
            Self::Mxfp4 => Storage::with(Dtype::Fp4, &[Extra::Group { cols: 32, bits: 8 }]),
            Self::Mxfp8 => Storage::with(Dtype::Fp8, &[Extra::Group { cols: 32, bits: 8 }]),
            Self::PackedInt { bits, group, zero_points, kind } => {
                let mut extras: SmallVec<[Extra; 3]> = SmallVec::new();
                extras.push(if group == 0 {
                    Extra::Row { bytes: 2 }
                } else {
                    Extra::Group { cols: group, bits: 16 }
                });
                if zero_points && group > 0 {
                    extras.push(Extra::Group { cols: group, bits });
                }
                match kind {
                    // weight_shape: two int64
                    Packing::CompressedTensors => extras.push(Extra::Copy { bytes: 16 }),
                    // the order of the columns: one int32 each, only where the checkpoint has one
                    Packing::Gptq { act_order: true } => extras.push(Extra::Column { bytes: 4 }),
                    Packing::Gptq { act_order: false } | Packing::Awq => {}
                }
                let element = if bits == 8 { Dtype::Int8 } else { Dtype::Int4 };
                Storage { element, extras, tile: (1, 1), row_multiple: 1 }
            }
        }
    }

    /// Storage of stacked experts: gate and up (`true`: cut by rows) or down.
    pub fn experts(self, dtype: Dtype, is_up: bool, alignment: Alignment) -> Storage {
        match self {
            Self::Fp8Block { rows, scale_bytes, .. } => Storage::with(
                Dtype::Fp8,
                &[Extra::RefinedBlock { block: rows, by_rows: is_up, bytes: scale_bytes }],
            ),
            // per expert: one scale a fused matrix; one activation scale for the pair
            Self::Fp8Tensor { static_input } => Storage::with(
                Dtype::Fp8,
                &[Extra::Part { bytes: 4 }, Extra::Copy { bytes: if static_input { 4 } else { 0 } }],
            ),
            Self::Fp8Channel { .. } => Storage::with(Dtype::Fp8, &[Extra::Row { bytes: 4 }]),
            Self::Nvfp4 { group, inputs: InputScale::Dropped } => {
                Self::Nvfp4 { group, inputs: InputScale::Kept }.linear(dtype)
            }
            Self::Mxfp4 => Storage {
                tile: if is_up {
                    (alignment.intermediate, alignment.hidden)
                } else {
                    (alignment.hidden, alignment.intermediate)
                },
                ..Self::Mxfp4.linear(dtype)
            },
            // the two sizes of the shape, in the model's own format
            Self::PackedInt { bits, group, zero_points, kind: Packing::CompressedTensors } => {
                let mut extras: SmallVec<[Extra; 3]> = SmallVec::new();
                extras.push(if group == 0 {
                    Extra::Row { bytes: 2 }
                } else {
                    Extra::Group { cols: group, bits: 16 }
                });
                extras.push(Extra::Copy { bytes: 4 });
                if zero_points && group > 0 {
                    extras.push(Extra::Group { cols: group, bits });
                }
                Storage {
                    element: if bits == 8 { Dtype::Int8 } else { Dtype::Int4 },
                    extras,
                    tile: (1, 1),
                    row_multiple: 1,
                }
            }
            // and a bias that the class registers whether the checkpoint has one or not
            Self::PackedInt { kind: Packing::Gptq { .. }, .. } => {
                let mut storage = self.linear(dtype);
                storage.extras.push(Extra::Row { bytes: dtype.bytes() });
                storage
            }
            other => other.linear(dtype),
        }
    }
}

/// Multiples that the kernel of 4-bit experts pads to (`fused_moe/oracle/mxfp4.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    pub intermediate: u64,
    pub hidden: u64,
}

impl Alignment {
    /// The Triton kernel of gpt-oss on Hopper and Blackwell.
    pub const TRITON: Self = Self { intermediate: 64, hidden: 1 };
    /// Marlin.
    pub const MARLIN: Self = Self { intermediate: 128, hidden: 256 };
}
