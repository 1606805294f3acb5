/** Screen 1, Ask: what fits, in a sentence, in three cards and in a table; what does not, and why; what would help. */

import { fill, h } from "../dom.js";
import * as format from "../format.js";
import { keyOf, plan as planOf } from "../layouts.js";
import { copyButton, fold, mark, table, toggle } from "../parts.js";

export const id = "ask";
export const title = "Ask";
export const calls = ["POST /v1/plans"];
export const keys = { "ask.sort": "", "ask.node": "" };

const tpot = (row) => row.latency.tpot_ms.value;
const perGpu = (row) => row.throughput.output_tokens_per_s_per_gpu;

export function render(root, context) {
  const sentence = h("p", { class: "sentence" });
  const side = h("p", { class: "facts" });
  const cards = h("div", { class: "cards" });
  const count = h("p", { class: "quiet" });
  const sort = context.state["ask.sort"];
  const layouts = table(columns(context), {
    caption: "Layouts",
    first: 12,
    sort: sort.replace(/^-/, "") || undefined,
    descending: sort.startsWith("-"),
    sorted: (by) => context.set({ "ask.sort": by }),
    row: (row) => ({ class: row.kv.replication_factor > 1 ? "copies" : null }),
  });
  const inside = toggle({ label: "TP within a node", value: context.state["ask.node"] === "1", change: (on) => context.set({ "ask.node": on ? "1" : "" }) });
  const below = h("div", { class: "below" });
  root.append(sentence, side, cards, h("div", { class: "table-head" }, h("h2", { text: "Layouts" }), count, inside.element), layouts.element, below);

  return async function refresh() {
    const plan = await planOf(context);
    sentence.textContent = plan.answer;
    fill(side, facts(plan));
    const rows = plan.layouts;
    fill(cards, plan.feasible ? threeCards(rows) : null);
    count.textContent = `${format.integer(plan.total_feasible)} of ${format.integer(plan.total_considered)} layouts fit`
      + (plan.total_feasible > rows.length ? `; the first ${rows.length} are shown` : "");
    inside.set(context.state["ask.node"] === "1");
    layouts.rows(context.state["ask.node"] === "1" ? rows.filter((row) => !row.placement.tp_crosses_nodes) : rows);
    layouts.element.hidden = rows.length === 0;
    fill(below, warnings(plan), advice(plan, context), refused(plan), assumptions(plan), launch(rows[0]));
  };
}

function facts(plan) {
  const m = plan.model;
  const words = [`${format.count(m.parameters)} parameters`, `${format.bytes(m.weights_bytes)} of weights`, m.attention.toUpperCase(),
    `${format.bytes(m.kv_bytes_per_token)} of KV a token`];
  if (m.active_parameters !== m.parameters) words.splice(1, 0, `${format.count(m.active_parameters)} active`);
  return [words.join(" · "), m.kv_formula && h("span", { class: "formula", text: m.kv_formula })];
}

/** The best of each kind, by sorting what was answered. */
function threeCards(rows) {
  const best = (better) => rows.reduce((a, b) => (better(b, a) ? b : a));
  return [
    card("Most KV", best((a, b) => a.capacity.kv_tokens_total > b.capacity.kv_tokens_total), (r) => [format.short(r.capacity.kv_tokens_total), "KV tokens"],
      (r) => `${format.integer(r.capacity.sequences_total)} sequences of the context`),
    card("Fastest for a user", best((a, b) => tpot(a) < tpot(b)), (r) => [format.figure(tpot(r)), "ms a token"],
      (r) => `TPOT ${format.range(r.latency.tpot_ms)}`),
    card("Most per GPU", best((a, b) => perGpu(a) > perGpu(b)), (r) => [format.figure(perGpu(r)), "tokens/s a GPU"],
      (r) => `${format.figure(r.throughput.output_tokens_per_s)} tokens/s at ${format.integer(r.throughput.concurrency)} at once`),
  ];
}

function card(title, row, big, more) {
  const [value, unit] = big(row);
  return h("section", { class: "card" }, h("h2", { text: title }),
    h("p", { class: "big" }, h("span", { class: "value", text: value }), " ", h("span", { class: "unit", text: unit })),
    h("p", {}, h("strong", { text: format.layout(row.layout) }), row.kv.replication_factor > 1 ? [" ", mark("copies")] : null),
    h("p", { class: "quiet", text: more(row) }));
}

function columns(context) {
  const n = (name, title, value, show, first = "descending") => ({ name, title, value, show: show && ((row) => show(value(row), row)), first });
  return [
    { name: "Layout", text: true, value: (r) => format.layout(r.layout), show: (row) => layoutCell(row, context) },
    n("Weights", "bytes of weights on the fullest GPU", (r) => Math.max(...r.memory.stages.map((s) => s.weights_bytes)), format.bytes, "ascending"),
    n("KV tokens", "distinct tokens of cache, all replicas", (r) => r.capacity.kv_tokens_total, format.integer),
    n("KV copies", "replication factor: GPUs of a replica that hold the same KV bytes", (r) => r.kv.replication_factor,
      (v) => (v > 1 ? h("span", { class: "copies-figure" }, mark("copies"), ` ${format.times(v)}`) : format.times(v)), "ascending"),
    n("Seqs", "sequences of the context that fit at once, all replicas", (r) => r.capacity.sequences_total, format.integer),
    n("Longest", "longest single sequence, tokens", (r) => r.capacity.max_sequence_tokens, format.context),
    n("TTFT", "time to the first token, with its range", (r) => r.latency.ttft_ms.value, (v, r) => ranged(r.latency.ttft_ms), "ascending"),
    n("TPOT", "time of each token after the first, with its range", tpot, (v, r) => ranged(r.latency.tpot_ms), "ascending"),
    n("tok/s/GPU", "output tokens per second and GPU", perGpu, format.figure),
    { name: "Bound", text: true, title: "what a decode step waits for most", value: (r) => r.latency.bound },
    n("Idle", "GPUs without work", (r) => r.layout.idle_gpus, (v) => (v ? h("span", {}, mark("idle"), ` ${v}`) : "0"), "ascending"),
  ];
}

/** The layout; it leads to what lies on one of its GPUs. */
function layoutCell(row, context) {
  const l = row.layout;
  const tag = (key, label) => l[key] > 1 && h("span", { class: "tag", text: `${label} ${l[key]}` });
  const main = [`TP ${l.tp}`, l.pp > 1 && `PP ${l.pp}`, l.dp > 1 && `${l.dp} replicas`].filter(Boolean).join(" × ");
  return h("span", { class: "layout" }, h("a", { href: context.link({ screen: "memory", layout: keyOf(l) }), title: "what lies on one GPU", text: main }), tag("ep", "EP"), tag("attention_dp", "attention DP"), tag("dcp", "DCP"),
    row.placement.tp_crosses_nodes && h("span", { class: "tag", title: "TP crosses nodes", text: "across nodes" }),
    row.meets_slo === false && h("span", { class: "tag refused", text: "✕ misses SLO" }));
}

function ranged(estimate) {
  return h("span", { class: "ranged", title: `${format.range(estimate)}; ${estimate.basis}` }, format.ms(estimate.value),
    h("span", { class: "spread", text: ` ${format.figure(estimate.low)}–${format.figure(estimate.high)}` }));
}

/** The change of an advice as state, where the question has a control for it. */
function tried(change) {
  const [name, value] = change.split("=");
  return name === "kv_cache_dtype" ? { kv: value } : null;
}

function advice(plan, context) {
  if (!plan.advice.length) return null;
  const gain = (words, factor) => factor && Math.abs(factor - 1) > 0.005 && h("span", { class: "tag", text: `${words} ${format.times(factor)}` });
  return h("section", { class: "advice" }, h("h2", { text: "What would help" }),
    h("ul", {}, plan.advice.map((a) => h("li", {}, h("code", { text: a.change }), gain("KV", a.kv_tokens_gain), gain("speed", a.tpot_gain),
      gain("cost", a.cost_factor), tried(a.change) && h("a", { class: "try", href: context.link(tried(a.change)), text: "Try it" }), h("p", { text: a.message })))));
}

/** What the plan and its first layout warn of. */
function warnings(plan) {
  const all = [...plan.warnings, ...(plan.layouts[0]?.warnings ?? [])];
  if (!all.length) return null;
  return h("section", { class: "advice" }, h("h2", { text: "Mind" }), h("ul", {}, all.map((w) => h("li", {}, mark("rough"), " ", h("p", { text: w.message })))));
}

function refused(plan) {
  if (!plan.refused.length) return null;
  const counts = plan.refused_counts.map((c) => `${format.words(c.code)}: ${c.count}`).join(" · ");
  const list = table([
    { name: "Layout", text: true, value: (r) => format.layout(r.layout), show: (r) => h("span", {}, mark("refused"), " ", format.layout(r.layout)) },
    { name: "Rule", text: true, value: (r) => format.words(r.code) },
    { name: "Why", wide: true, value: (r) => r.message },
    { name: "Nearest", text: true, value: (r) => (r.nearest ? format.layout(r.nearest) : null) },
  ], { caption: "Refused layouts" });
  list.rows(plan.refused);
  const total = plan.refused_counts.reduce((sum, c) => sum + c.count, 0);
  return fold([mark("refused"), ` ${total} refused `, h("span", { class: "quiet", text: counts })], list.element);
}

function assumptions(plan) {
  const list = table([
    { name: "Constant", text: true, value: (a) => a.name, show: (a) => h("span", { class: "mono", text: a.name }) },
    { name: "Value", value: (a) => a.value, show: (a) => `${a.value} ${a.unit}`.trim() },
    { name: "Source", wide: true, value: (a) => (a.given ? `given by you` : a.source) },
  ], { caption: "Assumptions" });
  list.rows(plan.assumptions);
  return fold(`${plan.assumptions.length} assumptions`, list.element);
}

function launch(row) {
  if (!row?.launch) return null;
  return fold(["Start the first layout ", h("span", { class: "quiet", text: format.layout(row.layout) })],
    h("pre", {}, h("code", { text: row.launch.command })), copyButton("Copy", () => row.launch.command));
}
