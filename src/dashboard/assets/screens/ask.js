/** Screen 1, Ask: what fits, in a sentence, in three cards and in a table; what does not, and why; what would help. */

import { coded, fill, h } from "../dom.js";
import * as format from "../format.js";
import { keyOf, kinds, nameOf, plan as planOf } from "../layouts.js";
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
  let mixed = false;
  const sort = context.state["ask.sort"];
  const layouts = table(columns(context, () => mixed), {
    caption: "Layouts",
    first: 12,
    sort: sort.replace(/^-/, "") || undefined,
    descending: sort.startsWith("-"),
    sorted: (by) => context.set({ "ask.sort": by }),
    row: (row) => ({ class: row.kv.replication_factor > 1 ? "copies" : null }),
  });
  const inside = toggle({ label: "TP within a node", value: context.state["ask.node"] === "1", change: (on) => context.set({ "ask.node": on ? "1" : "" }) });
  const below = h("div", { class: "below" });
  const head = h("div", { class: "table-head" }, h("h2", { text: "Layouts" }), count, inside.element);
  root.append(sentence, side, cards, head, layouts.element, below);

  return async function refresh() {
    const plan = await planOf(context);
    sentence.textContent = plan.answer;
    fill(side, facts(plan));
    const rows = plan.layouts;
    mixed = kinds(plan) > 1;
    fill(cards, plan.feasible ? threeCards(rows, mixed) : null);
    count.textContent = `${format.integer(plan.total_feasible)} of ${format.integer(plan.total_considered)} layouts fit`
      + (plan.total_feasible > rows.length ? `; the first ${rows.length} are shown` : "");
    inside.set(context.state["ask.node"] === "1");
    layouts.rows(context.state["ask.node"] === "1" ? rows.filter((row) => !row.placement.tp_crosses_nodes) : rows);
    layouts.element.hidden = head.hidden = cards.hidden = rows.length === 0;
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
function threeCards(rows, mixed) {
  const card = (...parts) => cardOf(mixed, ...parts);
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

function cardOf(mixed, title, row, big, more) {
  const [value, unit] = big(row);
  return h("section", { class: "card" }, h("h2", { text: title }),
    h("p", { class: "big" }, h("span", { class: "value", text: value }), " ", h("span", { class: "unit", text: unit })),
    h("p", {}, h("strong", { text: nameOf(row, mixed) }), row.kv.replication_factor > 1 ? [" ", mark("copies")] : null),
    h("p", { class: "quiet", text: more(row) }));
}

function columns(context, mixed) {
  const n = (name, title, value, show, first = "descending") => ({ name, title, value, show: show && ((row) => show(value(row), row)), first });
  return [
    { name: "Layout", text: true, value: (r) => format.layout(r.layout), show: (row) => layoutCell(row, context, mixed()) },
    n("Weights", "bytes of weights on the fullest GPU", (r) => Math.max(...r.memory.stages.map((s) => s.weights_bytes)), format.bytes, "ascending"),
    n("KV tokens", "distinct tokens of cache, all replicas", (r) => r.capacity.kv_tokens_total, format.integer),
    n("KV copies", "replication factor: GPUs of a replica that hold the same KV bytes", (r) => r.kv.replication_factor,
      (v) => (v > 1 ? h("span", { class: "copies-figure" }, mark("copies"), ` ${format.times(v)}`) : format.times(v)), "ascending"),
    n("Sequences", "sequences of the context that fit at once, all replicas", (r) => r.capacity.sequences_total, format.integer),
    n("Longest", "longest single sequence, tokens", (r) => r.capacity.max_sequence_tokens, format.context),
    n("TTFT", "time to the first token, with its range", (r) => r.latency.ttft_ms.value, (v, r) => ranged(r.latency.ttft_ms), "ascending"),
    n("TPOT", "time of each token after the first, with its range", tpot, (v, r) => ranged(r.latency.tpot_ms), "ascending"),
    n("tok/s/GPU", "output tokens per second and GPU", perGpu, format.figure),
    { name: "Bound", text: true, title: "what a decode step waits for most", value: (r) => format.bound(r.latency.bound) },
    n("Idle", "GPUs without work", (r) => r.layout.idle_gpus, (v) => (v ? h("span", {}, mark("idle"), ` ${v}`) : "0"), "ascending"),
  ];
}

/** The layout, which leads to what lies on one of its GPUs; beneath it what is special about it. */
function layoutCell(row, context, mixed) {
  const l = row.layout;
  const tag = (text, title) => h("span", { class: "tag", title, text });
  const sized = (key, label, title) => l[key] > 1 && tag(`${label}=${l[key]}`, title);
  const main = format.layout({ tp: l.tp, pp: l.pp, dp: l.dp });
  const tags = [mixed && tag(format.product(l.gpu), "the GPUs it is on"), sized("ep", "EP", "experts dealt over so many GPUs"), sized("attention_dp", "attention DP", "groups that attend to their own sequences"),
    sized("dcp", "DCP", "GPUs that share the positions of a cache"), row.placement.tp_crosses_nodes && tag("across nodes", "TP crosses nodes"),
    row.meets_slo === false && h("span", { class: "tag refused", text: "✕ misses a limit" })].filter(Boolean);
  return h("span", { class: "layout" }, h("a", { href: context.link({ screen: "memory", layout: keyOf(l, mixed) }), title: `what lies on one GPU${l.dp > 1 ? `; ${l.dp} replicas` : ""}`, text: main }),
    tags.length > 0 && h("span", { class: "tags" }, tags));
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
      gain("cost", a.cost_factor), tried(a.change) && h("a", { class: "try", href: context.link(tried(a.change)), text: "Try it" }), h("p", {}, coded(a.message))))));
}

/** What the plan and its first layout warn of. */
function warnings(plan) {
  const all = [...plan.warnings, ...(plan.layouts[0]?.warnings ?? [])];
  if (!all.length) return null;
  return h("section", { class: "advice" }, h("h2", { text: "To be minded" }), h("ul", { class: "close" }, all.map((w) => h("li", {}, mark("caution"), " ", h("p", {}, coded(w.message))))));
}

function refused(plan) {
  if (!plan.refused.length) return null;
  const counts = plan.refused_counts.map((c) => `${format.words(c.code)}: ${c.count}`).join(" · ");
  const list = table([
    { name: "Layout", text: true, value: (r) => format.layout(r.layout), show: (r) => h("span", {}, mark("refused"), " ", format.layout(r.layout)) },
    { name: "Rule", text: true, value: (r) => format.words(r.code) },
    { name: "Why", wide: true, value: (r) => r.message, show: (r) => coded(r.message) },
    { name: "Nearest", text: true, value: (r) => (r.nearest ? format.layout(r.nearest) : null) },
  ], { caption: "Refused layouts" });
  list.rows(plan.refused);
  const total = plan.refused_counts.reduce((sum, c) => sum + c.count, 0);
  const folded = fold([mark("refused"), ` ${total} refused `, h("span", { class: "quiet", text: counts })], list.element);
  // where nothing fits the reasons are the answer
  folded.open = !plan.feasible;
  return folded;
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
