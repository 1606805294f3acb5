//! The page served at `/`: its files, packed into the binary while building (`build/page.rs`).
//!
//! The page is a face: it holds no figure of its own. Its modules ask the public API with `fetch` and draw the answer;
//! how a screen is made stands at the top of `assets/app.js`. `http::page` gives the files out.

use std::io::{self, Read};

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its path in `assets/`, or the name of the chart library's script.
    pub name: &'static str,
    /// A hash of its content.
    pub hash: &'static str,
    /// Its media type.
    pub kind: &'static str,
    pub gzip: &'static [u8],
    pub brotli: &'static [u8],
}

impl File {
    /// The file itself, for callers that take no packed one.
    ///
    /// # Errors
    /// Never for a file of [`FILES`]: they were packed by the build.
    pub fn plain(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(self.gzip).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The file of this name.
#[must_use]
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}
