/** What the screens are shown on: saved clusters, and start-ups as engines print them. */

export const CLUSTERS = {
  "prod-east": "2x8 H100",
  "prod-west": "8 H200",
  research: "4 A100 80GB",
  edge: "2 L40S",
};

/** Lines of starts, with the sizes that such starts have. */
export const LOGS = [
  {
    cluster: "1 H100",
    log: [
      "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32000, tensor_parallel_size=1, kv_cache_dtype=auto",
      "Model loading took 14.9889 GiB and 3.1 seconds",
      "Available KV cache memory: 51.38 GiB",
      "GPU KV cache size: 420,896 tokens",
      "Maximum concurrency for 32,000 tokens per request: 13.15x",
    ].join("\n"),
  },
  {
    cluster: "4 H100",
    log: [
      "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-70B-Instruct', max_seq_len=32768, tensor_parallel_size=4, kv_cache_dtype=auto",
      "Model loading took 32.8894 GiB and 40.2 seconds",
      "Available KV cache memory: 34.12 GiB",
      "GPU KV cache size: 447,200 tokens",
      "Maximum concurrency for 32,768 tokens per request: 13.65x",
    ].join("\n"),
  },
];

/** Put it into the service. */
export async function fill(origin) {
  const send = async (method, path, body) => {
    const answer = await fetch(origin + path, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  };
  for (const [name, cluster] of Object.entries(CLUSTERS)) await send("PUT", `/v1/clusters/${name}`, { cluster });
  for (const start of LOGS) await send("POST", "/v1/observations", start);
}
