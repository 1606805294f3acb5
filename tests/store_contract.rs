//! One story that every store passes, told on each database.

#[path = "support/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shardwise::store::plans::Stored;
use shardwise::store::{
    ClusterRecord, Expect, Guard, Health, Kept, Lookup, ModelRecord, Models, NamedValue, ObservationHead,
    ObservationPage, ObservationRecord, Page, PlanRecord, Plans, PostgresStore, Put, SqliteStore, Store,
    StoreError, migrations,
};
use time::OffsetDateTime;

const WAIT: Duration = Duration::from_secs(2);

fn run(story: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime")
        .block_on(story);
}

fn record(id: &str, config: &Value) -> ModelRecord {
    ModelRecord {
        id: id.to_owned(),
        revision: "main".to_owned(),
        config: config.clone(),
        quantization_config: None,
        source: "request".to_owned(),
        hash: format!("hash of {config}"),
        updated_at: OffsetDateTime::from_unix_timestamp(1_700_000_000).expect("a time"),
    }
}

async fn the_story(store: &dyn Store) {
    assert!(matches!(store.version().await, Err(StoreError::Unavailable(_))), "before the first migration");
    store.migrate().await.expect("migrates");
    store.migrate().await.expect("migrating twice changes nothing");
    assert_eq!(store.version().await, Ok(Some(migrations::head())));
    models_are_kept_as_given(store).await;
    writes_expect_what_is_there(store).await;
    listings_are_in_order(store).await;
    plans_are_kept_once(store).await;
    clusters_are_kept_by_name(store).await;
    values_are_kept_by_kind_and_name(store).await;
    observations_are_kept_newest_first(store).await;
}

async fn models_are_kept_as_given(store: &dyn Store) {
    assert_eq!(store.model("org/none", "main").await, Ok(None));
    // key order, large integers, floats and escapes come back as they went in
    let config: Value = serde_json::from_str(
        r#"{"z": 1, "a": 18446744073709551615, "f": 1e-5, "t": "\u0000 ü \"'; drop table models"}"#,
    )
    .expect("JSON");
    let mut given = record("org/as-given", &config);
    given.quantization_config = Some(json!({"quant_method": "fp8"}));
    assert_eq!(store.put_model(&given, &Expect::Anything).await, Ok(Put::Created));
    let kept = store.model("org/as-given", "main").await.expect("reads").expect("is there");
    assert_eq!(kept, given);
    assert_eq!(kept.config.to_string(), config.to_string());
    assert_eq!(store.model("org/as-given", "other").await, Ok(None));
}

async fn writes_expect_what_is_there(store: &dyn Store) {
    let (one, two) = (record("org/m", &json!({"v": 1})), record("org/m", &json!({"v": 2})));
    let is = |hash: &str| Expect::Hash(hash.to_owned());
    let unexpected = |current: Option<&String>| Err(StoreError::Unexpected { current: current.cloned() });
    assert_eq!(store.put_model(&one, &is("x")).await, unexpected(None));
    assert_eq!(store.model("org/m", "main").await, Ok(None), "a refused write leaves nothing");
    assert_eq!(store.put_model(&one, &Expect::Nothing).await, Ok(Put::Created));
    assert_eq!(store.put_model(&two, &Expect::Nothing).await, unexpected(Some(&one.hash)));
    assert_eq!(store.put_model(&two, &is("x")).await, unexpected(Some(&one.hash)));
    assert_eq!(store.put_model(&two, &is(&one.hash)).await, Ok(Put::Replaced));
    assert_eq!(store.model("org/m", "main").await, Ok(Some(two.clone())));
    let refused = store.delete_model("org/m", "main", &is("x")).await;
    assert_eq!(refused, Err(StoreError::Unexpected { current: Some(two.hash.clone()) }));
    assert_eq!(store.delete_model("org/m", "main", &is(&two.hash)).await, Ok(true));
    assert_eq!(store.delete_model("org/m", "main", &Expect::Anything).await, Ok(false));
    assert_eq!(store.model("org/m", "main").await, Ok(None));
}

async fn listings_are_in_order(store: &dyn Store) {
    // byte order on both: capitals before small letters, whatever the locale
    let ids = ["list/B", "list/Z_x", "list/a", "list/b%", "list/ü"];
    for id in ids.iter().rev() {
        store.put_model(&record(id, &json!({})), &Expect::Anything).await.expect("puts");
    }
    let page = |after: &str, search: &str, limit| Page {
        after: (after.to_owned(), "main".to_owned()),
        search: search.to_owned(),
        limit,
    };
    let listed = async |page: Page| -> Vec<String> {
        store.models(&page).await.expect("lists").into_iter().map(|m| m.id).collect()
    };
    assert_eq!(listed(page("", "LIST/", 10)).await, ids);
    assert_eq!(listed(page("", "list/", 2)).await, ids[..2]);
    assert_eq!(listed(page(ids[1], "list/", 2)).await, ids[2..4]);
    assert_eq!(listed(page("", "b%", 10)).await, ["list/b%"]);
    assert_eq!(listed(page("", "z_x", 10)).await, ["list/Z_x"]);
    assert_eq!(listed(page("", "z?x", 10)).await, [""; 0]);
}

async fn plans_are_kept_once(store: &dyn Store) {
    let at = |second| OffsetDateTime::from_unix_timestamp(second).expect("a time");
    let plan = |id: &str, answer: &[u8], second| PlanRecord {
        plan_id: id.to_owned(),
        answer: answer.to_vec(),
        created_at: at(second),
    };
    let plans = [plan("a", &[0, 255, 7], 100), plan("b", b"2", 200), plan("c", b"3", 300)];
    store.put_plans(&plans).await.expect("puts");
    store.put_plans(&[plan("a", b"other", 900)]).await.expect("a second time");
    assert_eq!(store.plan("a").await, Ok(Some(plans[0].clone())));
    assert_eq!(store.plan("x").await, Ok(None));
    assert_eq!(store.delete_plans_before(at(300), 1).await, Ok(1));
    assert_eq!(store.delete_plans_before(at(300), 10).await, Ok(1));
    assert_eq!(store.plan("c").await, Ok(Some(plans[2].clone())));
}

async fn clusters_are_kept_by_name(store: &dyn Store) {
    let record = |name: &str, cluster: Value| ClusterRecord {
        name: name.to_owned(),
        hash: format!("hash of {cluster}"),
        cluster,
        updated_at: OffsetDateTime::from_unix_timestamp(1_700_000_000).expect("a time"),
    };
    let is = |hash: &str| Expect::Hash(hash.to_owned());
    let unexpected = |current: Option<&String>| Err(StoreError::Unexpected { current: current.cloned() });
    assert_eq!(store.cluster("prod-east").await, Ok(None));
    let one = record("prod-east", json!("16 H100s"));
    let two = record("prod-east", json!({"topology": "GPU0\tGPU1\n", "gpu": "l4"}));
    assert_eq!(store.put_cluster(&one, &is("x")).await, unexpected(None));
    assert_eq!(store.put_cluster(&one, &Expect::Anything).await, Ok(Put::Created));
    assert_eq!(store.put_cluster(&two, &Expect::Nothing).await, unexpected(Some(&one.hash)));
    assert_eq!(store.put_cluster(&two, &is("x")).await, unexpected(Some(&one.hash)));
    assert_eq!(store.cluster("prod-east").await, Ok(Some(one.clone())), "a refused write changes nothing");
    assert_eq!(store.put_cluster(&two, &is(&one.hash)).await, Ok(Put::Replaced));
    assert_eq!(store.cluster("prod-east").await, Ok(Some(two.clone())));
    assert_eq!(store.put_cluster(&one, &Expect::Anything).await, Ok(Put::Replaced));
    for name in ["b", "A", "a"] {
        assert_eq!(store.put_cluster(&record(name, json!("L4")), &Expect::Nothing).await, Ok(Put::Created));
    }
    let listed = async |after: &str, limit| -> Vec<String> {
        store.clusters(after, limit).await.expect("lists").into_iter().map(|c| c.name).collect()
    };
    assert_eq!(listed("", 10).await, ["A", "a", "b", "prod-east"]);
    assert_eq!(listed("A", 2).await, ["a", "b"]);
    assert_eq!(
        store.delete_cluster("prod-east", &is("x")).await,
        Err(StoreError::Unexpected { current: Some(one.hash.clone()) })
    );
    assert_eq!(store.delete_cluster("prod-east", &is(&one.hash)).await, Ok(true));
    assert_eq!(store.delete_cluster("prod-east", &Expect::Anything).await, Ok(false));
    assert_eq!(store.cluster("prod-east").await, Ok(None));
}

async fn values_are_kept_by_kind_and_name(store: &dyn Store) {
    let record = |kind: &str, name: &str, value: Value| NamedValue {
        kind: kind.to_owned(),
        name: name.to_owned(),
        value,
        updated_at: OffsetDateTime::from_unix_timestamp(1_700_000_000).expect("a time"),
    };
    assert_eq!(store.named_value("workspace", "T1").await, Ok(None));
    let (one, two) =
        (record("workspace", "T1", json!({"z": 1, "a": "ü'"})), record("workspace", "T1", json!("8 L4")));
    assert_eq!(store.put_named_value(&one).await, Ok(Put::Created));
    assert_eq!(store.named_value("workspace", "T1").await, Ok(Some(one)));
    assert_eq!(store.put_named_value(&two).await, Ok(Put::Replaced));
    assert_eq!(store.named_value("workspace", "T1").await, Ok(Some(two.clone())));
    assert_eq!(store.named_value("deployment", "T1").await, Ok(None), "kinds do not meet");
    for name in ["b", "A", "a"] {
        store.put_named_value(&record("deployment", name, json!(null))).await.expect("puts");
    }
    let listed = async |after: &str, limit| -> Vec<String> {
        let values = store.named_values("deployment", after, limit).await.expect("lists");
        values.into_iter().map(|v| v.name).collect()
    };
    assert_eq!(listed("", 10).await, ["A", "a", "b"]);
    assert_eq!(listed("A", 1).await, ["a"]);
    assert_eq!(store.delete_named_value("deployment", "T1").await, Ok(false));
    assert_eq!(store.named_value("workspace", "T1").await, Ok(Some(two)));
    assert_eq!(store.delete_named_value("workspace", "T1").await, Ok(true));
    assert_eq!(store.named_value("workspace", "T1").await, Ok(None));
}

async fn observations_are_kept_newest_first(store: &dyn Store) {
    let at = |second: i64| OffsetDateTime::from_unix_timestamp(1_700_000_000 + second).expect("a time");
    let observation = |id: &str, engine: &str, gpu: &str, second| ObservationRecord {
        head: ObservationHead {
            id: id.to_owned(),
            engine: engine.to_owned(),
            version: "0.11.0".to_owned(),
            gpu: gpu.to_owned(),
            model: "org/m".to_owned(),
            layout: "TP=8 × PP=2".to_owned(),
            outcome: "started".to_owned(),
            outcome_agrees: Some(second % 2 == 0),
            kv_tokens_observed: Some(420_896.0),
            kv_tokens_predicted: None,
            ratios: json!({"kv_tokens": 1.0 / 3.0}),
            observed_at: at(second),
        },
        record: json!({"z": [1, null], "a": "\u{0} ' ü"}),
    };
    assert_eq!(store.observation("a").await, Ok(None));
    assert_eq!(
        store.observations(&ObservationPage { limit: 9, ..ObservationPage::default() }).await,
        Ok(vec![])
    );
    // two of one second, kept in another order than that of their ids
    let kept = [
        observation("b", "vllm", "h100", 2),
        observation("a", "vllm", "", 2),
        observation("c", "sglang", "h100", 1),
        observation("d", "vllm", "h100", 3),
    ];
    for one in &kept {
        store.put_observation(one).await.expect("puts");
    }
    assert_eq!(store.observation("c").await, Ok(Some(kept[2].clone())));
    let ids = async |page: ObservationPage| -> Vec<String> {
        store.observations(&page).await.expect("lists").into_iter().map(|o| o.id).collect()
    };
    let page = |limit| ObservationPage { limit, ..ObservationPage::default() };
    assert_eq!(ids(page(9)).await, ["d", "b", "a", "c"]);
    assert_eq!(ids(page(2)).await, ["d", "b"]);
    let after = |second, id: &str| Some((at(second), id.to_owned()));
    assert_eq!(ids(ObservationPage { before: after(2, "b"), ..page(9) }).await, ["a", "c"]);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(ids(ObservationPage { engine: some("vllm"), gpu: some("h100"), ..page(9) }).await, ["d", "b"]);
    assert_eq!(ids(ObservationPage { gpu: some(""), ..page(9) }).await, ["a"]);
    assert_eq!(ids(ObservationPage { version: some("0.12"), ..page(9) }).await, [""; 0]);
    assert_eq!(ids(ObservationPage { model: some("org/m' or '1"), ..page(9) }).await, [""; 0]);
    // the same start again: the time stays, the prediction is the newer one
    let mut again = observation("c", "sglang", "h100", 50);
    again.head.kv_tokens_predicted = Some(5.0);
    again.head.outcome_agrees = None;
    store.put_observation(&again).await.expect("puts");
    again.head.observed_at = at(1);
    assert_eq!(store.observation("c").await, Ok(Some(again)));
    assert_eq!(store.delete_observation("c").await, Ok(true));
    assert_eq!(store.delete_observation("c").await, Ok(false));
    assert_eq!(ids(page(9)).await, ["d", "b", "a"]);
}

#[test]
fn the_story_on_sqlite() {
    run(async {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("s.sqlite");
        the_story(&SqliteStore::at(&path, 2, WAIT)).await;
        // another process finds what this one kept
        let other = SqliteStore::at(&path, 1, WAIT);
        assert!(other.model("org/as-given", "main").await.expect("reads").is_some());
    });
}

#[test]
fn the_story_on_postgres() {
    let Some(server) = postgres::TestPostgres::start() else { return };
    run(async {
        the_story(&PostgresStore::at(&server.url(), 4, WAIT).expect("address")).await;
    });
}

#[test]
fn both_dialects_have_the_same_migrations() {
    let numbers = |dialect: &str| -> Vec<String> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations").join(dialect);
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("migrations")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(numbers("postgres"), numbers("sqlite"));
    let compiled: Vec<String> = migrations::postgres().iter().map(|m| format!("{:04}", m.version)).collect();
    let files: Vec<String> = numbers("postgres").iter().map(|n| n[..4].to_owned()).collect();
    assert_eq!(compiled, files, "every file is compiled in");
}

#[test]
fn both_dialects_have_the_same_columns() {
    let Some(server) = postgres::TestPostgres::start() else { return };
    run(async {
        use sqlx::Row;
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("s.sqlite");
        SqliteStore::at(&path, 1, WAIT).migrate().await.expect("migrates");
        PostgresStore::at(&server.url(), 1, WAIT).expect("address").migrate().await.expect("migrates");
        let mut columns: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let lite = sqlx::SqlitePool::connect(&format!("sqlite://{}", path.display())).await.expect("opens");
        let rows = sqlx::query(
            "select m.name || '.' || c.name || ' ' || (c.\"notnull\" = 1) as line from sqlite_master m
             join pragma_table_info(m.name) c where m.type = 'table' and m.name in ('clusters', 'models', 'named_values', 'observations', 'plans')
             order by 1",
        );
        for row in rows.fetch_all(&lite).await.expect("reads") {
            columns.entry("sqlite").or_default().push(row.get("line"));
        }
        let post = sqlx::PgPool::connect(&server.url()).await.expect("opens");
        let rows = sqlx::query(
            "select (table_name || '.' || column_name || ' ' || (is_nullable = 'NO')::int) collate \"C\" as line
             from information_schema.columns where table_name in ('clusters', 'models', 'named_values', 'observations', 'plans')
             order by 1",
        );
        for row in rows.fetch_all(&post).await.expect("reads") {
            columns.entry("postgres").or_default().push(row.get("line"));
        }
        assert_eq!(columns["sqlite"].len(), 31);
        assert_eq!(columns["sqlite"], columns["postgres"]);
    });
}

#[test]
fn loads_of_one_model_are_one_question() {
    run(async {
        let folder = tempfile::tempdir().expect("folder");
        let guard = Guard::over(Arc::new(SqliteStore::at(&folder.path().join("s.sqlite"), 2, WAIT)), true);
        assert_eq!(guard.look().await, Health::Ready);
        let models = Arc::new(Models::over(Arc::clone(&guard), Duration::from_mins(1)));
        let given = record("org/m", &json!({"v": 1}));
        assert_eq!(models.put(given.clone(), &Expect::Anything).await, Ok(Put::Created));
        let mut asks = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let models = Arc::clone(&models);
            asks.spawn(async move { models.find("org/m", "main").await });
        }
        for found in asks.join_all().await {
            assert_eq!(found, Ok(Lookup::Known(Some(Arc::new(given.clone())))));
        }
        // a write is seen at once, whatever was in memory
        let newer = record("org/m", &json!({"v": 2}));
        models.put(newer.clone(), &Expect::Anything).await.expect("puts");
        assert_eq!(models.find("org/m", "main").await, Ok(Lookup::Known(Some(Arc::new(newer)))));
        models.delete("org/m", "main", &Expect::Anything).await.expect("deletes");
        assert_eq!(models.find("org/m", "main").await, Ok(Lookup::Known(None)));
    });
}

#[test]
fn a_database_that_dies_is_served_from_memory_and_comes_back() {
    let Some(server) = postgres::TestPostgres::start() else { return };
    run(async {
        let store = PostgresStore::at(&server.url(), 2, WAIT).expect("address");
        let guard = Guard::over(Arc::new(store), true);
        tokio::spawn(Arc::clone(&guard).watch());
        let ready = async || {
            while guard.health() != Health::Ready {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ready()).await.expect("comes up");
        // nothing is fresh, so that each lookup asks the database
        let models = Models::over(Arc::clone(&guard), Duration::ZERO);
        let stored = Stored { per_s: 100, bytes_per_s: 1 << 20, plan_bytes: 1 << 10 };
        let (plans, writer) = Plans::over(Arc::clone(&guard), 1 << 20, stored);
        let writing = tokio::spawn(writer.run());
        let known = record("org/known", &json!({"v": 1}));
        models.put(known.clone(), &Expect::Anything).await.expect("puts");
        assert_eq!(plans.keep("before", b"{}".as_slice().into(), 1).await, Kept::Queued);
        // longer than a plan that is written: answered from memory, and never in the database
        let long = vec![b' '; 1025];
        assert_eq!(plans.keep("long", long.clone().into(), 1).await, Kept::MemoryOnly);
        assert_eq!(plans.find("long").await, Ok(Some(long.into())));

        server.kill();
        let known = Some(Arc::new(known));
        assert_eq!(models.find("org/known", "main").await, Ok(Lookup::Stale(known.clone())));
        assert!(matches!(models.find("org/other", "main").await, Ok(Lookup::Unknown(_))));
        let refused = models.put(record("org/late", &json!({})), &Expect::Anything).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(matches!(guard.health(), Health::Away(_)));
        assert_eq!(plans.keep("meanwhile", b"{}".as_slice().into(), 2).await, Kept::MemoryOnly);
        assert_eq!(plans.find("meanwhile").await, Ok(Some(b"{}".as_slice().into())));

        server.up();
        tokio::time::timeout(Duration::from_secs(30), ready()).await.expect("comes back by itself");
        assert_eq!(models.find("org/known", "main").await, Ok(Lookup::Known(known)));
        drop(plans);
        writing.await.expect("writes what waited");
        for id in ["before", "meanwhile"] {
            assert!(guard.plan(id).await.expect("reads").is_some(), "{id} was written behind");
        }
        assert!(guard.plan("long").await.expect("reads").is_none(), "too long to be written");
    });
}
