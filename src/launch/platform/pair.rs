//! Both halves of a split deployment in one set of files.

use serde_json::{Value, json};

use super::site::Site;
use super::{Inexpressible, LaunchFile, Platform, Written, charts, dynamo, groups, kserve, ray};
use crate::launch::{Engine, commands, yaml};
use crate::planner::units::grouped;

/// Where the router of plain commands listens, away from the ports of the workers.
const ROUTER_PORT: u64 = 9000;

/// A pair to be written: the deployment as a whole, and its halves under names of their own.
pub(super) struct Pair<'a> {
    pub whole: Site<'a>,
    pub prefill: Site<'a>,
    pub decode: Site<'a>,
}

impl Pair<'_> {
    fn halves(&self) -> [&Site<'_>; 2] {
        [&self.prefill, &self.decode]
    }

    fn comment(&self) -> String {
        format!("{}; the decode workers' figure, prefill has its own", self.whole.comment())
    }

    fn yaml(&self, name: &str, objects: &[Value]) -> LaunchFile {
        LaunchFile::yaml(name, yaml::file(&self.comment(), objects))
    }
}

/// Write both halves for a platform.
pub(super) fn write(pair: &Pair<'_>, platform: Platform) -> Result<Written, Inexpressible> {
    let mut written = match platform {
        Platform::Command => Ok(command(pair)),
        Platform::SglangRouter if pair.whole.engine() == Engine::Sglang => Ok(command(pair)),
        Platform::SglangRouter => {
            Err(Inexpressible::because("router_sglang_only", "the router is written for replicas of SGLang"))
        }
        Platform::Kubernetes => apart(pair, "deployment.yaml", groups::deployment),
        Platform::LeaderWorkerSet => apart(pair, "leaderworkerset.yaml", groups::leader_worker_set),
        Platform::AiBrix => {
            let (service, options) = groups::aibrix_pair(&pair.whole, pair.halves())?;
            let objects: Vec<Value> = options.into_iter().chain([service]).collect();
            Ok(Written { files: vec![pair.yaml("stormservice.yaml", &objects)], notes: Vec::new() })
        }
        Platform::LlmD => {
            let values = charts::llm_d_pair(&pair.prefill, &pair.decode)?;
            Ok(Written { files: vec![pair.yaml("values.yaml", &[values])], notes: Vec::new() })
        }
        Platform::KServe => {
            let object = kserve::object(&pair.whole, &pair.decode, Some(&pair.prefill))?;
            let file = pair.yaml("llminferenceservice.yaml", &[object]);
            Ok(Written { files: vec![file], notes: vec![kserve::TOTAL_STAYS.to_owned()] })
        }
        Platform::Dynamo => {
            let workers = [("Prefill", &pair.prefill), ("Decode", &pair.decode)];
            let (object, options) = dynamo::deployment(&pair.whole, &workers)?;
            let objects: Vec<Value> = options.into_iter().chain([object]).collect();
            let file = pair.yaml("dynamographdeployment.yaml", &objects);
            Ok(Written { files: vec![file], notes: vec![dynamo::release_note(&pair.whole)] })
        }
        Platform::RayServe => ray_serve(pair),
        _ => Err(Inexpressible::because(
            "pair_not_expressible",
            format!(
                "{} has no place for prefill and decode workers that are checked together: use dynamo, llm-d, kserve, \
                 leader-worker-set or command",
                platform.name()
            ),
        )),
    }?;
    written.notes.extend(pair.decode.notes());
    written.notes.push(format!(
        "Expect {} KV tokens in the logs of the prefill workers.",
        grouped(pair.prefill.wanted.layout.capacity.kv_tokens_per_replica)
    ));
    Ok(written)
}

/// Commands of both, and what goes between them.
fn command(pair: &Pair<'_>) -> Written {
    let of = |site: &Site<'_>| commands::of(&site.wanted);
    let text = format!(
        "# prefill workers; NODE_IP: the address of the node that runs the line\n{}\n\n# decode workers\n{}\n",
        of(&pair.prefill),
        of(&pair.decode)
    );
    let files = vec![LaunchFile::shell("launch.sh", text), LaunchFile::shell("router.sh", router(pair))];
    let notes = vec![format!(
        "router.sh takes {} addresses of prefill workers and {} of decode workers, and listens on port {ROUTER_PORT}.",
        pair.prefill.wanted.layout.layout.dp, pair.decode.wanted.layout.layout.dp
    )];
    Written { files, notes }
}

/// What sends each request to a prefill worker first, then to a decode worker.
fn router(pair: &Pair<'_>) -> String {
    let listen = format!("--host 0.0.0.0 --port {ROUTER_PORT}");
    match pair.whole.engine() {
        Engine::Vllm => format!(
            "# the first address of each worker, in PREFILL and DECODE: http://HOST:PORT ...\n\
             vllm-router --vllm-pd-disaggregation $(printf ' --prefill %s' $PREFILL) \
             $(printf ' --decode %s' $DECODE) --policy consistent_hash {listen}\n"
        ),
        // a prefill worker's bootstrap port lies as far above 8998 as its own above 8000
        Engine::Sglang => format!(
            "# the first address of each worker, in PREFILL and DECODE: http://HOST:PORT ...\n\
             python3 -m sglang_router.launch_router --pd-disaggregation \
             $(for url in $PREFILL; do printf ' --prefill %s %s' \"$url\" $((${{url##*:}} + 998)); done) \
             $(printf ' --decode %s' $DECODE) --policy cache_aware {listen}\n"
        ),
        Engine::TensorRtLlm => format!(
            "# the first address of each worker, in PREFILL and DECODE: HOST:PORT ...\n\
             cat > disaggregated.yaml <<SERVERS\n\
             hostname: 0.0.0.0\nport: {ROUTER_PORT}\n\
             context_servers:\n  num_instances: {}\n  urls: [$(echo \"$PREFILL\" | sed 's/  */, /g')]\n\
             generation_servers:\n  num_instances: {}\n  urls: [$(echo \"$DECODE\" | sed 's/  */, /g')]\n\
             SERVERS\ntrtllm-serve disaggregated -c disaggregated.yaml\n",
            pair.prefill.wanted.layout.layout.dp, pair.decode.wanted.layout.layout.dp
        ),
    }
}

type Writer = fn(&Site<'_>) -> Result<Written, Inexpressible>;

/// Two objects of the same kind, one for each half.
fn apart(pair: &Pair<'_>, name: &str, write: Writer) -> Result<Written, Inexpressible> {
    let mut texts = Vec::new();
    let mut notes = Vec::new();
    for half in pair.halves() {
        let written = write(half)?;
        texts.extend(written.files.into_iter().map(|file| file.text));
        notes.extend(written.notes.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
    }
    let selectors = |site: &Site<'_>| format!("app={}", site.name);
    notes.push(match pair.whole.engine() {
        Engine::Sglang => format!(
            "Put sglang_router.launch_router --pd-disaggregation --service-discovery --prefill-selector {} \
             --decode-selector {} before them: it must reach each pod, not a Service.",
            selectors(&pair.prefill),
            selectors(&pair.decode)
        ),
        _ => format!(
            "Put a router that knows both halves before them (the command platform writes one); it must reach each pod of \
             {} and {}, not a Service.",
            selectors(&pair.prefill),
            selectors(&pair.decode)
        ),
    });
    Ok(Written { files: vec![LaunchFile::yaml(name, texts.join("---\n"))], notes })
}

/// Ray's builder takes one configuration for each half.
fn ray_serve(pair: &Pair<'_>) -> Result<Written, Inexpressible> {
    for half in pair.halves() {
        if half.wanted.layout.layout.attention_dp > 1 {
            return Err(Inexpressible::because(
                "rayserve_pair_with_dp",
                "data-parallel attention has a builder of its own, prefill and decode another: use dynamo or \
                 leader-worker-set",
            ));
        }
    }
    let (prefill, mut notes) = ray::config(&pair.prefill)?;
    let (decode, more) = ray::config(&pair.decode)?;
    notes.extend(more.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
    let file = json!({"applications": [{"name": pair.whole.name, "route_prefix": "/",
        "import_path": "ray.serve.llm:build_pd_openai_app",
        "args": {"prefill_config": prefill, "decode_config": decode}}]});
    Ok(Written { files: vec![pair.yaml("serve.yaml", &[file])], notes })
}
