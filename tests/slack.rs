//! The Slack face from outside: signed requests as Slack's documentation shows them, messages that Slack would take.

#[path = "support/api.rs"]
#[expect(dead_code, reason = "shared by several tests")]
mod api;
#[path = "support/block_kit.rs"]
mod block_kit;
#[path = "support/slack.rs"]
mod slack;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use block_kit::{buttons, faults, lines};
use serde_json::{Value, json};
use slack::{Bot, NOW, SECRET, command, signature};

const BUDGET: Duration = Duration::from_millis(2500);

/// A mention in the form of Slack's documentation.
fn mention(event_id: &str, text: &str) -> String {
    json!({
        "token": "ZZZZZZWSxiZZZ2yIvs3peJ", "team_id": "T0001", "api_app_id": "A0MDYCDME", "type": "event_callback",
        "event": {
            "type": "app_mention", "user": "U061F7AUR", "text": text, "ts": "1515449522.000016",
            "channel": "C123ABC456", "event_ts": "1515449522000016",
        },
        "event_id": event_id, "event_time": 1_515_449_522_000_016_u64,
        "authorizations": [{"enterprise_id": "E12345", "team_id": "T12345", "user_id": "U12345", "is_bot": false}],
        "authed_users": ["U0LAN0Z89"],
    })
    .to_string()
}

/// A pressed button in the form of Slack's documentation.
fn press(button: &Value, response_url: &str) -> String {
    let payload = json!({
        "type": "block_actions",
        "team": {"id": "T0001", "domain": "example"},
        "user": {"id": "UA8RXUSPL", "username": "jtorrance", "name": "jtorrance", "team_id": "T0001"},
        "api_app_id": "AABA1ABCD", "token": "9s8d9as89d8as9d8as989",
        "container": {"type": "message", "message_ts": "1548261231.000200", "channel_id": "CBR2V3XEX", "is_ephemeral": true},
        "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
        "channel": {"id": "CBR2V3XEX", "name": "review-updates"},
        "response_url": response_url,
        "actions": [{"action_id": button["action_id"], "block_id": "=qXel", "text": button["text"],
                     "value": button["value"], "type": "button", "action_ts": "1548426417.840180"}],
    });
    form_urlencoded::Serializer::new(String::new()).append_pair("payload", &payload.to_string()).finish()
}

#[tokio::test]
async fn without_a_secret_there_is_no_slack() {
    let api = api::Api::start().await;
    for path in ["/slack/commands", "/slack/events", "/slack/interactions"] {
        let reply = api.call("POST", path, None).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND);
        assert!(reply.json()["detail"].as_str().expect("a text").contains("slack.signing_secret"));
    }
}

#[tokio::test]
async fn only_requests_that_slack_signed_are_taken() {
    let bot = Bot::start(BUDGET).await;
    let body = bot.command("help");
    let at = NOW.to_string();
    let good = signature(SECRET, NOW, &body);
    let flipped = good.replace('a', "b");
    let stale = (NOW - 301).to_string();
    let ahead = (NOW + 301).to_string();
    for (what, time, tag, sent) in [
        ("no headers", "", "", body.as_str()),
        ("no signature", at.as_str(), "", body.as_str()),
        ("no timestamp", "", good.as_str(), body.as_str()),
        ("another signature", at.as_str(), flipped.as_str(), body.as_str()),
        ("another secret", at.as_str(), &signature("other", NOW, &body), body.as_str()),
        ("another body", at.as_str(), good.as_str(), &body.replace("help", "kelp")),
        ("another time", &(NOW + 1).to_string(), good.as_str(), body.as_str()),
        ("too old", stale.as_str(), &signature(SECRET, NOW - 301, &body), body.as_str()),
        ("ahead of time", ahead.as_str(), &signature(SECRET, NOW + 301, &body), body.as_str()),
        ("another scheme", at.as_str(), &good.replace("v0=", "v1="), body.as_str()),
    ] {
        for path in ["/slack/commands", "/slack/events", "/slack/interactions"] {
            let reply = bot.send_signed(path, sent, time, tag, &[]).await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{what} at {path}");
            assert_eq!(reply.json()["code"], "signature_refused", "{what}");
        }
    }
    assert_eq!(bot.send_signed("/slack/commands", &body, &at, &good, &[]).await.status, StatusCode::OK);
    let again = bot.send_signed("/slack/commands", &body, &at, &good, &[]).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED, "a replay within the window");
    assert!(again.text().contains("came before"));
    bot.now.store(NOW + 301, Ordering::Relaxed);
    let late = bot.send_signed("/slack/commands", &body, &at, &good, &[]).await;
    assert_eq!(late.status, StatusCode::UNAUTHORIZED, "a replay after the window");
    assert!(bot.posts.lock().expect("posts").is_empty());
}

#[tokio::test]
async fn an_answer_to_another_host_is_refused() {
    let bot = Bot::start(BUDGET).await;
    for url in [
        "https://evil.example/commands/T0001/2/abc",
        "http://169.254.169.254/latest/meta-data",
        "https://hooks.slack.com.evil.example/x",
        "http://hooks.slack.com/x",
        "http://127.0.0.1:1/x",
        "",
    ] {
        let reply = bot.send("/slack/commands", &command("help", url)).await;
        assert_eq!(reply.status, StatusCode::UNPROCESSABLE_ENTITY, "{url}");
        let button =
            json!({"action_id": "kv_fp8", "text": {"type": "plain_text", "text": "x"}, "value": "{}"});
        let reply = bot.send("/slack/interactions", &press(&button, url)).await;
        assert_eq!(reply.status, StatusCode::UNPROCESSABLE_ENTITY, "{url}");
    }
    assert!(bot.posts.lock().expect("posts").is_empty());
}

#[tokio::test]
async fn bodies_are_bounded_and_hostile_ones_are_problems() {
    let bot = Bot::start(BUDGET).await;
    let large = bot.command(&"x".repeat(300_000));
    assert_eq!(bot.send("/slack/commands", &large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    for (path, body, status) in [
        ("/slack/events", "{", 400),
        ("/slack/events", "[]", 400),
        ("/slack/events", r#"{"type": 7}"#, 400),
        ("/slack/events", r#"{"type": "event_callback"}"#, 200),
        ("/slack/interactions", "payload=%7B", 400),
        ("/slack/interactions", "x=1", 400),
        ("/slack/interactions", "payload=%7B%22type%22%3A%22view_submission%22%7D", 200),
        ("/slack/commands", "%ff%fe", 422),
        ("/slack/commands", "ssl_check=1&token=x", 200),
    ] {
        assert_eq!(bot.send(path, body).await.status.as_u16(), status, "{path} {body}");
    }
    let nested =
        format!(r#"{{"type": "event_callback", "event": {}1{}}}"#, "[".repeat(9000), "]".repeat(9000));
    assert_eq!(bot.send("/slack/events", &nested).await.status.as_u16(), 400);
    for text in
        ["\u{0}\u{1b}[31m", &"<!channel> ".repeat(200), "<@U1> &lt;!here&gt; <https://evil.example|8 H100>"]
    {
        let message = bot.ask(text).await;
        assert_eq!(faults(&message), [""; 0], "{text}: {message}");
    }
}

#[tokio::test]
async fn an_address_is_verified_by_its_challenge() {
    let bot = Bot::start(BUDGET).await;
    let body = json!({
        "token": "Jhj5dZrVaK7ZwHHjRyZWjbDl", "type": "url_verification",
        "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
    });
    let reply = bot.send("/slack/events", &body.to_string()).await;
    assert_eq!(reply.text(), "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
    assert!(reply.header("content-type").starts_with("text/plain"));
}

#[tokio::test]
async fn a_mention_is_answered_once_in_its_thread() {
    let bot = Bot::start(BUDGET).await;
    let body = mention("Ev0PV52K25", "<@U0LAN0Z89> llama 3.1 70b on 16 H100 at 32k");
    assert_eq!(bot.send("/slack/events", &body).await.status, StatusCode::OK);
    let (path, headers, posted) = bot.posted(1).await.remove(0);
    assert_eq!(path, "/api/chat.postMessage");
    assert_eq!(headers["authorization"], "Bearer xoxb-secret");
    assert_eq!(
        (&posted["channel"], &posted["thread_ts"]),
        (&json!("C123ABC456"), &json!("1515449522.000016"))
    );
    assert!(posted["text"].as_str().expect("a text").starts_with("*Fits:*"), "{posted}");
    // Slack signs a repeated event anew, and says which attempt it is
    let at = bot.now.load(Ordering::Relaxed) + 60;
    let tag = signature(SECRET, at, &body);
    let retry = [("x-slack-retry-num", "1"), ("x-slack-retry-reason", "http_timeout")];
    for _ in 0..2 {
        let reply = bot.send_signed("/slack/events", &body, &at.to_string(), &tag, &retry).await;
        assert_eq!(reply.status, StatusCode::OK);
    }
    // one that never arrived before is answered, whatever its number
    let other = mention("Ev0PV52K26", "help");
    let tag = signature(SECRET, at, &other);
    bot.send_signed("/slack/events", &other, &at.to_string(), &tag, &retry).await;
    assert_eq!(bot.posted(2).await.len(), 2);
    // bots, ours among them, are not answered
    let bots = other
        .replace("Ev0PV52K26", "Ev0PV52K27")
        .replace("\"type\":\"app_mention\"", "\"type\":\"app_mention\",\"bot_id\":\"B1\"");
    assert_eq!(bot.send("/slack/events", &bots).await.status, StatusCode::OK);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bot.posts.lock().expect("posts").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_plan_answers_in_time_and_follows_later() {
    let bot = Bot::start(Duration::from_millis(100)).await;
    bot.delay.store(900, Ordering::Relaxed);
    bot.says.lock().expect("says").extend([503]);
    let started = Instant::now();
    let ack = bot.ask("llama 3.1 70b on 16 H100 at 32k share").await;
    assert!(started.elapsed() < Duration::from_millis(700), "{:?}", started.elapsed());
    assert_eq!(ack["response_type"], "ephemeral");
    assert!(lines(&ack)[0].contains("follows"), "{ack}");
    // the first attempt met a Slack that was away
    let posts = bot.posted(2).await;
    assert_eq!(posts[1].0, "/commands/T0001/2/abc");
    assert_eq!(posts[1].2["response_type"], "in_channel");
    assert!(lines(&posts[1].2)[0].starts_with("*Fits:*"), "{}", posts[1].2);
    assert!(posts[1].1.get("authorization").is_none(), "the token is for the Web API alone");
    assert_eq!(faults(&posts[1].2), [""; 0]);
}

#[tokio::test]
async fn buttons_ask_the_same_with_one_change() {
    let bot = Bot::start(BUDGET).await;
    let message = bot.ask("llama 3.1 70b on 16 H100 at 32k").await;
    let url = format!("{}/actions/T0001/2/abc", bot.origin);
    let all = buttons(&message);
    let labels: Vec<&str> = all.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["fp8 KV cache", "64k context", "Next layouts", "Open in the dashboard"]);
    for (i, (label, button)) in all.iter().enumerate() {
        let reply = bot.send("/slack/interactions", &press(button, &url)).await;
        assert_eq!((reply.status, reply.body.len()), (StatusCode::OK, 0), "{label}");
        if label == "Open in the dashboard" {
            continue;
        }
        let posted = bot.posted(i + 1).await[i].2.clone();
        assert_eq!(faults(&posted), [""; 0], "{label}");
        assert_eq!(
            (&posted["response_type"], &posted["replace_original"]),
            (&json!("ephemeral"), &json!(false))
        );
        insta::assert_snapshot!(format!("press of {label}"), drawn(&posted));
    }
    // values come from outside too
    for value in [
        "",
        "{}",
        "[]",
        r#"{"kind": "evil", "request": {}}"#,
        r#"{"kind": "plan", "request": 7, "from": -1}"#,
    ] {
        let count = bot.posts.lock().expect("posts").len();
        let button =
            json!({"action_id": "next", "text": {"type": "plain_text", "text": "x"}, "value": value});
        assert_eq!(bot.send("/slack/interactions", &press(&button, &url)).await.status, StatusCode::OK);
        let posted = bot.posted(count + 1).await[count].2.clone();
        assert_eq!(faults(&posted), [""; 0], "{value}");
    }
}

#[tokio::test]
async fn a_workspace_has_its_usual_gpus() {
    let bot = Bot::start(BUDGET).await;
    let first = async |text: &str| lines(&bot.ask(text).await)[0].clone();
    assert!(first("default").await.contains("No GPUs are set"));
    assert!(first("what fits at 32k").await.starts_with("*Not understood:*"));
    assert!(first("default 17 flying carpets").await.contains("cannot answer"));
    assert_eq!(
        first("default 16 H100s").await,
        "From now on 2 nodes x 8 h100-sxm5-80gb are meant where no GPUs are named."
    );
    assert!(first("default").await.contains("16 H100s"));
    let fits = first("llama 3.1 70b at 32k").await;
    assert!(
        fits.contains("_Assumed: 16 H100s, the usual cluster here, max_model_len of 32k, as the context._"),
        "{fits}"
    );
    // another workspace has others
    let other = bot.command("default").replace("T0001", "T0002");
    assert!(lines(&bot.send("/slack/commands", &other).await.json())[0].contains("No GPUs are set"));
    // a saved cluster may be named
    assert!(first("default saved:prod").await.contains("cannot answer"));
    bot.api.call("PUT", "/v1/clusters/prod", Some(&json!({"cluster": "8 H200"}))).await;
    assert!(first("default saved:prod").await.contains("8 h200-sxm-141gb"));
    assert!(first("qwen3 32b at 32k").await.contains("on 8 H200. _Assumed: saved:prod"));
    assert!(first("default none").await.contains("Forgotten"));
    assert!(first("default").await.contains("No GPUs are set"));
}

/// A message as people see it: lines, then buttons with what they carry.
fn drawn(message: &Value) -> String {
    let mut text = format!("{}\n", message["response_type"].as_str().unwrap_or_default());
    for line in lines(message) {
        // the plan's id changes with every figure that is not shown
        let line = line.split("&amp;plan=").next().map(str::to_owned).unwrap_or(line);
        text.push_str(&format!("| {line}\n"));
    }
    for (label, button) in buttons(message) {
        let url = button["url"].as_str().and_then(|url| url.split("&plan=").next()).unwrap_or_default();
        text.push_str(&format!("[{label}] {}{url}\n", button["value"].as_str().unwrap_or_default()));
    }
    text
}

/// What people ask: every kind of question, what is wrong or missing, and what must not get through.
const QUESTIONS: [&str; 32] = [
    "",
    "help",
    "what fits on 16 H100s",
    "what fits on 16 H100s with 128k context",
    "which models can I run on 8 H200",
    "what will fit on 4 A100 with fp8 kv",
    "anything for 1 RTX 4090?",
    "what fits",
    "8 L40S",
    "llama 3.1 70b on 2x8 H100 at 32k",
    "llama 3.1 70b on 16 H100 with fp8 kv at 128k",
    "share llama 3.1 70b on 8 H100",
    "deepseek r1 on 16 H200 at 64k",
    "deepseek r1 on 8 H100",
    "qwen3 32b on 1 H100",
    "gpt-oss-120b on 4 H100 at 128k",
    "llama 3.1 405b on 8 H100",
    "llama 3.1 405b on 2x8 H100",
    "llama 3.1 8b on 1 L4 at 8k",
    "llama 3.1 70b",
    "tp=16 for llama 3.1 70b on 16 H100",
    "llama 3.1 70b on 8 H100 with ttft &lt; 1 s and tpot under 20 ms",
    "llama 3.1 70b on 16 H100 with purple curtains",
    "how many H200 for deepseek r1 with 50 users at 32k",
    "how many H100 for qwen3 32b at 5 requests per second, tpot under 40 ms",
    "which GPUs for llama 3.1 70b at 8 bit with 5 users of 128k each",
    "is TP=16 worth it for llama 3.1 70b",
    "hlep",
    "lama 3.1 70",
    "<!channel> &lt;!here&gt; & *bold* `code`",
    "no-such-org/no-such-model on 8 H100",
    "llama 3.1 70b on 0 H100",
];

#[tokio::test]
async fn thirty_questions_have_valid_answers() {
    // what is drawn is the matter here; a build without optimisation is no measure of time
    let bot = Bot::start(Duration::from_mins(2)).await;
    let mut slowest = Duration::ZERO;
    for (i, text) in QUESTIONS.iter().enumerate() {
        let started = Instant::now();
        let message = bot.ask(text).await;
        slowest = slowest.max(started.elapsed());
        assert_eq!(faults(&message), [""; 0], "{text}: {message}");
        assert!(lines(&message).len() <= 4, "{text}: {message}");
        let wanted = if text.starts_with("share") { "in_channel" } else { "ephemeral" };
        assert_eq!(message["response_type"], wanted, "{text}");
        insta::with_settings!({description => *text}, {
            insta::assert_snapshot!(format!("question {i:02}"), drawn(&message));
        });
    }
    assert!(bot.posts.lock().expect("posts").is_empty(), "every answer came at once");
    println!("slowest answer: {slowest:?}");
}

#[test]
fn the_checker_finds_what_slack_would_refuse() {
    let section = |text: &str| json!({"type": "section", "text": {"type": "mrkdwn", "text": text}});
    let with = |blocks: Value| json!({"response_type": "ephemeral", "text": "x", "blocks": blocks});
    assert_eq!(faults(&with(json!([section("a &amp; <https://x.y|z>")]))), [""; 0]);
    let button = |n: usize, value: &str| json!({"type": "button", "text": {"type": "plain_text", "text": "x"}, "action_id": format!("a{n}"), "value": value});
    let actions = |elements: Vec<Value>| json!([{"type": "actions", "elements": elements}]);
    for (what, message) in [
        ("no blocks", with(json!([]))),
        ("too many blocks", with(Value::Array(vec![section("x"); 51]))),
        ("a long text", with(json!([section(&"x".repeat(3001))]))),
        ("an empty text", with(json!([section("")]))),
        ("too much in all", with(Value::Array(vec![section(&"x".repeat(2900)); 5]))),
        ("a mass mention", with(json!([section("<!channel>")]))),
        ("a mention", with(json!([section("<@U1>")]))),
        ("an open mark", with(json!([section("<https://x")]))),
        ("a bare ampersand", with(json!([section("a & b")]))),
        ("an unknown block", with(json!([{"type": "marquee"}]))),
        (
            "an unknown key",
            with(json!([{"type": "section", "text": {"type": "mrkdwn", "text": "x"}, "colour": 1}])),
        ),
        ("too many buttons", with(actions((0..26).map(|n| button(n, "")).collect()))),
        ("one action twice", with(actions(vec![button(1, ""), button(1, "")]))),
        ("a long value", with(actions(vec![button(1, &"v".repeat(2001))]))),
        (
            "too many fields",
            with(json!([{"type": "section", "fields": vec![json!({"type": "mrkdwn", "text": "x"}); 11]}])),
        ),
        ("a strange audience", json!({"response_type": "everybody", "text": "x", "blocks": [section("x")]})),
    ] {
        assert!(!faults(&message).is_empty(), "{what}");
    }
}
