//! Packs what the binary carries: the catalogue's model configurations (one archive of deflated bodies, and a table of
//! what the index says of each) and the files of the page.

#[path = "build/page.rs"]
mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, error, fs};

use serde_json::Value;

#[expect(
    clippy::disallowed_methods,
    reason = "cargo hands a build script its directories in the environment"
)]
fn main() -> Result<(), Box<dyn error::Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let data = root.join("data/models");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", data.display());
    page::pack(&root.join("src/dashboard/assets"), &out)?;
    let index: Vec<Value> = serde_json::from_slice(&fs::read(data.join("index.json"))?)?;
    let mut archive = Archive::default();
    let mut table = String::from("&[\n");
    for model in &index {
        let text = |key: &str| model[key].as_str();
        let config = text("config").ok_or("a model without a config file")?;
        let body = archive.add(&data.join("configs").join(config))?;
        let side = match text("side") {
            Some(file) => Some(archive.add(&data.join("hf_quant").join(file))?),
            None => None,
        };
        let aliases: Vec<&str> = model["aliases"]
            .as_array()
            .map(|a| a.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let overrides = model.get("overrides").map(Value::to_string);
        writeln!(
            table,
            "CatalogueModel {{ id: {:?}, aliases: &{:?}, family: {:?}, architecture: {:?}, parameters: {}, active_parameters: {}, \
             context_length: {}, quantization: {:?}, released: {:?}, licence: {:?}, gated: {}, base: {:?}, same_shape_as: {:?}, \
             checkpoint_bytes: {:?}, source: {:?}, overrides: {:?}, body: {:?}, side: {:?} }},",
            text("id").ok_or("a model without an id")?,
            aliases,
            text("family").unwrap_or(""),
            text("architecture").unwrap_or(""),
            model["parameters"].as_u64().unwrap_or(0),
            model["active_parameters"].as_u64().unwrap_or(0),
            model["context_length"].as_u64().unwrap_or(0),
            text("quantization").unwrap_or(""),
            text("released"),
            text("licence"),
            model["gated"].as_bool().unwrap_or(false),
            text("base"),
            text("same_shape_as"),
            model["checkpoint_bytes"].as_u64(),
            text("source").unwrap_or(""),
            overrides,
            body,
            side,
        )?;
    }
    table.push(']');
    fs::write(out.join("models.bin"), &archive.bytes)?;
    fs::write(out.join("models.rs"), table)?;
    Ok(())
}

/// Deflated files, one after another; equal files once.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    places: BTreeMap<PathBuf, (usize, usize)>,
}

impl Archive {
    /// Where the file lies in the archive: offset and length.
    fn add(&mut self, file: &Path) -> Result<(usize, usize), Box<dyn error::Error>> {
        if let Some(place) = self.places.get(file) {
            return Ok(*place);
        }
        let text = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&text)?;
        let packed = encoder.finish()?;
        let place = (self.bytes.len(), packed.len());
        self.bytes.extend_from_slice(&packed);
        self.places.insert(file.to_owned(), place);
        Ok(place)
    }
}
