//! A Postgres server of a test's own, from the installed binaries: a fresh cluster in a temporary folder,
//! reached over a Unix socket, so that no port can be taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Set to make a missing Postgres a failure instead of a skipped test.
const REQUIRE: &str = "SHARDWISE_TEST_REQUIRE_POSTGRES";

/// A running server; it is stopped and its folder removed when this is dropped.
pub struct TestPostgres {
    folder: TempDir,
    binaries: PathBuf,
    as_root: bool,
}

impl TestPostgres {
    /// Start a server, or say loudly why the test is skipped.
    pub fn start() -> Option<Self> {
        let Some(binaries) = installed_binaries() else {
            assert!(!required(), "{REQUIRE} is set, but no Postgres server binaries are installed");
            eprintln!(
                "SKIPPED: no Postgres server binaries (initdb) found; set {REQUIRE}=1 to make this a failure"
            );
            return None;
        };
        // a short path: a socket's name may have 107 bytes
        let folder = tempfile::Builder::new().prefix("sw-pg-").tempdir_in("/tmp").expect("temporary folder");
        let as_root = output(Command::new("id").arg("-u")).stdout.starts_with(b"0\n");
        if as_root {
            must(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let server = Self { folder, binaries, as_root };
        let data = server.data();
        must(
            server
                .tool("initdb")
                .args(["-N", "-E", "UTF8", "--locale=C", "-A", "trust", "-U", "postgres", "-D"])
                .arg(&data),
        );
        server.up();
        must(
            server.tool("createdb").args(["-U", "postgres", "-h"]).arg(server.folder.path()).arg("shardwise"),
        );
        Some(server)
    }

    /// The address of the database `shardwise` on it.
    pub fn url(&self) -> String {
        format!("postgres://postgres@localhost/shardwise?host={}", self.folder.path().display())
    }

    /// Start the server, also after [`Self::kill`].
    pub fn up(&self) {
        let options = format!("-c listen_addresses='' -k {}", self.folder.path().display());
        let log = self.folder.path().join("log");
        must(
            self.tool("pg_ctl")
                .args(["-w", "-t", "60", "-o", &options, "-l"])
                .arg(log)
                .arg("-D")
                .arg(self.data())
                .arg("start"),
        );
    }

    /// End the server at once, as a crash does: no checkpoint, connections cut.
    pub fn kill(&self) {
        must(self.tool("pg_ctl").args(["-w", "-m", "immediate", "-D"]).arg(self.data()).arg("stop"));
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A tool of Postgres, which refuses to run as root.
    fn tool(&self, name: &str) -> Command {
        let program = self.binaries.join(name);
        let mut command = if self.as_root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/tmp");
        command
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        let _ = self.tool("pg_ctl").args(["-m", "immediate", "-D"]).arg(self.data()).arg("stop").output();
    }
}

fn required() -> bool {
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not of the product")]
    std::env::var_os(REQUIRE).is_some()
}

/// The folder of the newest installed server, or the one on the path.
fn installed_binaries() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin).or_else(|| {
        let which = Command::new("sh").args(["-c", "command -v initdb"]).output().ok()?;
        let path = String::from_utf8(which.stdout).ok()?;
        Path::new(path.trim()).parent().filter(|p| p.join("initdb").exists()).map(Path::to_path_buf)
    })
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Run to success. The output goes to a file: `pg_ctl start` leaves its children the pipes.
fn must(command: &mut Command) {
    let log = tempfile::NamedTempFile::new().expect("temporary file");
    let (out, err) = (log.reopen().expect("log"), log.reopen().expect("log"));
    let status = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?} failed:\n{}", fs::read_to_string(log.path()).unwrap_or_default());
}
