//! Number formats.

use serde::Serialize;
use utoipa::ToSchema;

/// A format of stored or computed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    Fp32,
    Fp16,
    Bf16,
    /// 8-bit float, either encoding.
    Fp8,
    Int8,
    Int4,
    /// 4-bit float, any of the packed block formats.
    Fp4,
}

impl Dtype {
    /// Size of one element in bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        match self {
            Self::Fp32 => 32,
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp8 | Self::Int8 => 8,
            Self::Int4 | Self::Fp4 => 4,
        }
    }

    /// Size of one element in whole bytes, 4-bit formats rounded up.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.bits().div_ceil(8)
    }
}

/// How keys and values are stored. The names are those of the engine's `--kv-cache-dtype` where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KvDtype {
    Fp32,
    Fp16,
    Bf16,
    /// One byte an element, scales per tensor.
    Fp8,
    /// One byte an element and one fp32 scale per token and head, for K and for V.
    Fp8PerTokenHead,
    /// As [`KvDtype::Fp8PerTokenHead`], integers.
    Int8PerTokenHead,
    /// DeepSeek sparse MLA: 512 fp8 + scales + 64 bf16 rope = 656 B a token.
    Fp8DsMla,
    /// The 352 B variant of [`KvDtype::Fp8DsMla`].
    Nvfp4DsMla,
    /// Half a byte an element and one byte of scale for each 16.
    Nvfp4,
}

impl KvDtype {
    /// The name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8PerTokenHead => "fp8_per_token_head",
            Self::Int8PerTokenHead => "int8_per_token_head",
            Self::Fp8DsMla => "fp8_ds_mla",
            Self::Nvfp4DsMla => "nvfp4_ds_mla",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// True for the formats that an fp8 cache would halve.
    #[must_use]
    pub const fn is_16_bit(self) -> bool {
        matches!(self, Self::Fp16 | Self::Bf16)
    }
}
