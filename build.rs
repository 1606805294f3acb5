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
        let body = data.join("configs").join(config);
        let side = text("side").map(|file| data.join("hf_quant").join(file));
        let short_body = archive.add_short(&body)?;
        let short_side = side.as_deref().map(|side| archive.add_short(side)).transpose()?.flatten();
        let body = archive.add(&body)?;
        let side = side.as_deref().map(|side| archive.add(side)).transpose()?;
        let aliases: Vec<&str> = model["aliases"]
            .as_array()
            .map(|a| a.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let overrides = model.get("overrides").map(Value::to_string);
        writeln!(
            table,
            "CatalogueModel {{ id: {:?}, aliases: &{:?}, family: {:?}, architecture: {:?}, parameters: {}, active_parameters: {}, \
             context_length: {}, quantization: {:?}, released: {:?}, licence: {:?}, gated: {}, base: {:?}, same_shape_as: {:?}, \
             checkpoint_bytes: {:?}, source: {:?}, overrides: {:?}, body: {:?}, side: {:?}, short_body: {:?}, short_side: {:?} }},",
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
            short_body,
            short_side,
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
    places: BTreeMap<PathBuf, Place>,
    short: BTreeMap<PathBuf, Option<Place>>,
}

/// Offset and length in the archive.
type Place = (usize, usize);

/// Files below this size are read as they are.
const LONG_FILE: usize = 128 << 10;

impl Archive {
    /// Where the file lies in the archive.
    fn add(&mut self, file: &Path) -> Result<Place, Box<dyn error::Error>> {
        if let Some(place) = self.places.get(file) {
            return Ok(*place);
        }
        let place = self.pack(&read(file)?)?;
        self.places.insert(file.to_owned(), place);
        Ok(place)
    }

    /// Where a long file lies without what the reader would look at in vain; `None` for all others.
    fn add_short(&mut self, file: &Path) -> Result<Option<Place>, Box<dyn error::Error>> {
        if let Some(place) = self.short.get(file) {
            return Ok(*place);
        }
        let text = read(file)?;
        let mut place = None;
        if text.len() > LONG_FILE {
            let mut config: Value = serde_json::from_slice(&text)?;
            drop_repeated_experts(&mut config);
            place = Some(self.pack(config.to_string().as_bytes())?);
        }
        self.short.insert(file.to_owned(), place);
        Ok(place)
    }

    fn pack(&mut self, text: &[u8]) -> Result<Place, Box<dyn error::Error>> {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text)?;
        let packed = encoder.finish()?;
        let place = (self.bytes.len(), packed.len());
        self.bytes.extend_from_slice(&packed);
        Ok(place)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Box<dyn error::Error>> {
    Ok(fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?)
}

/// Leave out the formats of single experts where expert 0 of the same layer has the same: the reader asks for that one.
fn drop_repeated_experts(value: &mut Value) {
    let Value::Object(object) = value else { return };
    for (key, inner) in object.iter_mut() {
        match inner {
            Value::Object(layers) if key == "quantized_layers" => {
                let first = |name: &str| {
                    let (before, rest) = name.split_once(".experts.")?;
                    let (number, after) = rest.split_once('.')?;
                    (number != "0").then(|| format!("{before}.experts.0.{after}"))
                };
                let repeated: Vec<String> = layers
                    .iter()
                    .filter(|(name, format)| first(name).is_some_and(|f| layers.get(&f) == Some(format)))
                    .map(|(name, _)| name.clone())
                    .collect();
                let repeated: std::collections::BTreeSet<String> = repeated.into_iter().collect();
                layers.retain(|name, _| !repeated.contains(name));
            }
            inner => drop_repeated_experts(inner),
        }
    }
}
