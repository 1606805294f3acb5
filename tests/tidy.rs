//! The rules of the house as tests: they read the repository itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file without its tests, at most.
const MAX_LINES: usize = 450;

/// Files that are longer still, with the length they must not exceed. A file that got short leaves the list.
const STILL_LONG: &[(&str, usize)] = &[
    ("src/ingest/config_json/families/moe.rs", 590),
    ("src/ingest/config_json/families/vision.rs", 495),
    ("src/ingest/config_json/quantisation.rs", 630),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file under `folder`, in order; folders that are not the project's own work are passed over.
fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                let made =
                    ["target", ".git", "node_modules", ".venv", "artifacts", ".hypothesis", ".schemathesis"];
                if !made.contains(&name.as_str()) {
                    open.push(path);
                }
            } else if name != ".git" {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn rust_files(folder: &str) -> Vec<PathBuf> {
    files_under(&root().join(folder))
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        .collect()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The lines of a source file that are compiled into the product: no tests, no comments.
/// Tests stand at the end of a file or in a file called `tests.rs`.
fn product_lines(path: &Path) -> Vec<(usize, String)> {
    if path.file_stem().is_some_and(|s| s == "tests") || path.components().any(|c| c.as_os_str() == "tests") {
        return Vec::new();
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default().to_owned()))
        .collect()
}

/// Every place in the product code of `folder` where one of `words` stands.
fn places_of(folder: &str, words: &[&str]) -> String {
    let mut out = String::new();
    for path in rust_files(folder) {
        for (n, line) in product_lines(&path) {
            for word in words.iter().filter(|w| line.contains(**w)) {
                let _ = writeln!(out, "{}:{n}: `{word}` in `{}`", shown(&path), line.trim());
            }
        }
    }
    out
}

#[test]
fn the_planner_is_pure() {
    let found = places_of(
        "src/planner",
        &[
            "std::fs",
            "std::net",
            "std::env",
            "std::thread",
            "std::process",
            "std::io",
            "Instant",
            "SystemTime",
            "tokio",
            "async fn",
            "rand::",
            "OnceLock",
            "LazyLock",
            "OnceCell",
            "thread_local",
            "static mut",
            "Mutex",
            "RwLock",
            "Atomic",
            "RefCell",
            "println!",
            "eprintln!",
            "tracing::",
        ],
    );
    assert!(found.is_empty(), "the planner does IO, reads a clock, or keeps a global:\n{found}");
}

#[test]
fn the_planner_cannot_panic_by_design() {
    let found = places_of(
        "src/planner",
        &[
            ".unwrap()",
            ".expect(",
            "panic!",
            "todo!",
            "unimplemented!",
            "unreachable!",
            "assert!(",
            "assert_eq!(",
        ],
    );
    let found: Vec<&str> = found.lines().filter(|l| !l.contains("debug_assert")).collect();
    assert!(found.is_empty(), "the planner can panic:\n{}", found.join("\n"));
}

/// What each room of the crate may import of ours, besides itself.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("planner", &[]),
    ("config", &[]),
    ("telemetry", &["config"]),
    ("ingest", &["planner", "catalogue"]),
    ("catalogue", &["planner", "ingest"]),
    ("launch", &["planner"]),
    ("hub", &["planner", "ingest", "config"]),
    ("store", &["planner", "ingest", "config"]),
    ("service", &["planner", "ingest", "catalogue", "launch", "hub", "store", "config", "telemetry"]),
    ("dashboard", &["service", "planner", "ingest", "catalogue", "config", "telemetry"]),
    ("slack", &["service", "planner", "ingest", "catalogue", "config", "telemetry"]),
    ("http", &["service", "planner", "ingest", "catalogue", "config", "telemetry", "slack", "dashboard"]),
    (
        "cli",
        &[
            "service",
            "planner",
            "ingest",
            "catalogue",
            "launch",
            "hub",
            "store",
            "http",
            "slack",
            "config",
            "telemetry",
        ],
    ),
];

/// The rooms that a line of code names by `crate::room` or `shardwise::room`, also in a braced list.
fn rooms_named(line: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for piece in line.split("crate::").skip(1) {
        if let Some(list) = piece.strip_prefix('{') {
            let inside = list.split('}').next().unwrap_or_default();
            rooms.extend(inside.split(',').map(|r| first_word(r.trim())));
        } else {
            rooms.push(first_word(piece));
        }
    }
    rooms.retain(|r| !r.is_empty());
    rooms
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn imports_point_one_way() {
    let rooms: BTreeSet<&str> = MAY_IMPORT.iter().map(|(room, _)| *room).collect();
    let mut faults = String::new();
    for (room, allowed) in MAY_IMPORT {
        for path in rust_files(&format!("src/{room}")) {
            for (n, line) in product_lines(&path) {
                for named in rooms_named(&line) {
                    let ours = rooms.contains(named.as_str());
                    if ours && named != *room && !allowed.contains(&named.as_str()) {
                        let _ = writeln!(faults, "{}:{n}: {room} may not import {named}", shown(&path));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "imports point the wrong way:\n{faults}");
}

#[test]
fn every_room_is_in_the_import_table() {
    let known: BTreeSet<&str> = MAY_IMPORT.iter().map(|(room, _)| *room).collect();
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("src/lib.rs");
    for room in lib.lines().filter_map(|l| l.strip_prefix("pub mod ")).map(|l| l.trim_end_matches(';')) {
        assert!(known.contains(room), "say in MAY_IMPORT what `{room}` may import");
    }
}

#[test]
fn files_are_short() {
    let mut long = String::new();
    for path in rust_files("src").into_iter().chain(rust_files("tests")).chain(rust_files("benches")) {
        let lines = if path.starts_with(root().join("src")) {
            product_lines(&path).len()
        } else {
            fs::read_to_string(&path).unwrap_or_default().lines().count()
        };
        let name = shown(&path);
        let listed = STILL_LONG.iter().find(|(file, _)| *file == name).map(|(_, most)| *most);
        if lines > listed.unwrap_or(MAX_LINES) {
            let _ = writeln!(long, "{name}: {lines} lines");
        } else if listed.is_some() && lines <= MAX_LINES {
            let _ = writeln!(long, "{name}: {lines} lines now, take it off STILL_LONG");
        }
    }
    assert!(long.is_empty(), "more than {MAX_LINES} lines without tests; split by idea:\n{long}");
}

#[test]
fn migrations_come_in_pairs() {
    let numbers = |dialect: &str| -> BTreeSet<String> {
        files_under(&root().join("migrations").join(dialect))
            .iter()
            .filter_map(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
            .filter(|n| Path::new(n).extension().is_some_and(|e| e.eq_ignore_ascii_case("sql")))
            .collect()
    };
    assert_eq!(
        numbers("postgres"),
        numbers("sqlite"),
        "each migration has a file of the same name in both dialects"
    );
}

#[test]
fn no_file_names_what_does_not_belong_here() {
    // put together here, so that this file does not hold them
    let words = [
        ["/work", "/"].concat(),
        ["../", "shared/"].concat(),
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["crates", ".io"].concat(),
        ["pypi", ".org"].concat(),
        ["registry.npm", "js.org"].concat(),
    ];
    let mut faults = String::new();
    for path in files_under(&root()) {
        let name = shown(&path);
        let generated = name == "Cargo.lock" || name.starts_with("data/") || name.starts_with("tests/data/");
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (i, line) in text.lines().enumerate() {
            for word in words.iter().filter(|w| line.contains(w.as_str())) {
                // lock files and copied configurations are not our words; paths of a machine are nobody's
                if !generated || word.starts_with("/work") {
                    let _ = writeln!(faults, "{name}:{}: `{word}`", i + 1);
                }
            }
        }
    }
    assert!(faults.is_empty(), "words that do not belong in the repository:\n{faults}");
}

#[test]
fn every_data_file_has_a_source() {
    let data = root().join("data");
    let mut faults = String::new();
    for path in files_under(&data) {
        let name = shown(&path);
        if path.extension().is_some_and(|e| e == "md") {
            continue;
        }
        let own = fs::read_to_string(&path).is_ok_and(|text| text.contains("source"));
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let beside_or_above = || path.ancestors().skip(1).take_while(|dir| dir.starts_with(&data));
        let told = beside_or_above()
            .filter_map(|dir| fs::read_to_string(dir.join("README.md")).ok())
            .any(|text| text.contains("ource"));
        // an index has a line for each file, with its source
        let indexed = beside_or_above()
            .filter_map(|dir| fs::read_to_string(dir.join("index.json")).ok())
            .any(|text| text.lines().any(|line| line.contains(&file) && line.contains("\"source\"")));
        let told = told || indexed;
        if !own && !told {
            let _ = writeln!(
                faults,
                "{name}: neither the file nor a README.md beside or above it names its source"
            );
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn rooms_are_read_from_imports() {
    assert_eq!(rooms_named("use crate::{ingest::fault, planner};"), ["ingest", "planner"]);
    assert_eq!(rooms_named("pub(crate) use crate::store::Store;"), ["store"]);
    assert_eq!(rooms_named("let x = 1;"), Vec::<String>::new());
}
