//! The commands that the documents show must be commands of this program.

use std::fs;
use std::path::Path;

/// Words of a shell line: quotes kept together, a comment and a pipe end it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            ('#' | '|' | '>', None) if word.is_empty() => break,
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (c, _) => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The lines of the shell blocks of a document, continued lines joined.
fn shell_lines(document: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in document.replace("\\\n", " ").lines() {
        if line.starts_with("```") {
            inside = line.trim_start_matches('`').starts_with("sh");
        } else if inside {
            lines.push(line.to_owned());
        }
    }
    lines
}

#[test]
fn documented_commands_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for name in ["README.md", "ARCHITECTURE.md", "docs/PERFORMANCE.md"] {
        let text = fs::read_to_string(root.join(name)).unwrap_or_default();
        for line in shell_lines(&text) {
            let line = line.replace("cargo run --release --", "shardwise");
            if line.trim_start().starts_with("script/") {
                let file = words(&line).remove(0);
                assert!(root.join(&file).is_file(), "{name}: there is no {file}");
            }
            if !line.starts_with("shardwise ") {
                continue;
            }
            seen += 1;
            if let Err(fault) = shardwise::cli::command().try_get_matches_from(words(&line)) {
                panic!("{name}: `{line}`: {fault}");
            }
        }
    }
    assert!(seen >= 3, "the documents show only {seen} commands");
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(words("plan --cluster \"16 H100s\"   # why"), ["plan", "--cluster", "16 H100s"]);
    assert_eq!(words("a 'b>=1' | jq"), ["a", "b>=1"]);
}
