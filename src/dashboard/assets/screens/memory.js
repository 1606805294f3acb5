/** Screen 3, One GPU's memory: what lies on it in each stage, by item, under three engines; what each figure rests on. */

import { chart } from "../chart.js";
import { coded, fill, h } from "../dom.js";
import * as format from "../format.js";
import { kinds, layoutPicker, nothingFits, only, plan } from "../layouts.js";
import { mark, table } from "../parts.js";

export const id = "memory";
export const title = "One GPU’s memory";
export const calls = ["POST /v1/plans"];
export const keys = { layout: "", "memory.item": "" };

const ENGINES = ["vllm", "sglang", "tensorrt-llm"];

/** What lies on a GPU, from the left: words, colour, the field of a stage, and the item that has its range. */
const ITEMS = [
  { key: "weights", words: "Weights", colour: (c) => c.series[0], bytes: (s) => s.weights_bytes },
  { key: "activation", words: "Activations", colour: (c) => c.series[2], bytes: (s) => s.activation_bytes, item: "activation" },
  { key: "runtime", words: "Runtime and buffers", colour: (c) => c.series[4], bytes: (s) => s.runtime_bytes, item: "runtime" },
  { key: "cuda_graph", words: "CUDA graphs", colour: (c) => c.series[5], bytes: (s) => s.cuda_graph_bytes, item: "cuda_graph" },
  { key: "state", words: "States", colour: (c) => c.series[6], bytes: (s) => s.state_bytes },
  { key: "kv", words: "KV cache", colour: (c) => c.series[1], bytes: (s) => s.kv_distinct_bytes },
  { key: "copies", words: "KV copies", colour: (c) => c.copiesFill, bytes: (s) => s.kv_copied_bytes },
];
const KV = (item) => item.key === "kv" || item.key === "copies";

export function render(root, context) {
  const picker = layoutPicker(context);
  const sentence = h("p", { class: "sentence" });
  const missing = h("p", { class: "quiet missing" });
  const bars = chart({ title: "One GPU of each stage, GiB", height: 300 });
  const detail = h("section", { class: "detail", "aria-live": "polite" });
  const items = table(columns(context), { caption: "Every item", row: (row) => ({ class: row.id === context.state["memory.item"] ? "chosen" : null }) });
  const list = h("div", {}, h("div", { class: "table-head" }, h("h2", { text: "Every item" }), h("p", { class: "quiet", text: "Choose one to see what it rests on." })), items.element);
  root.append(picker.element, sentence, missing, bars.element, detail, list);

  return async function refresh() {
    const answer = await plan(context);
    const chosen = picker.choose(answer);
    for (const part of [missing, bars.element, detail, list]) part.hidden = !chosen;
    if (!chosen) return void fill(sentence, nothingFits(answer.answer, context));
    const request = context.request();
    const engines = [request.engine.name, ...ENGINES.filter((name) => name !== request.engine.name)];
    const compared = await context.call("POST", "/v1/plans", {
      ...request, engine: engines.map((name) => ({ ...request.engine, name })), search: only(chosen.layout), limit: engines.length * kinds(answer),
    });
    const layouts = engines.map((name) => compared.layouts.find((row) => row.engine.name === name && row.layout.gpu === chosen.layout.gpu)).filter(Boolean);
    const rows = layouts.flatMap(stages);
    fill(sentence, reading(layouts[0] ?? chosen));
    const absent = compared.refused.filter((r) => !layouts.some((row) => row.engine.name === r.engine.name));
    fill(missing, absent.map((r) => h("span", {}, mark("refused"), ` ${format.engine(r.engine.name)}: `, coded(r.message), " ")));
    items.rows(rows.flatMap(itemsOf));
    fill(detail, explained(rows, context.state["memory.item"]));
    bars.height(64 + rows.length * 56);
    await bars.draw(drawn(rows, context));
  };
}

function reading(row) {
  const stage = row.memory.stages[row.memory.binding_stage] ?? row.memory.stages[0];
  const where = row.memory.stages.length > 1 ? `On a GPU of stage ${stage.stage}, which is full first,` : "On each GPU";
  const words = [`${where} ${format.layout(row.layout)} leaves ${format.bytes(stage.kv_bytes)} of ${format.bytes(row.memory.gpu_bytes)} for the cache`];
  if (stage.kv_copied_bytes > 0) words.push(", ", h("strong", { class: "copies-figure" }, mark("copies"), ` ${format.bytes(stage.kv_copied_bytes)} of it copies`));
  return [...words, "."];
}

/** Stages of a layout as bars; neighbours that hold the same are one. */
function stages(row) {
  const out = [];
  for (const stage of row.memory.stages) {
    const { stage: first, first_layer: a, last_layer: b, ...same } = stage;
    const holds = JSON.stringify([same, stage.stage === row.memory.binding_stage]);
    const last = out.at(-1);
    if (last?.holds === holds) last.to = stage;
    else out.push({ row, stage, to: stage, holds });
  }
  for (const bar of out) {
    const engine = `${format.engine(row.engine.name)} ${row.engine.version}`;
    const stretch = bar.to === bar.stage ? `stage ${bar.stage.stage}` : `stages ${bar.stage.stage}–${bar.to.stage}`;
    bar.engine = engine;
    bar.place = row.memory.stages.length > 1 ? stretch : `layers ${bar.stage.first_layer}–${bar.to.last_layer}`;
    bar.name = `${engine}<br>${bar.place}`;
  }
  return out;
}

function itemsOf(bar) {
  return ITEMS.filter((item) => item.bytes(bar.stage) > 0).map((item) => {
    const known = bar.stage.items.find((i) => i.name === item.item);
    return { ...item, bar, bytes: item.bytes(bar.stage), range: known, id: `${bar.row.engine.name}.${bar.stage.stage}.${item.key}`, confidence: known ? "modelled" : KV(item) ? "what is left" : "exact" };
  });
}

function columns(context) {
  return [
    { name: "Item", text: true, value: (r) => r.words, show: (r) => h("button", { type: "button", class: "row-button", "aria-pressed": r.id === context.state["memory.item"],
      on: { click: () => context.set({ "memory.item": r.id }) } }, r.key === "copies" ? [mark("copies"), " "] : null, r.words) },
    { name: "Engine", text: true, value: (r) => r.bar.engine },
    { name: "Where", text: true, value: (r) => r.bar.place },
    { name: "Size", value: (r) => r.bytes, show: (r) => format.bytes(r.bytes) },
    { name: "Bytes", value: (r) => r.bytes, show: (r) => format.integer(r.bytes) },
    { name: "Between", value: (r) => r.range?.low_bytes ?? null, show: (r) => (r.range ? `${format.bytes(r.range.low_bytes)} – ${format.bytes(r.range.high_bytes)}` : "–") },
    { name: "Confidence", text: true, value: (r) => r.confidence, show: (r) => (r.range ? h("span", {}, mark("rough"), ` ${r.confidence}`) : r.confidence) },
  ];
}

/** What one item rests on, in words and with its factors. */
function explained(bars, chosen) {
  const found = bars.flatMap(itemsOf).find((item) => item.id === chosen);
  if (!found) return null;
  const { bar } = found;
  return [h("h2", { text: `${found.words}: ${format.bytes(found.bytes)}` }),
    h("p", { class: "quiet", text: `${bar.engine}, ${bar.place} of ${format.layout(bar.row.layout)}` }),
    h("dl", {}, facts(found).map(([name, words]) => [h("dt", { text: name }), h("dd", {}, words)]))];
}

function facts(item) {
  const { stage, row } = item.bar;
  const exact = ["Bytes", format.integer(item.bytes)];
  if (item.key === "weights") {
    return [exact, ["Formula", `every tensor of layers ${stage.first_layer}–${item.bar.to.last_layer}, split as the engine splits it over TP=${row.layout.tp}, with its scales`],
      ["Held whole by every GPU", format.bytes(stage.weights_replicated_bytes)], ["Confidence", "exact: a sum over the model’s tensors"]];
  }
  if (KV(item)) {
    const rest = [stage.weights_bytes, stage.activation_bytes, stage.runtime_bytes, stage.cuda_graph_bytes].filter(Boolean).map(format.bytes).join(" − ");
    const { kv } = row;
    return [exact, ["Formula", `${format.bytes(row.memory.budget_bytes)} that the engine may use − ${rest} = ${format.bytes(stage.kv_bytes)} for the cache`],
      ["A token takes", `${format.integer(stage.kv_bytes_per_token)} B on this GPU (${kv.kv_heads_per_gpu} KV head${kv.kv_heads_per_gpu === 1 ? "" : "s"} of each layer)`],
      ["Copies", kv.replication_factor > 1 ? `each byte lies on ${format.figure(kv.replication_factor)} GPUs, so the copies are (1 − 1/${format.figure(kv.replication_factor)}) of the cache` : "none: each byte lies on one GPU of the replica"],
      ["Holds", `${format.integer(row.capacity.kv_tokens_per_replica)} tokens a replica`], ["The engine will say", row.capacity.engine_log_line]];
  }
  const sources = row.memory.sources.filter((s) => (s.name === item.item || (item.key === "runtime" && s.name === "buffers")) && (!s.stages || s.stages.includes(stage.stage)));
  return [exact, ["Between", item.range ? `${format.bytes(item.range.low_bytes)} and ${format.bytes(item.range.high_bytes)}` : "–"],
    ...sources.map((s) => [s.name === "buffers" ? "Buffers rest on" : "Rests on", `${s.source} (${s.basis})`])];
}

function drawn(bars, context) {
  const chosen = context.state["memory.item"];
  const gib = (n) => n / 2 ** 30;
  const names = bars.map((bar) => bar.name);
  const make = (c) => {
    const traces = ITEMS.map((item) => ({ item, cells: bars.map((bar) => itemsOf(bar).find((i) => i.key === item.key)) })).filter(({ cells }) => cells.some(Boolean)).map(({ item, cells }) => ({
      type: "bar", orientation: "h", name: item.words, y: names, x: cells.map((cell) => (cell ? gib(cell.bytes) : 0)), customdata: cells.map((cell) => cell?.id ?? ""),
      marker: { color: item.colour(c), line: { width: cells.map((cell) => (cell && cell.id === chosen ? 2.5 : 0.75)), color: cells.map((cell) => (cell && cell.id === chosen ? c.text : c.ground)) },
        pattern: item.key === "copies" ? { shape: "/", fillmode: "overlay", fgcolor: c.copies, size: 7, solidity: 0.3 } : item.item ? { shape: "\\", fillmode: "overlay", fgcolor: c.ground, fgopacity: 0.55, size: 6, solidity: 0.2 } : {} },
      hovertext: cells.map((cell) => (cell ? `${cell.words}<br>${format.bytes(cell.bytes)}<br>${cell.confidence}` : "")), hoverinfo: "text",
    }));
    const limit = (name, of, colour, dash) => ({ type: "scatter", mode: "markers", name, y: names, x: bars.map((bar) => gib(of(bar.row.memory))), marker: { symbol: dash ? "line-ns-open" : "line-ns", size: 34, line: { color: colour, width: dash ? 2 : 3 }, color: colour },
      hovertext: bars.map((bar) => `${name}<br>${format.bytes(of(bar.row.memory))}`), hoverinfo: "text" });
    traces.push(limit("the engine may use", (m) => m.budget_bytes, c.quiet, true), limit("the GPU has", (m) => m.gpu_bytes, c.text, false));
    return { traces, layout: { barmode: "stack", bargap: 0.35, yaxis: { autorange: "reversed", showgrid: false, tickfont: { color: c.text } }, xaxis: { title: { text: "GiB" }, rangemode: "tozero" } } };
  };
  return {
    make,
    alt: "Hatched items are modelled and have a range; amber is what copies take. Marks: what the engine may use, and what the GPU has.",
    click: (point) => point.customdata && context.set({ "memory.item": point.customdata }),
  };
}
