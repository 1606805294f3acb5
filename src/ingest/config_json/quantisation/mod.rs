//! How a checkpoint stores its weights: the quantisation block of a config.json, or of a side file, as a rule from module name to storage.

mod classes;
mod format;
mod quantiser;
mod read;

pub use classes::Listed;
pub use format::Format;
pub use quantiser::{AS_IF, Quantiser, Under, as_if};
pub use read::{Declared, read};
