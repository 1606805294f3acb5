//! The tensor ledger.

/// One weight tensor (or a stack of equal ones, e.g. all experts).
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
}
