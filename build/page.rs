//! Packs the files of the page: each with gzip and brotli, named by a hash of its content.
//!
//! Our own files share one hash, which is a folder of their addresses: modules import each other by relative names, so
//! the hash of one changes the address of all. The chart library's script changes seldom and has its own.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

/// Characters of a hash in an address.
const HASH_CHARS: usize = 16;

/// Write the packed files and `page.rs`, the table of them, to `out`.
pub fn pack(assets: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", assets.display());
    println!("cargo::rerun-if-changed=build/page.rs");
    let mut files = Vec::new();
    for path in files_under(assets)? {
        let name = path.strip_prefix(assets)?.to_str().ok_or("a file name that is not text")?.to_owned();
        files.push((name, fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?));
    }
    let script = chart_library()?;
    let chart = format!("plotly-{}.js", hash_of([script.as_bytes()]));
    let build = hash_of(files.iter().flat_map(|(name, body)| [name.as_bytes(), body.as_slice()]));
    let mut table =
        format!("pub const BUILD: &str = {build:?};\npub const CHART_LIBRARY: &str = {chart:?};\n");
    table.push_str("pub const FILES: &[File] = &[\n");
    for (name, body) in &files {
        let mut body = body.clone();
        if name == "index.html" {
            let text = String::from_utf8(body)?;
            body = text.replace("{build}", &build).replace("{chart_library}", &chart).into_bytes();
        }
        add(&mut table, out, name, &body)?;
    }
    add(&mut table, out, &chart, script.as_bytes())?;
    table.push_str("];\n");
    fs::write(out.join("page.rs"), table)?;
    Ok(())
}

/// plotly.js as the `plotly` crate carries it.
fn chart_library() -> Result<String, Box<dyn Error>> {
    let tags = plotly::Plot::offline_js_sources();
    let scripts = tags.split("<script type=\"text/javascript\">").skip(1);
    let mut bodies = scripts.filter_map(|s| s.rsplit_once("</script>").map(|(body, _)| body));
    let found = bodies.find(|body| body.get(..200).is_some_and(|head| head.contains("plotly.js v")));
    Ok(found.ok_or("the plotly crate no longer carries plotly.js as it did")?.to_owned())
}

/// Pack one file and write its line of the table.
fn add(table: &mut String, out: &Path, name: &str, body: &[u8]) -> Result<(), Box<dyn Error>> {
    let hash = hash_of([body]);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(body)?;
    fs::write(out.join(format!("page-{hash}.gz")), gzip.finish()?)?;
    // level 9 packs the chart library in seconds; 11 takes ten times as long for a tenth less
    let how = brotli::enc::BrotliEncoderParams { quality: 9, lgwin: 22, ..Default::default() };
    let mut packed = Vec::new();
    brotli::BrotliCompress(&mut &body[..], &mut packed, &how)?;
    fs::write(out.join(format!("page-{hash}.br")), packed)?;
    let kind = kind_of(name).ok_or_else(|| format!("{name}: what kind of file is this?"))?;
    writeln!(
        table,
        "File {{ name: {name:?}, hash: {hash:?}, kind: {kind:?}, gzip: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/page-{hash}.gz\")), \
         brotli: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/page-{hash}.br\")) }},"
    )?;
    Ok(())
}

fn kind_of(name: &str) -> Option<&'static str> {
    Some(match Path::new(name).extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

fn hash_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hex::encode(hasher.finalize()).chars().take(HASH_CHARS).collect()
}

/// Every file under `folder`, in order.
fn files_under(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_under(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
