/** Screen 4, Step time: where the time of a decode step and of a prefill chunk goes, for one sequence and with a full cache. */

import { chart } from "../chart.js";
import { fill, h } from "../dom.js";
import * as format from "../format.js";
import { kinds, layoutPicker, nothingFits, only, plan } from "../layouts.js";
import { slider, table } from "../parts.js";

export const id = "step";
export const title = "Step time";
export const calls = ["POST /v1/plans"];
export const keys = { layout: "" };

/** The parts of a pass, in the order of the bar: field, words, colour, pattern. */
const PARTS = [
  ["weights", "reads of weights", (c) => c.series[0], ""],
  ["kv", "reads of the cache", (c) => c.series[1], ""],
  ["compute", "arithmetic", (c) => c.series[2], ""],
  ["communication_inside_nodes", "collectives inside a node", (c) => c.series[5], "x"],
  ["communication_between_nodes", "collectives between nodes", (c) => c.series[4], "\\"],
  ["pipeline", "hand-over between stages", (c) => c.series[3], "."],
  ["overhead", "the engine’s own work", (c) => c.series[6], "/"],
];

/** The bound as one would say it. */
const BOUND = {
  weights: "reads of weights: a larger batch costs little more",
  kv: "reads of the cache: shorter contexts or a narrower KV type would help most",
  compute: "arithmetic: the GPU’s peak is what limits it",
  communication: "collectives: a faster link or less TP would help most",
  overhead: "the engine’s own work: a larger batch would hide it",
};

export function render(root, context) {
  const picker = layoutPicker(context);
  const batch = slider({ label: "Sequences at once", values: Array.from({ length: 13 }, (_, i) => String(2 ** i)), value: context.state.users,
    show: (v) => format.integer(Number(v)), change: (users) => context.set({ users }) });
  const sentence = h("p", { class: "sentence" });
  const where = h("p", { class: "facts" });
  const decode = chart({ title: "One decode step: a token for every sequence", height: 210 });
  const prefill = chart({ title: "One prefill chunk", height: 140 });
  const under = chart({ title: "Under the roof of the GPU", height: 300 });
  const figures = h("div");
  const body = h("div", { class: "charts" }, decode.element, prefill.element, under.element, h("section", { class: "in-figures" }, h("h2", { text: "In figures" }), figures));
  root.append(h("div", { class: "pickers" }, picker.element, batch.element), sentence, where, body);

  return async function refresh() {
    const answer = await plan(context);
    const chosen = picker.choose(answer);
    body.hidden = batch.element.hidden = !chosen;
    batch.set(context.state.users);
    fill(where);
    if (!chosen) return void fill(sentence, nothingFits(answer.answer, context));
    const request = context.request();
    const at = (concurrency) => context.call("POST", "/v1/plans", { ...request, workload: { ...request.workload, concurrency }, search: only(chosen.layout), limit: kinds(answer) });
    const asked = request.workload.concurrency;
    const full = Math.max(1, chosen.capacity.sequences_total);
    const batches = [...new Set([1, asked, full].filter((n) => Number.isInteger(n) && n >= 1))].sort((a, b) => a - b);
    const rows = (await Promise.all(batches.map(at))).map((one) => one.layouts.find((row) => row.layout.gpu === chosen.layout.gpu)).filter(Boolean);
    // an asked batch beyond what fits is the full one
    const distinct = rows.filter((row, i) => rows.findIndex((other) => other.throughput.concurrency === row.throughput.concurrency) === i);
    fill(sentence, reading(distinct));
    fill(where, placed(chosen));
    fill(figures, inFigures([...distinct.map((row) => ({ name: `Decode, ${batchWords(row, full)}`, total: row.latency.decode_step_ms, parts: row.latency.decode_breakdown_ms, share: row.latency.communication_share })),
      { name: "Prefill chunk", total: chosen.latency.prefill_chunk_ms, parts: chosen.latency.prefill_breakdown_ms, share: chosen.latency.prefill_communication_share }]));
    await Promise.all([
      decode.draw(bars(distinct.map((row) => ({ name: batchWords(row, full), total: row.latency.decode_step_ms, parts: row.latency.decode_breakdown_ms })),
        distinct.map((row) => `${batchWords(row, full)}: ${format.ms(row.latency.decode_step_ms)}, bound by ${BOUND[row.latency.bound]?.split(":")[0] ?? row.latency.bound}`).join(". ") + ".")),
      prefill.draw(bars([{ name: "prefill chunk", total: chosen.latency.prefill_chunk_ms, parts: chosen.latency.prefill_breakdown_ms }],
        `${format.ms(chosen.latency.prefill_chunk_ms)} for a chunk of max_num_batched_tokens at the asked context; collectives take ${format.percent(chosen.latency.prefill_communication_share)} of it.`)),
      under.draw(underTheRoof(distinct, chosen)),
    ]);
  };
}

const batchWords = (row, full) => `${format.integer(row.throughput.concurrency)} sequence${row.throughput.concurrency === 1 ? "" : "s"}${row.throughput.concurrency >= full ? " (full)" : ""}`;

function reading(rows) {
  const [first] = rows;
  const last = rows.at(-1);
  const bound = (row) => BOUND[row.latency.bound] ?? row.latency.bound;
  const one = `Alone, a sequence waits ${format.ms(first.latency.decode_step_ms)} a step, most of it for ${bound(first).split(":")[0]}`;
  if (last === first) return `${one}.`;
  return `${one}; with the cache full of ${format.integer(last.throughput.concurrency)}, ${format.ms(last.latency.decode_step_ms)}, most of it for ${bound(last)}.`;
}

function placed(row) {
  const p = row.placement;
  return [`TP over ${p.tp_link ?? "no link"}${p.tp_crosses_nodes ? ", across nodes" : ""}`, p.pp_link && `PP over ${p.pp_link}`, p.ep_link && `EP over ${p.ep_link}`,
    `${format.integer(row.latency.all_reduces_per_pass)} all-reduces a pass`, `TPOT ${format.range(row.latency.tpot_ms)} at ${format.integer(row.throughput.concurrency)} at once (${row.latency.tpot_ms.basis})`]
    .filter(Boolean).join(" · ");
}

function bars(rows, alt) {
  const names = rows.map((row) => row.name);
  // what would be thinner than a line is left to the table
  const seen = Math.max(...rows.map((row) => row.total)) / 1000;
  const make = (c) => ({
    traces: PARTS.filter(([key]) => rows.some((row) => row.parts[key] > seen)).map(([key, words, colour, shape]) => ({
      type: "bar", orientation: "h", name: words, y: names, x: rows.map((row) => row.parts[key]),
      marker: { color: colour(c), line: { width: 0.75, color: c.ground }, pattern: shape ? { shape, fillmode: "overlay", fgcolor: c.ground, fgopacity: 0.5, size: 6, solidity: 0.2 } : {} },
      hovertext: rows.map((row) => `${words}<br>${format.ms(row.parts[key])}`), hoverinfo: "text",
    })),
    layout: {
      barmode: "stack", bargap: 0.4, xaxis: { title: { text: "ms" }, range: [0, seen * 1000] }, yaxis: { autorange: "reversed", showgrid: false, tickfont: { color: c.text }, type: "category" },
      margin: { r: 72 },
      annotations: rows.map((row) => ({ x: row.total, y: row.name, text: format.ms(row.total), showarrow: false, xanchor: "left", xshift: 8, font: { color: c.text, weight: 700 } })),
    },
  });
  return { make, alt };
}

/** The ends of a logarithmic axis, with room beyond the values in powers of ten. */
const ends = (values, below, above) => [Math.log10(Math.min(...values)) - below, Math.log10(Math.max(...values)) + above];

/** 989e12 → "989 TFLOP/s". */
const withUnit = (n, unit) => format.short(n).replace(/(\D?)$/, ` $1${unit}`);

/**
 * The roof and the passes on it. The line is drawn through what the API says the roof lets through: at each decode batch, at the
 * ridge, and at the prefill chunk.
 */
function underTheRoof(rows, chosen) {
  const { peak_flops: peak, ridge_flops_per_byte: ridge, prefill_chunk: chunk } = chosen.roof;
  const passes = rows.map((row) => ({ ...row.roof.decode, words: batchWords(row, Infinity), symbol: "circle" }));
  passes.push({ ...chunk, words: "prefill chunk", symbol: "square" });
  const line = [...passes.map((p) => [p.flops_per_byte, p.limit_flops_per_s]), [ridge, peak]].sort((a, b) => a[0] - b[0]);
  const hover = (p) => `${p.words}<br>${format.figure(p.flops_per_byte)} FLOP for each byte<br>${withUnit(p.flops, "FLOP")}, ${format.bytes(p.bytes)} on one GPU<br>at most ${withUnit(p.limit_flops_per_s, "FLOP/s")}`;
  const make = (c) => {
    const dots = (name, list, colour) => ({ name, mode: "markers+text", x: list.map((p) => p.flops_per_byte), y: list.map((p) => p.limit_flops_per_s), text: list.map((p) => p.words), textposition: list.map((_, i) => (i % 2 ? "top left" : "bottom right")),
      textfont: { color: c.text }, marker: { size: 12, color: colour, symbol: list.map((p) => p.symbol) }, hovertext: list.map(hover), hoverinfo: "text", cliponaxis: false });
    return {
      traces: [
        { name: "the roof", mode: "lines", x: line.map(([x]) => x), y: line.map(([, y]) => y), line: { color: c.quiet, width: 2 }, hoverinfo: "skip" },
        dots("decode step", passes.slice(0, -1), c.series[0]), dots("prefill chunk", passes.slice(-1), c.series[2]),
      ],
      layout: {
        xaxis: { type: "log", title: { text: "FLOP for each byte read" }, dtick: 1, range: ends(line.map(([x]) => x), 0.25, 0.25) },
        yaxis: { type: "log", title: { text: "FLOP/s at most" }, tickformat: "~s", dtick: 1, range: ends(line.map(([, y]) => y), 0.35, 0.6) }, margin: { r: 100 },
        shapes: [{ type: "line", x0: ridge, x1: ridge, yref: "paper", y0: 0, y1: 1, line: { color: c.line, width: 1, dash: "dash" } }],
        annotations: [["right", -8, "memory is the limit"], ["left", 8, "arithmetic is"]].map(([xanchor, xshift, text]) => ({ x: Math.log10(ridge), yref: "paper", y: 1, yanchor: "top", xanchor, xshift, text, showarrow: false, font: { color: c.quiet } })),
      },
    };
  };
  return {
    make,
    alt: `The GPU computes at most ${withUnit(peak, "FLOP/s")} and reads ${withUnit(chosen.roof.hbm_bytes_per_s, "B/s")}: from ${format.figure(ridge)} FLOP for each byte on, arithmetic is the limit. A larger batch moves a decode step to the right, until the cache it reads holds it back.`,
    table: { rows: passes, columns: [
      { name: "Pass", text: true, value: (p) => p.words },
      { name: "FLOP", value: (p) => p.flops, show: (p) => format.short(p.flops) },
      { name: "Bytes read", value: (p) => p.bytes, show: (p) => format.bytes(p.bytes) },
      { name: "FLOP/byte", value: (p) => p.flops_per_byte, show: (p) => format.figure(p.flops_per_byte) },
      { name: "At most FLOP/s", value: (p) => p.limit_flops_per_s, show: (p) => format.short(p.limit_flops_per_s) },
    ] },
  };
}

/** Every part of every pass: a row for each part. */
function inFigures(passes) {
  const rows = [...PARTS.map(([key, words]) => ({ words, cells: passes.map((pass) => pass.parts[key]) })), { words: "in all", cells: passes.map((pass) => pass.total) }];
  const figures = table([{ name: "Part", text: true, value: (row) => row.words },
    ...passes.map((pass, i) => ({ name: pass.name, value: (row) => row.cells[i], show: (row) => format.ms(row.cells[i]), first: "descending" }))],
  { caption: "Step times by part", row: (row) => ({ class: row.words === "in all" ? "total" : null }) });
  figures.rows(rows);
  return [figures.element, h("p", { class: "alt", text: `Collectives take ${passes.map((pass) => `${format.percent(pass.share)} of ${pass.name.charAt(0).toLowerCase()}${pass.name.slice(1)}`).join("; ")}.` })];
}
