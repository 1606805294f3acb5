//! TensorRT-LLM over the pods of a group: the leader starts one rank a GPU by `mpirun` over SSH, the others run its server.
//!
//! Sources: kubernetes-sigs/lws `docs/examples/tensorrt-llm` (4aaf9d5: the leader waits for its workers, then one `mpirun`
//! with `host:slots`), TensorRT-LLM's multi-node page (`mpirun -mca plm_rsh_args … trtllm-llmapi-launch trtllm-serve`).

use serde_json::{Value, json};

use super::pod::{self, Run};
use super::site::{Site, serving};
use crate::launch::spread::Spread;

/// Where the SSH server of a pod listens, beside one of the node's own.
const SSH_PORT: u64 = 2222;
/// The secret with the key pair.
const KEYS: &str = "mpi-ssh";

/// What the group needs beside the file.
pub(super) const NEEDS: &str = "Ranks are started by mpirun over SSH between the pods: the image needs openssh-server, and the \
    secret mpi-ssh a key pair (ssh-keygen -t ed25519 -N '' -f id_ed25519; kubectl create secret generic mpi-ssh \
    --from-file=id_ed25519 --from-file=authorized_keys=id_ed25519.pub).";

/// The leader's script, and that of the others.
pub(super) fn group(site: &Site<'_>, spread: Spread) -> (Run, Run) {
    let ssh = format!("-p {SSH_PORT} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null");
    let slots = spread.gpus;
    // pods of a group are called after their leader, in its domain
    let hosts = format!(
        "leader=${{LWS_LEADER_ADDRESS%%.*}} domain=${{LWS_LEADER_ADDRESS#*.}}\n\
         hosts=$LWS_LEADER_ADDRESS:{slots}\n\
         mkdir -p /run/sshd && /usr/sbin/sshd -p {SSH_PORT} -o StrictModes=no\n\
         for i in $(seq 1 {}); do\n\
         until ssh {ssh} \"$leader-$i.$domain\" true; do sleep 5; done\n\
         hosts=$hosts,$leader-$i.$domain:{slots}\n\
         done\n",
        spread.pods.saturating_sub(1)
    );
    // by its whole path mpirun finds its own parts on the other pods, whose shells get no environment of the container
    let ranks = spread.pods.saturating_mul(slots);
    let mpirun = format!(
        "exec \"$(command -v mpirun)\" --allow-run-as-root -np {ranks} -H \"$hosts\" -mca plm_rsh_args \"{ssh}\" \\\n  \
         -x PATH -x LD_LIBRARY_PATH -x HF_TOKEN trtllm-llmapi-launch"
    );
    let engine = pod::lines(&serving(site.wanted.start(&site.options_path())));
    let leader = format!("{hosts}{mpirun}{}", engine.trim_start_matches("exec"));
    let worker = format!("mkdir -p /run/sshd\nexec /usr/sbin/sshd -D -p {SSH_PORT} -o StrictModes=no\n");
    let run = |text: String, serves| Run { command: json!(["sh", "-c"]), args: json!([text]), serves };
    (run(leader, true), run(worker, false))
}

/// The key pair of a group, and where SSH looks for it.
pub(super) fn keys() -> (Value, Value) {
    (
        json!({"name": "ssh", "secret": {"secretName": KEYS, "defaultMode": 0o600}}),
        json!({"name": "ssh", "mountPath": "/root/.ssh"}),
    )
}
