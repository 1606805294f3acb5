/**
 * Screen 7, What if: the plan as asked beside the same with one thing changed, and every such change by how far it moves
 * sequences and TPOT.
 *
 * Each change is a question of one batch. Bars run from the figure as asked to the figure of the change; both are the API's.
 */

import { Problem } from "../api.js";
import { chart } from "../chart.js";
import { coded, fill, h } from "../dom.js";
import * as format from "../format.js";
import { fold, mark, table } from "../parts.js";

export const id = "whatif";
export const title = "What if";
export const calls = ["POST /v1/clusters:parse", "POST /v1/batches"];
export const keys = { "whatif.change": "" };

/** What a change may do to a question: `with(body, pools)` returns the changed body, or null where it changes nothing. */
const CHANGES = [
  { control: "KV cache", id: "kv-fp8", words: "fp8", with: (b) => engine(b, "kv_cache_dtype", "fp8") },
  { control: "Weights", id: "weights-fp8", words: "fp8", with: (b) => ({ ...b, model: weighted(b.model, "fp8") }) },
  { control: "Weights", id: "weights-int4", words: "int4", with: (b) => ({ ...b, model: weighted(b.model, "int4") }) },
  { control: "Context", id: "context-half", words: "half", with: (b) => context(b, 0.5) },
  { control: "Context", id: "context-double", words: "double", with: (b) => context(b, 2) },
  { control: "Users at once", id: "users-half", words: "half", with: (b) => load(b, "concurrency", 0.5) },
  { control: "Users at once", id: "users-double", words: "double", with: (b) => load(b, "concurrency", 2) },
  { control: "Prompt", id: "prompt-half", words: "half", with: (b) => load(b, "input_tokens", 0.5) },
  { control: "Prompt", id: "prompt-double", words: "double", with: (b) => load(b, "input_tokens", 2) },
  ...["a100", "h100", "h200", "b200"].map((gpu) => ({ control: "GPU", id: `gpu-${gpu}`, words: gpu.toUpperCase(), with: (b, pools) => product(b, pools, gpu) })),
  { control: "Link between nodes", id: "link-ethernet", words: "100 Gb/s Ethernet", with: (b, pools) => link(b, pools, "ethernet-100") },
  { control: "Link between nodes", id: "link-infiniband", words: "InfiniBand NDR", with: (b, pools) => link(b, pools, "infiniband-ndr") },
  { control: "Nodes", id: "nodes-double", words: "twice as many", with: (b, pools) => pools && ({ ...b, cluster: pooled(pools, (p) => ({ nodes: p.nodes * 2 })) }) },
  { control: "Engine", id: "engine-vllm", words: "vLLM", with: (b) => engine(b, "name", "vllm") },
  { control: "Engine", id: "engine-sglang", words: "SGLang", with: (b) => engine(b, "name", "sglang") },
  { control: "Engine", id: "engine-trtllm", words: "TensorRT-LLM", with: (b) => engine(b, "name", "tensorrt-llm") },
];

const engine = (body, key, value) => (body.engine[key] === value ? null : { ...body, engine: { ...body.engine, [key]: value } });
const weighted = (model, weights) => (typeof model === "string" ? { id: model, weights } : { ...model, weights });

/** A figure of the load, scaled; the context is the engine's longest sequence too. */
function load(body, key, factor) {
  const now = body.workload[key];
  const next = Math.round(now * factor);
  return Number.isFinite(now) && next >= 1 ? { ...body, workload: { ...body.workload, [key]: next } } : null;
}
function context(body, factor) {
  const changed = load(body, "context_tokens", factor);
  return changed && { ...changed, engine: { ...changed.engine, max_model_len: changed.workload.context_tokens } };
}

/** The same nodes with something else in them. Their links are given only where they stay. */
function pooled(pools, change) {
  return { node_pools: pools.map((p) => {
    const same = { nodes: p.nodes, gpus_per_node: p.gpus_per_node, gpu: p.gpu, intra_link: p.intra_link, ...(p.inter_link ? { inter_link: p.inter_link } : {}) };
    return { ...same, ...change(p) };
  }) };
}
function product(body, pools, gpu) {
  if (!pools || pools.every((p) => p.gpu.startsWith(gpu))) return null;
  return { ...body, cluster: { node_pools: pools.map((p) => ({ nodes: p.nodes, gpus_per_node: p.gpus_per_node, gpu })) } };
}
function link(body, pools, key) {
  if (!pools || pools.every((p) => p.nodes < 2) || pools.every((p) => p.inter_link === key)) return null;
  return { ...body, cluster: pooled(pools, () => ({ inter_link: key })) };
}

const sequences = (plan) => (plan?.feasible ? plan.layouts[0].capacity.sequences_total : null);
const tpot = (plan) => (plan?.feasible ? plan.layouts[0].latency.tpot_ms.value : null);

export function render(root, context) {
  const reading = h("p", { class: "reading" });
  const picker = h("select", { id: "whatif-change", on: { change: () => context.set({ "whatif.change": picker.value }) } });
  const sides = h("div", { class: "sides" });
  const choose = (point) => point.customdata && context.set({ "whatif.change": point.customdata });
  const more = chart({ title: "Sequences of the context", height: 430 });
  const faster = chart({ title: "TPOT: time for each further token", height: 430 });
  const body = h("div", {}, h("div", { class: "field whatif-pick" }, h("label", { for: picker.id, text: "Beside it, the same with" }), picker), sides,
    h("h2", { class: "spaced", text: "What each change would do" }),
    h("p", { class: "quiet", text: "Each bar runs from the plan as asked to the plan with that one change, the best layout each time; the longest first. Choose a bar to see its plan above." }),
    h("div", { class: "two-charts" }, more.element, faster.element));
  const lacking = table([
    { name: "Change", text: true, value: (row) => row.label, show: (row) => h("span", {}, mark("refused"), ` ${row.label}`) },
    { name: "Still missing on a GPU", value: (row) => row.why?.short_by_bytes ?? null, show: (row) => (row.why?.short_by_bytes ? format.bytes(row.why.short_by_bytes) : "–") },
    { name: "Why", wide: true, value: (row) => row.said, show: (row) => coded(row.said) },
  ], { caption: "Changes with which it does not fit", sort: "Still missing on a GPU" });
  const failed = fold("", lacking.element);
  root.append(reading, body, failed);

  return async function refresh() {
    const base = context.request();
    const parsed = await context.call("POST", "/v1/clusters:parse", { cluster: base.cluster });
    const changes = CHANGES.map((change) => ({ ...change, body: change.with(base, parsed.cluster.node_pools) })).filter((change) => change.body);
    const batch = await context.call("POST", "/v1/batches", { items: [base, ...changes.map((change) => change.body)] });
    const [now, ...others] = batch.items;
    if (now.problem) throw new Problem({ status: now.status, ...now.problem });
    const tried = changes.map((change, i) => ({ ...change, label: `${change.control}: ${change.words}`, plan: others[i].plan, problem: others[i].problem }));
    const rows = tried.filter((row) => row.plan?.feasible);
    const failing = tried.filter((row) => !row.plan?.feasible);
    const chosen = rows.find((row) => row.id === context.state["whatif.change"]) ?? byReach(rows, sequences, now.plan)[0];
    fill(picker, byControl(rows).map(([control, list]) => h("optgroup", { label: control }, list.map((row) => h("option", { value: row.id, selected: row === chosen, text: `${control}: ${row.words}` })))));
    reading.textContent = `${now.plan.answer}${rows.length ? "" : " None of the changes that are tried here would make it fit."}`;
    failed.hidden = failing.length === 0;
    fill(failed.querySelector("summary"), mark("refused"), ` With ${failing.length} of ${changes.length} changes it does not fit`);
    failed.open ||= rows.length === 0;
    lacking.rows(failing.map((row) => ({ ...row, why: row.plan?.why_not, said: row.problem?.detail ?? row.plan?.why_not?.message ?? "" })));
    body.hidden = rows.length === 0;
    if (!rows.length) return;
    fill(sides, sideBySide(now.plan, chosen));
    await Promise.all([
      tornado(more, rows, now.plan, { of: sequences, words: "whole sequences", show: format.integer, choose }),
      tornado(faster, rows, now.plan, { of: tpot, words: "TPOT, ms", show: format.ms, choose }),
    ]);
  };
}

function byControl(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(row.control, [...(groups.get(row.control) ?? []), row]);
  return [...groups];
}

/** Those that move the figure furthest come first. */
function byReach(rows, of, now) {
  const base = of(now) ?? 0;
  return rows.toSorted((a, b) => Math.abs(of(b.plan) - base) - Math.abs(of(a.plan) - base));
}

/** One bar for each change that moves the figure. */
async function tornado(plot, rows, now, { of, words, show, choose }) {
  const base = of(now);
  const bars = byReach(rows, of, now).filter((bar) => of(bar.plan) !== base).toReversed();
  const narrow = plot.element.clientWidth < 480;
  plot.element.querySelector(".plot").style.setProperty("--plot-height", `${Math.max(180, 84 + (narrow ? 36 : 27) * bars.length)}px`);
  const end = (bar) => Math.max(of(bar.plan), base ?? 0);
  await plot.draw({
    make: (c) => ({
      traces: [{
        type: "bar", orientation: "h", y: bars.map((bar) => bar.label), base: bars.map(() => base ?? 0), x: bars.map((bar) => of(bar.plan) - (base ?? 0)), customdata: bars.map((bar) => bar.id),
        // the better way has the accent, the worse is grey: fewer ms is better, more sequences is better
        marker: { color: bars.map((bar) => (of(bar.plan) > (base ?? 0) === (of === sequences) ? c.series[0] : c.series[6])) },
        hovertext: bars.map((bar) => `${bar.label}<br>${base === null ? "does not fit" : show(base)} → ${show(of(bar.plan))}<br>${format.layout(bar.plan.layouts[0].layout)}`), hovertemplate: "%{hovertext}<extra></extra>",
      }, {
        // the figure stands to the right of its bar, whichever way the bar runs: to the left are the names
        type: "scatter", mode: "text", y: bars.map((bar) => bar.label), x: bars.map(end), text: bars.map((bar) => ` ${show(of(bar.plan))}`), textposition: "middle right", textfont: { color: c.text, size: 12 }, cliponaxis: false, hoverinfo: "skip",
      }],
      layout: {
        bargap: 0.35, showlegend: false, xaxis: { title: { text: words }, rangemode: "tozero", nticks: narrow ? 4 : 6, tickangle: 0, ...room(bars.map((bar) => of(bar.plan)), base ?? 0) }, yaxis: {
          gridcolor: "rgba(0,0,0,0)", tickfont: { color: c.text, size: narrow ? 11.5 : 12.5 }, tickvals: bars.map((bar) => bar.label),
          ticktext: bars.map((bar) => (narrow ? `${bar.control}<br>${bar.words}` : bar.label)),
        },
        shapes: [{ type: "line", xref: "x", yref: "paper", x0: base ?? 0, x1: base ?? 0, y0: 0, y1: 1, line: { color: c.text, width: 1.5 } }],
        annotations: [{ xref: "x", yref: "paper", x: base ?? 0, y: 1, yanchor: "bottom", showarrow: false, text: base === null ? "as asked it does not fit" : `as asked: ${show(base)}`, xanchor: base === null ? "left" : "auto", font: { size: 12, color: c.quiet } }],
        margin: { t: 28, r: 24 },
      },
    }),
    alt: `${base === null ? "As asked it does not fit" : `As asked ${show(base)}`} (${words}). ${bars.toReversed().slice(0, 3).map((bar) => `${bar.label}: ${show(of(bar.plan))}`).join("; ")}.`,
    click: choose,
    table: {
      columns: [{ name: "Change", text: true, value: (row) => `${row.control}: ${row.words}` }, { name: "As asked", value: () => base, show: () => show(base) },
        { name: "Then", value: (row) => of(row.plan), show: (row) => show(of(row.plan)) }, { name: "Best layout", text: true, value: (row) => format.layout(row.plan.layouts[0].layout) }],
      rows,
    },
  });
}

/** Room at both ends for the figure beside a bar. */
function room(values, base) {
  const all = [...values, base];
  const most = Math.max(...all);
  return { range: [0, most * 1.22 || 1] };
}

/** What is compared, and which way is better: 1 more, -1 less, 0 neither. */
const LINES = [
  ["Layout", (l) => format.layout(l.layout), null, 0],
  ["KV tokens", (l) => format.integer(l.capacity.kv_tokens_total), (l) => l.capacity.kv_tokens_total, 1],
  ["Sequences of the context", (l) => format.integer(l.capacity.sequences_total), (l) => l.capacity.sequences_total, 1],
  ["Longest single sequence", (l) => format.integer(l.capacity.max_sequence_tokens), (l) => l.capacity.max_sequence_tokens, 1],
  ["Copies of the cache", (l) => (l.kv.replication_factor > 1 ? [mark("copies"), ` ${format.times(l.kv.replication_factor)}`] : "none"), (l) => l.kv.replication_factor, -1],
  ["TTFT", (l) => format.range(l.latency.ttft_ms), (l) => l.latency.ttft_ms.value, -1],
  ["TPOT", (l) => format.range(l.latency.tpot_ms), (l) => l.latency.tpot_ms.value, -1],
  ["Output tokens/s of a GPU", (l) => format.figure(l.throughput.output_tokens_per_s_per_gpu), (l) => l.throughput.output_tokens_per_s_per_gpu, 1],
  ["$ per million output tokens", (l) => format.usd(l.cost.usd_per_million_output_tokens), (l) => l.cost.usd_per_million_output_tokens, -1],
  ["Idle GPUs", (l) => format.integer(l.layout.idle_gpus), (l) => l.layout.idle_gpus, -1],
];

/** Both plans, line by line. */
function sideBySide(now, chosen) {
  const left = now.feasible ? now.layouts[0] : null;
  const right = chosen?.plan.layouts[0] ?? null;
  const better = (of, way) => {
    if (!of || !left || !right || of(left) === null || of(left) === of(right)) return null;
    const good = (of(right) > of(left)) === (way > 0);
    return h("span", { class: `way ${good ? "good" : "worse"}` }, h("span", { "aria-hidden": "true", text: of(right) > of(left) ? " ↑" : " ↓" }), h("span", { class: "unseen", text: good ? " better" : " worse" }));
  };
  return h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Both plans" }, h("table", { class: "compare" },
    h("caption", { class: "unseen", text: "Best layout as asked and with the change" }),
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "text", text: "Best layout" }), h("th", { scope: "col", text: "As asked" }), h("th", { scope: "col", text: chosen ? `${chosen.control}: ${chosen.words}` : "–" }))),
    h("tbody", {}, LINES.map(([words, show, of, way]) => h("tr", {}, h("th", { scope: "row", class: "text", text: words }),
      h("td", {}, left ? show(left) : "does not fit"), h("td", {}, right ? show(right) : "–", way !== 0 && better(of, way)))))));
}
