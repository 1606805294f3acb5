//! The server on its SQLite file is killed with SIGKILL under load and started again, several times:
//! everything that it acknowledged is there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// Times that the server is killed.
const KILLS: u64 = 4;

/// A server process; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(file: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_shardwise"))
            .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--database-url"])
            .arg(format!("sqlite:{}", file.display()))
            .args(["--set", "log.format=json", "--set", "server.drain_ms=0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(process.stderr.take().expect("a log")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .find_map(|line| line["api"].as_str().map(str::to_owned))
            .expect("the server says where it listens");
        // a full pipe would stop the server
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// End it at once, as a crash or the kernel would.
    fn kill(&mut self) {
        self.process.kill().expect("kills");
        self.process.wait().expect("ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn config(layers: u64) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
    })
}

fn client() -> reqwest::Client {
    // the client is built for TLS, though nothing here uses it; a second call changes nothing
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

async fn ready(client: &reqwest::Client, server: &Server) {
    let asked = async {
        while !client.get(server.url("/readyz")).send().await.is_ok_and(|r| r.status() == 200) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asked).await.expect("the server becomes ready");
}

/// Plan and store until the connection breaks; what was acknowledged.
async fn load(client: reqwest::Client, base: String, round: u64) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        let (path, layers) = (format!("/v1/models/round{round}/m{n}"), 1 + n % 60);
        let Ok(put) = client.put(format!("{base}{path}")).json(&config(layers)).send().await else { break };
        assert_eq!(put.status(), 201, "{path}");
        acknowledged.push((path, layers));
        let question = json!({"model": format!("round{round}/m{n}"), "cluster": "8 H100", "limit": 1});
        let Ok(plan) = client.post(format!("{base}/v1/plans")).json(&question).send().await else { break };
        assert_eq!(plan.status(), 200, "a plan failed");
        let location = plan.headers()["content-location"].to_str().expect("a path").to_owned();
        let Ok(kept) = client.get(format!("{base}{location}")).send().await else { break };
        assert_eq!(kept.status(), 200, "a plan that was just made");
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_survives_a_server_that_is_killed() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("s.sqlite");
    let client = client();
    let mut acknowledged = Vec::new();
    for round in 0..KILLS {
        let mut server = Server::start(&file);
        ready(&client, &server).await;
        let asking = tokio::spawn(load(client.clone(), server.url(""), round));
        // a different moment each time
        tokio::time::sleep(Duration::from_millis(600 + 137 * round)).await;
        server.kill();
        acknowledged.extend(asking.await.expect("no answer was wrong"));
    }
    assert!(acknowledged.len() > 20, "too few writes: {}", acknowledged.len());
    let server = Server::start(&file);
    ready(&client, &server).await;
    for (path, layers) in acknowledged {
        let reply = client.get(server.url(&path)).send().await.expect("answers");
        assert_eq!(reply.status(), 200, "{path} was acknowledged and is gone");
        let model: Value = reply.json().await.expect("JSON");
        assert_eq!(model["facts"]["layers"], layers, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_outlives_a_server_that_is_told_to_stop() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("s.sqlite");
    let client = client();
    let mut server = Server::start(&file);
    ready(&client, &server).await;
    let question =
        json!({"model": {"config": config(32), "name": "acme/m"}, "cluster": "8 H100", "limit": 1});
    let made = client.post(server.url("/v1/plans")).json(&question).send().await.expect("answers");
    let location = made.headers()["content-location"].to_str().expect("a path").to_owned();
    let made = made.text().await.expect("a body");
    // SIGTERM: what waits is written before the end
    let told = Command::new("kill").arg(server.process.id().to_string()).status().expect("kill runs");
    assert!(told.success());
    let ended = server.process.wait().expect("ends");
    assert!(ended.success(), "{ended}");
    let next = Server::start(&file);
    ready(&client, &next).await;
    let kept = client.get(next.url(&location)).send().await.expect("answers");
    assert_eq!(kept.status(), 200);
    assert_eq!(kept.text().await.expect("a body"), made);
}
