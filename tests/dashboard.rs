//! The page as it is served: its files, what a browser may keep of them, and what they may load.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use api::{Api, Reply};
use axum::body::Body;
use axum::http::Request;
use shardwise::dashboard::{BUILD, CHART_LIBRARY, FILES};

/// Lines of a module or a style sheet, at most.
const MAX_LINES: usize = 450;

async fn fetch(api: &Api, path: &str, headers: &[(&str, &str)]) -> Reply {
    let request =
        headers.iter().fold(Request::builder().uri(path), |r, (name, value)| r.header(*name, *value));
    api.send(request.body(Body::empty()).expect("a request")).await
}

fn address(name: &str) -> String {
    if name == CHART_LIBRARY { format!("/assets/{name}") } else { format!("/assets/{BUILD}/{name}") }
}

/// Our own files as they are in the repository: path in `assets/` and text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard/assets");
    let mut open: Vec<PathBuf> = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(&root).expect("below").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("text")));
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn the_page_lets_nothing_in_from_outside() {
    let api = Api::start().await;
    let page = fetch(&api, "/", &[]).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(page.header("cache-control"), "no-cache");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let policy = page.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self';",
        "connect-src 'self';",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(!policy.contains("http"), "{policy}");
    let text = page.text();
    assert!(
        !text.contains("<style") && !text.contains("style=") && !text.contains(" on"),
        "styles or scripts in the page"
    );
    for tag in text.split("<script").skip(1) {
        assert!(tag.contains("src=\"") && tag.contains("></script>"), "a script in the page: {tag}");
    }
    assert!(
        text.contains("<noscript>") && text.contains("id=\"not-started\""),
        "words for when no script runs"
    );
}

#[tokio::test]
async fn every_address_in_the_page_exists() {
    let api = Api::start().await;
    let text = fetch(&api, "/", &[]).await.text();
    let named: BTreeSet<&str> = text.split('"').filter(|word| word.starts_with('/')).collect();
    assert!(named.len() > 8, "{named:?}");
    for path in named {
        assert_eq!(fetch(&api, path, &[]).await.status, 200, "{path}");
    }
    assert!(!text.contains('{'), "a placeholder was left");
}

#[tokio::test]
async fn every_file_is_served_packed_and_kept_for_ever() {
    let api = Api::start().await;
    for file in FILES.iter().filter(|f| f.name != "index.html") {
        let path = address(file.name);
        let plain = fetch(&api, &path, &[("accept-encoding", "identity")]).await;
        assert_eq!((plain.status.as_u16(), plain.header("content-encoding")), (200, ""), "{path}");
        assert_eq!(plain.header("content-type"), file.kind);
        assert_eq!(plain.header("cache-control"), "public, max-age=31536000, immutable", "{path}");
        assert!(plain.header("vary").contains("accept-encoding"), "{path}");
        let tag = plain.header("etag").to_owned();
        assert_eq!(tag, format!("\"{}\"", file.hash));
        let zipped = fetch(&api, &path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(zipped.header("content-encoding"), "gzip");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(zipped.body.as_slice()).read_to_end(&mut unpacked).expect("gzip");
        assert!(unpacked == plain.body, "{path}: unpacked it is the same");
        let packed = fetch(&api, &path, &[("accept-encoding", "gzip, deflate, br")]).await;
        assert_eq!(
            (packed.header("content-encoding"), packed.body.len()),
            ("br", file.brotli.len()),
            "{path}"
        );
        let again = fetch(&api, &path, &[("if-none-match", tag.as_str())]).await;
        assert_eq!((again.status.as_u16(), again.body.len()), (304, 0), "{path}");
    }
}

#[tokio::test]
async fn the_page_of_another_version_gets_files_but_does_not_keep_them() {
    let api = Api::start().await;
    let other = fetch(&api, "/assets/0123456789abcdef/app.js", &[]).await;
    assert_eq!((other.status.as_u16(), other.header("cache-control")), (200, "no-cache"));
    for nowhere in
        ["/assets/app.js", "/assets/x/none.js", "/assets/x/index.html", "/assets/x/../app.js", "/assets/"]
    {
        let none = fetch(&api, nowhere, &[]).await;
        assert_eq!(
            (none.status.as_u16(), none.header("content-type")),
            (404, "application/problem+json"),
            "{nowhere}"
        );
    }
}

#[tokio::test]
async fn the_chart_library_is_small_enough_to_send() {
    let api = Api::start().await;
    let script = fetch(&api, &address(CHART_LIBRARY), &[("accept-encoding", "br")]).await;
    assert!((500_000..1_500_000).contains(&script.body.len()), "{} bytes", script.body.len());
    let plain = fetch(&api, &address(CHART_LIBRARY), &[]).await.text();
    assert!(plain.contains("plotly.js v") && plain.contains("Licensed under the MIT license"));
}

#[test]
fn the_packed_files_are_those_of_the_repository() {
    let packed: BTreeSet<&str> = FILES.iter().map(|f| f.name).filter(|name| *name != CHART_LIBRARY).collect();
    let written = sources();
    assert_eq!(packed, written.iter().map(|(name, _)| name.as_str()).collect());
    for (name, text) in written.iter().filter(|(name, _)| name != "index.html") {
        let file = shardwise::dashboard::file(name).expect("packed");
        assert!(file.plain().expect("unpacked") == text.as_bytes(), "{name}");
    }
}

#[test]
fn no_file_names_another_host() {
    for (name, text) in sources() {
        for word in [
            "http://",
            "https://",
            "@import",
            "url(//",
            "eval(",
            "new Function",
            "innerHTML",
            "insertAdjacentHTML",
        ] {
            // the name of a vocabulary is not an address that is asked
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn modules_import_what_exists_and_say_what_they_are() {
    let written = sources();
    for (name, text) in
        written.iter().filter(|(name, _)| Path::new(name).extension().is_some_and(|e| e == "js"))
    {
        assert!(text.starts_with("/**"), "{name}: say what it is for, first");
        let folder = Path::new(name).parent().expect("a folder");
        for import in text
            .lines()
            .filter_map(|l| l.split_once(" from \""))
            .map(|(_, rest)| rest.trim_end_matches("\";"))
        {
            let path = folder.join(import.trim_start_matches("./"));
            let path = path.to_str().expect("text").replace("screens/../", "");
            assert!(written.iter().any(|(known, _)| *known == path), "{name}: {import}");
        }
    }
}

#[test]
fn files_are_short() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{name}: {lines} lines; split by idea");
    }
}
