use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Origin, Place, Settings, Sources};

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn the_defaults_are_valid_and_documented() {
    let sources = Sources::defaults().expect("defaults");
    let settings = Settings::read(&sources).expect("valid");
    assert_eq!(settings.server.listen.port(), 8080);
    // every setting stands under a comment of its own
    let mut before = "";
    for line in super::DEFAULTS.lines().filter(|l| !l.is_empty()) {
        assert!(
            !line.contains(" = ") || line.starts_with('#') || before.starts_with('#'),
            "{line} has no comment"
        );
        before = line;
    }
}

#[test]
fn the_later_source_wins_and_is_remembered() {
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), "[server]\ndrain_ms = 1\nmax_in_flight = 1\n[log]\nlevel = \"warn\"")
        .expect("writes");
    let sources = Sources::defaults()
        .expect("defaults")
        .file(file.path())
        .and_then(|s| {
            s.variables(&variables(&[
                ("SHARDWISE_SERVER_MAX_IN_FLIGHT", "2"),
                ("SHARDWISE_SERVER_METRICS_LISTEN", ""),
                ("SHARDWISE_SERVICE_HOST", "10.0.0.1"),
                ("DATABASE_URL", "postgres://u:hunter2@h/d"),
                ("SLACK_SIGNING_SECRET", "hunter2,hunter2b"),
                ("SLACK_BOT_TOKEN", "xoxb-hunter2"),
            ]))
        })
        .and_then(|s| s.flag("--set", "server.max_in_flight", "3"))
        .expect("lays");
    let settings = Settings::read(&sources).expect("valid");
    assert_eq!((settings.server.drain_ms, settings.server.max_in_flight), (1, 3));
    assert_eq!(settings.server.metrics_listen, None);
    assert_eq!(settings.log.level, "warn");
    assert_eq!(sources.origin("server.drain_ms"), Origin::File(file.path().to_path_buf()));
    assert_eq!(sources.origin("server.max_in_flight"), Origin::Flag("--set".to_owned()));
    assert_eq!(sources.origin("database.url"), Origin::Variable("DATABASE_URL".to_owned()));
    assert_eq!(sources.unknown_variables, ["SHARDWISE_SERVICE_HOST"]);
    let shown = format!("{settings:?} {:?}", sources.shown().collect::<Vec<_>>());
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn faults_name_their_source() {
    let of = |pairs: &[(&str, &str)]| {
        Sources::defaults()
            .expect("defaults")
            .variables(&variables(pairs))
            .and_then(|s| Settings::read(&s))
            .expect_err("faulty")
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    for (name, text, told) in [
        ("SHARDWISE_SERVER_DRAIN_MS", "soon", "takes an integer, got \"soon\""),
        ("SHARDWISE_SERVER_LISTEN", "here", "server.listen: invalid socket address"),
        ("SHARDWISE_SERVER_MAX_IN_FLIGHT", "0", "outside what is allowed: 1 to 1000000"),
        ("SHARDWISE_SERVER_DRAIN_MS", "-5", "server.drain_ms"),
        ("SHARDWISE_LOG_FORMAT", "xml", "unknown variant"),
        ("DATABASE_URL", "mysql://u:secret@h/d", "postgres://"),
    ] {
        let message = of(&[(name, text)]);
        assert!(message.contains(told) && message.contains(name), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
    let unknown =
        Sources::defaults().expect("defaults").flag("--set", "server.port", "1").expect_err("unknown");
    assert_eq!(unknown[0].to_string(), "flag --set: there is no setting `server.port`");
}

#[test]
fn the_database_is_where_the_settings_say() {
    let place = |url: &str, path: &str, home: Option<&str>| {
        let sources = Sources::defaults()
            .expect("defaults")
            .flag("--database-url", "database.url", url)
            .and_then(|s| s.flag("--set", "database.path", path))
            .expect("lays");
        Settings::read(&sources).expect("valid").database.place(home.map(Path::new)).expect("a place")
    };
    assert_eq!(place("postgres://h/d", "x", None), Place::Postgres("postgres://h/d".into()));
    assert_eq!(place("sqlite:/a/b", "x", None), Place::Sqlite(PathBuf::from("/a/b")));
    assert_eq!(place("sqlite:///a/b", "x", None), Place::Sqlite(PathBuf::from("/a/b")));
    assert_eq!(place("", "x", Some("/home")), Place::Sqlite(PathBuf::from("x")));
    assert_eq!(
        place("", "", Some("/home")),
        Place::Sqlite(PathBuf::from("/home/shardwise/shardwise.sqlite"))
    );
    assert_eq!(place("", "", None), Place::Sqlite(PathBuf::from("shardwise.sqlite")));
}

#[test]
fn secrets_come_from_files_too() {
    let of = |pairs: &[(&str, &str)]| {
        let sources = Sources::defaults().expect("defaults").variables(&variables(pairs)).expect("lays");
        Settings::read(&sources).map(|settings| settings.slack)
    };
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), " one \ntwo\n").expect("writes");
    let path = file.path().to_str().expect("a path");
    let slack =
        of(&[("SLACK_SIGNING_SECRET_FILE", path), ("SHARDWISE_SLACK_BOT_TOKEN_FILE", path)]).expect("valid");
    assert_eq!(slack.signing_secrets().expect("reads"), ["one".into(), "two".into()]);
    let own = of(&[("SLACK_SIGNING_SECRET_FILE", path), ("SLACK_SIGNING_SECRET", "a, b")]).expect("valid");
    assert_eq!(own.signing_secrets().expect("reads"), ["a".into(), "b".into()]);
    let none = of(&[("SLACK_SIGNING_SECRET_FILE", "/no/such/file")]).expect("valid");
    assert!(none.signing_secrets().expect_err("no file").contains("slack.signing_secret_file"));
    assert_eq!(of(&[]).expect("valid").signing_secrets(), Ok(Vec::new()));
    for (origin, allowed) in [
        ("http://127.0.0.1:9000", true),
        ("http://[::1]:9000", true),
        ("http://127.0.0.1", true),
        ("https://127.0.0.1:9000", false),
        ("http://10.0.0.1:9000", false),
        ("http://127.0.0.1:9000/x", false),
        ("http://127.0.0.1@evil.example", false),
        ("http://localhost.evil.example:80", false),
    ] {
        assert_eq!(of(&[("SHARDWISE_SLACK_TEST_ORIGIN", origin)]).is_ok(), allowed, "{origin}");
    }
    assert!(of(&[("SHARDWISE_SLACK_DASHBOARD_URL", "javascript:alert(1)")]).is_err());
    assert!(of(&[("SHARDWISE_SLACK_DASHBOARD_URL", "https://plan.example/base/")]).is_ok());
}
