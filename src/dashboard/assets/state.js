/**
 * What is asked, as the page's address: a query string in one order, without what is as usual.
 *
 * The question's keys belong to every screen. A screen adds its own with `keys` (see app.js). `rules` and `plan` are in
 * links that were shared: the rules that gave the answer, and the plan as it was.
 */

/** Keys of the question: [name, value when nothing is said]. The order is the order of the address. */
export const QUESTION = [
  ["model", "meta-llama/Llama-3.1-70B-Instruct"],
  ["cluster", "16 H100s"],
  ["context", "32768"],
  ["users", "64"],
  ["input", "4096"],
  ["output", "512"],
  ["kv", "auto"],
  ["engine", "vllm"],
  ["weights", ""],
  ["ttft", ""],
  ["tpot", ""],
  ["objective", "balanced"],
];

/** Where a field of a request is edited: the first entry that the pointer starts with. */
export const PLACES = [
  ["#/model/weights", "weights"],
  ["#/model", "model"],
  ["#/cluster", "cluster"],
  ["#/workload/context_tokens", "context"],
  ["#/engine/max_model_len", "context"],
  ["#/workload/concurrency", "users"],
  ["#/workload/input_tokens", "input"],
  ["#/workload/output_tokens", "output"],
  ["#/engine/kv_cache_dtype", "kv"],
  ["#/engine", "engine"],
  ["#/slo/ttft_ms", "ttft"],
  ["#/slo/tpot_ms", "tpot"],
  ["#/objective", "objective"],
];

/** The longest value that is taken from an address. */
const LONGEST = 4000;

/**
 * Read an address.
 * @param {string} search `location.search`
 * @param {Array<{id: string, keys?: Object<string, string>}>} screens
 * @returns {Object<string, string>} every key with a value, and `screen`
 */
export function read(search, screens) {
  const given = new URLSearchParams(search);
  const value = (key, usual) => (given.get(key) ?? usual).slice(0, LONGEST);
  const state = { screen: value("screen", screens[0].id) };
  if (!screens.some((screen) => screen.id === state.screen)) state.screen = screens[0].id;
  for (const [key, usual] of QUESTION) state[key] = value(key, usual);
  for (const screen of screens) {
    for (const [key, usual] of Object.entries(screen.keys ?? {})) state[key] = value(key, usual);
  }
  for (const key of ["rules", "plan"]) if (given.has(key)) state[key] = value(key, "");
  return state;
}

/** Write an address: `screen`, the question, the keys of the screen that is shown, then `rules` and `plan`. */
export function write(state, screens) {
  const out = new URLSearchParams();
  const put = (key, usual) => state[key] !== undefined && state[key] !== usual && out.set(key, state[key]);
  put("screen", screens[0].id);
  // model and cluster are always said: what is usual may change
  for (const [key, usual] of QUESTION) put(key, key === "model" || key === "cluster" ? undefined : usual);
  const shown = screens.find((screen) => screen.id === state.screen);
  for (const [key, usual] of Object.entries(shown?.keys ?? {})) put(key, usual);
  put("rules");
  put("plan");
  return `?${out}`;
}

/** A number when the text is one; else the text, for the API to refuse by its place. */
function number(text) {
  const plain = text.trim().replaceAll(",", "").replaceAll("_", "");
  const scaled = /^([\d.]+)\s*([km])$/i.exec(plain);
  if (scaled) return Math.round(Number(scaled[1]) * (scaled[2].toLowerCase() === "k" ? 1024 : 1048576));
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : text;
}

/**
 * The body of `POST /v1/plans` for what is asked. A screen may spread it and change parts.
 *
 * The context is also the engine's `max_model_len`: the length that it is started for is the length that is counted.
 */
export function requestOf(state) {
  const said = (key) => state[key].trim() !== "";
  const engine = { name: state.engine };
  if (said("kv") && state.kv !== "auto") engine.kv_cache_dtype = state.kv;
  const workload = {};
  if (said("context")) {
    engine.max_model_len = number(state.context);
    workload.context_tokens = engine.max_model_len;
  }
  if (said("input")) workload.input_tokens = number(state.input);
  if (said("output")) workload.output_tokens = number(state.output);
  if (said("users")) workload.concurrency = number(state.users);
  const slo = {};
  if (said("ttft")) slo.ttft_ms = number(state.ttft);
  if (said("tpot")) slo.tpot_ms = number(state.tpot);
  const body = { model: modelOf(state), cluster: clusterOf(state.cluster), engine, workload };
  if (Object.keys(slo).length) body.slo = slo;
  if (state.objective !== "balanced") body.objective = state.objective;
  return body;
}

function modelOf(state) {
  const text = state.model.trim();
  const config = text.startsWith("{") ? parsed(text) : null;
  const weights = state.weights.trim();
  if (config) return weights ? { config, name: "pasted", weights } : { config, name: "pasted" };
  return weights ? { id: text, weights } : text;
}

/** A cluster as text, or as an object of the contract when it was pasted as one. */
export function clusterOf(text) {
  return (text.trim().startsWith("{") && parsed(text)) || text;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The rules of an answer as one word, for links. */
export function rulesOf(versions) {
  return versions ? [versions.planner, versions.catalogue, versions.engine_rules, versions.calibration].join(" ") : "";
}
