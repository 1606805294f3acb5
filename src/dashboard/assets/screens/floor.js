/** Screen 2, The floor: KV tokens against TP, and where more of it only copies; with what else the same GPUs could do. */

import { chart } from "../chart.js";
import { coded, fill, h } from "../dom.js";
import * as format from "../format.js";
import { nothingFits } from "../layouts.js";
import { mark, slider, table, toggle } from "../parts.js";

export const id = "floor";
export const title = "The floor";
export const calls = ["POST /v1/sweeps"];
export const keys = { "floor.show": "pp,replicas", "floor.heads": "", "floor.link": "", "floor.fixed": "" };

/** What else the same GPUs could do: words, a mark of its own, and the sweep that tells. */
const OVERLAYS = [
  { key: "pp", words: "PP instead of TP", symbol: "diamond", colour: 1, sweep: (real) => ({ over: "pp", search: { tp: [lastWhole(real)], ep: [1], dcp: [1] } }) },
  { key: "replicas", words: "Two replicas", symbol: "square", colour: 2, sweep: () => ({ over: "tp", search: { dp: [2] } }) },
  { key: "dcp", words: "Decode context parallel", symbol: "triangle-down", colour: 5,
    sweep: (real) => ({ over: "tp", search: { dcp: sizes(real) }, objective: "capacity" }) },
  { key: "adp", words: "Attention DP", symbol: "star", colour: 4,
    sweep: (real) => ({ over: "tp", search: { attention_dp: sizes(real).filter((n) => n > 1), ep: null }, objective: "capacity" }) },
];

/** Known room for the axes: measuring it anew would double the time of a redraw. */
const MARGIN = { l: 64, r: 20, t: 16, b: 52 };

const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => String(2 ** (from + i)));

export function render(root, context) {
  const sentence = h("p", { class: "sentence" });
  const holds = chart({ title: "KV tokens against GPUs", height: 360 });
  const times = chart({ title: "Time of each output token, by the plain model", height: 220 });
  const controls = knobs(context);
  const reasons = table([
    { name: "TP", text: true, value: (p) => p.at, show: (p) => h("span", {}, mark("refused"), ` TP=${p.at}`) },
    { name: "Why not", wide: true, value: (p) => p.why_not?.message ?? "", show: (p) => coded(p.why_not?.message ?? "") },
  ], { caption: "Why no width fits" });
  root.append(sentence,
    h("div", { class: "with-side" }, h("div", { class: "charts" }, controls.overlays, holds.element, reasons.element), controls.element, times.element));

  return async function refresh() {
    controls.update(context.state);
    const shown = context.state["floor.show"].split(",");
    const base = whatIf(context);
    const real = (await context.call("POST", "/v1/sweeps", { ...base, over: "tp" })).curves[0].points;
    const asked = OVERLAYS.filter((o) => shown.includes(o.key) && lastWhole(real) !== null);
    const answers = await Promise.all(asked.map((o) => context.call("POST", "/v1/sweeps", { ...base, ...o.sweep(real) })));
    const overlays = asked.map((o, i) => ({ ...o, points: answers[i].curves[0].points }));
    const fits = real.some(has);
    for (const part of [controls.overlays, holds.element, times.element]) part.hidden = !fits;
    reasons.element.hidden = fits;
    if (!fits) {
      reasons.rows(real.filter((p) => p.why_not));
      return void fill(sentence, nothingFits("Nothing fits, at whatever TP.", context));
    }
    const latent = context.state["floor.heads"] !== "" && (await attentionOf(context)) === "mla";
    fill(sentence, reading(real, overlays), latent && h("span", { class: "aside", text: "This model keeps one latent for all its heads: their number changes nothing here." }));
    // one chart a frame: what a slider changes is seen before the second is drawn
    await holds.draw(tokensAgainstGpus(real, overlays));
    await new Promise(requestAnimationFrame);
    await times.draw(timeAgainstGpus(real, overlays));
  };
}

/** How the model attends, where the API knows it by its id. */
function attentionOf(context) {
  const model = context.request().model;
  const id = typeof model === "string" ? model : model.id;
  if (!/^[\w.-]+\/[\w.-]+$/.test(id ?? "")) return null;
  return context.call("GET", `/v1/models/${id}`).then((view) => view.facts?.attention ?? null).catch(() => null);
}

/** The question with the sliders' changes, timed by the plain model (what each constant does can be seen in it). */
function whatIf(context) {
  const { state } = context;
  const { objective, ...request } = context.request();
  const body = { ...request, latency_model: "roofline" };
  if (state["floor.heads"]) {
    const model = typeof body.model === "string" ? { id: body.model } : body.model;
    body.model = { ...model, overrides: { ...model.overrides, num_key_value_heads: Number(state["floor.heads"]) } };
  }
  const assumptions = {};
  if (state["floor.link"]) assumptions.link_bytes_per_s = Number(state["floor.link"]) * 1e9;
  if (state["floor.fixed"]) assumptions.allreduce_fixed_us = Number(state["floor.fixed"]);
  if (Object.keys(assumptions).length) body.assumptions = assumptions;
  return body;
}

/** The sliders: each changes one thing of the question. */
function knobs(context) {
  const { state } = context;
  const of = (key, label, values, show, hint) =>
    [key, slider({ label, values, value: state[key], show, hint, change: (value) => context.set({ [key]: value }) })];
  const sliders = [
    of("floor.heads", "KV heads", ["", ...powers(0, 6)], (v) => v || "as the model has", "as if num_key_value_heads of config.json were this"),
    of("context", "Context", powers(10, 20), (v) => `${format.context(Number(v))} tokens`),
    of("users", "Sequences at once", powers(0, 12), (v) => format.integer(Number(v))),
    of("floor.link", "Interconnect", ["", "12.5", "25", "50", "100", "200", "450", "900", "1800"], (v) => (v ? `${v} GB/s` : "as the cluster has"), "of every link, each way"),
    of("floor.fixed", "Fixed cost of an all-reduce", ["", "1", "2", "5", "10", "20", "50", "100"], (v) => (v ? `${v} µs` : "as assumed"), "two of them in every layer"),
  ];
  const chosen = () => context.state["floor.show"].split(",").filter(Boolean);
  const boxes = OVERLAYS.map((o) => [o.key, toggle({
    label: o.words, value: chosen().includes(o.key),
    change: (on) => context.set({ "floor.show": OVERLAYS.map((p) => p.key).filter((key) => (key === o.key ? on : chosen().includes(key))).join(",") }),
  })]);
  const reset = h("button", { type: "button", text: "As it is", on: { click: () => context.set({ "floor.heads": "", "floor.link": "", "floor.fixed": "" }) } });
  return {
    element: h("aside", { class: "knobs", "aria-label": "What if" }, h("h2", { text: "What if" }), sliders.map(([, s]) => s.element), reset),
    overlays: h("fieldset", { class: "overlays" }, h("legend", { class: "unseen", text: "The same GPUs otherwise" }), boxes.map(([, box]) => box.element)),
    update(now) {
      for (const [key, one] of sliders) one.set(now[key]);
      for (const [key, box] of boxes) box.set(now["floor.show"].split(",").includes(key));
    },
  };
}

const has = (point) => point.kv_tokens_total !== null && point.feasible;
const copies = (point) => point.replication_factor > 1;
const gpus = (point) => point.layout?.gpus ?? point.at;
const sizes = (points) => points.map((p) => p.at);

/** The widest TP that copies nothing; the narrowest that fits where all copy. */
function lastWhole(points) {
  const fitting = points.filter(has);
  return (fitting.findLast((p) => !copies(p)) ?? fitting[0])?.at ?? null;
}

/** "TP=16 holds 1.6M tokens, each byte 2 times; on the same 16 GPUs …". */
function reading(real, overlays) {
  const last = real.findLast(has);
  const own = `${format.layout(last.layout)} holds ${format.short(last.kv_tokens_total)} tokens`;
  const floor = copies(last) ? [own, ", ", h("strong", { class: "copies-figure" }, `each byte of cache held ${format.times(last.replication_factor)}`)] : own;
  const others = overlays.map((o) => bestOfEach(o.points).find((p) => gpus(p) === gpus(last)))
    .filter((p) => p && format.layout(p.layout) !== format.layout(last.layout))
    .sort((a, b) => b.kv_tokens_total - a.kv_tokens_total);
  if (!others.length) return [floor, "."];
  const words = others.map((p) => `${format.short(p.kv_tokens_total)} as ${format.layout(p.layout)}`);
  return [floor, `. The same ${gpus(last) === 1 ? "GPU holds" : `${gpus(last)} GPUs hold`} ${words.join(", ")}.`];
}

const axes = (points) => {
  const ticks = [...new Set(points.map(gpus))].sort((a, b) => a - b);
  return { type: "log", title: { text: "GPUs in use" }, tickvals: ticks, ticktext: ticks.map(String), showgrid: false, automargin: false, range: [Math.log10(ticks[0]) - 0.06, Math.log10(ticks.at(-1)) + 0.08] };
};

const hover = (p) => `${format.layout(p.layout)}<br>${format.integer(p.kv_tokens_total)} KV tokens<br>`
  + `copies ${format.times(p.replication_factor)}<br>${format.integer(p.sequences_total)} sequences of the context<br>TPOT ${format.ms(p.tpot_ms)} at ${p.concurrency} at once`;

/** Where several layouts use the same number of GPUs, the one that holds most. */
function bestOfEach(points) {
  const best = new Map();
  for (const point of points.filter(has)) {
    if (!(best.get(gpus(point))?.kv_tokens_total >= point.kv_tokens_total)) best.set(gpus(point), point);
  }
  return [...best.values()].sort((a, b) => gpus(a) - gpus(b));
}

function overlayTraces(overlays, c, value) {
  return overlays.map((o) => {
    const points = bestOfEach(o.points);
    return { x: points.map(gpus), y: points.map(value), name: o.words, mode: "lines+markers", line: { color: c.series[o.colour], width: 1.5, dash: "dash" },
      marker: { symbol: o.symbol, size: 9, color: c.series[o.colour] }, showlegend: points.length > 0, hovertext: points.map(hover), hoverinfo: "text" };
  });
}

function tokensAgainstGpus(real, overlays) {
  const fitting = real.filter(has);
  const floor = lastWhole(real);
  const whole = fitting.filter((p) => !copies(p));
  // the amber line begins where the other ends
  const past = fitting.filter((p) => p.at >= floor);
  const isFloor = past.some(copies);
  const line = (points, more) => ({ x: points.map(gpus), y: points.map((p) => p.kv_tokens_total), mode: "lines+markers", hovertext: points.map(hover), hoverinfo: "text", ...more });
  const make = (c) => {
    const traces = overlayTraces(overlays, c, (p) => p.kv_tokens_total);
    if (isFloor) {
      traces.push(line(past, { name: "TP that copies", legendrank: 2, line: { color: c.copies, width: 3 }, marker: { symbol: "triangle-up", size: 11, color: c.copies } }));
      traces.push({ x: past.map(gpus), y: past.map((p) => p.kv_tokens_if_sharded), name: "if it could shard", legendrank: 3, mode: "lines", fill: "tonexty", fillcolor: c.copiesSoft,
        line: { color: c.quiet, width: 1.5, dash: "dot" }, hovertext: past.map((p) => `if it could shard<br>${format.integer(p.kv_tokens_if_sharded)} KV tokens`), hoverinfo: "text" });
    }
    traces.push(line(whole, { name: "TP", legendrank: 1, line: { color: c.accent, width: 3 }, marker: { symbol: "circle", size: 9, color: c.accent } }));
    const bad = real.filter((p) => !has(p) && p.why_not);
    traces.push({ x: bad.map(gpus), y: bad.map(() => 0), name: "does not fit", mode: "markers", marker: { symbol: "x", size: 9, color: c.refused }, cliponaxis: false,
      hovertext: bad.map((p) => `TP=${p.at}<br>${broken(p.why_not.message)}`), hoverinfo: "text", showlegend: bad.length > 0 });
    const labels = past.filter(copies).map((p) => ({ x: Math.log10(gpus(p)), y: p.kv_tokens_total, text: `▲ ${format.times(p.replication_factor)}`, showarrow: false, xanchor: "right", xshift: -8, yshift: 17, font: { color: c.copies, size: 14, weight: 700 } }));
    const shapes = isFloor ? [{ type: "line", x0: floor, x1: floor, yref: "paper", y0: 0, y1: 1, line: { color: c.copies, width: 1, dash: "dash" } }] : [];
    const note = isFloor ? [{ x: Math.log10(floor), yref: "paper", y: 1, xanchor: "right", yanchor: "top", xshift: -8, align: "right", showarrow: false, font: { color: c.copies, size: 13 },
      text: whole.length ? "from here on, more TP<br>only copies the cache" : "every width that fits<br>copies the cache" }] : [];
    return { traces, layout: { xaxis: axes([...real, ...overlays.flatMap((o) => o.points.filter(has))]), yaxis: { title: { text: "KV tokens" }, rangemode: "tozero", tickformat: "~s", automargin: false }, margin: MARGIN, shapes, annotations: [...labels, ...note] } };
  };
  const none = overlays.filter((o) => !o.points.some(has)).map((o) => o.words);
  return { make, alt: `${alt(real, isFloor ? floor : null)}${none.length ? ` Nothing fits as: ${none.join(", ")}.` : ""}`, table: figures(real, overlays) };
}

function timeAgainstGpus(real, overlays) {
  const fitting = real.filter(has);
  const make = (c) => ({
    traces: [
      ...overlayTraces(overlays, c, (p) => p.tpot_ms),
      { x: fitting.map(gpus), y: fitting.map((p) => p.tpot_ms), name: "TP", legendrank: 1, meta: { symbol: "circle" }, mode: "lines+markers", line: { color: c.accent, width: 3 },
        marker: { size: 10, color: fitting.map((p) => (copies(p) ? c.copies : c.accent)), symbol: fitting.map((p) => (copies(p) ? "triangle-up" : "circle")) },
        hovertext: fitting.map(hover), hoverinfo: "text" },
    ],
    layout: { xaxis: axes([...real, ...overlays.flatMap((o) => o.points.filter(has))]), yaxis: { title: { text: "ms a token" }, rangemode: "tozero", automargin: false }, margin: MARGIN },
  });
  return { make, alt: "Lower is better. The batch is never larger than the sequences that fit; the plain model is (weights + cache read) / memory bandwidth + all-reduces." };
}

/** Break a long reason for the hover box. */
const broken = (text) => text.replace(/(.{50,70}) /g, "$1<br>");

function alt(real, floor) {
  const fitting = real.filter(has);
  const ends = `From TP=${fitting[0].at} with ${format.short(fitting[0].kv_tokens_total)} tokens to TP=${fitting.at(-1).at} with ${format.short(fitting.at(-1).kv_tokens_total)}.`;
  return floor === null ? `${ends} Nothing is copied at these widths.`
    : `${ends} ${fitting.every(copies) ? "Every width copies the cache" : "Past the KV heads the cache is copied"}; it still grows a little, since weights take less of each GPU.`;
}

function figures(real, overlays) {
  const rows = [...real.map((p) => ({ ...p, line: "TP" })), ...overlays.flatMap((o) => o.points.map((p) => ({ ...p, line: o.words })))];
  const n = (name, value, show) => ({ name, value, show: (row) => show(value(row)) });
  return {
    rows,
    columns: [
      { name: "Layout", text: true, value: (r) => (r.layout ? format.layout(r.layout) : `${r.at}`) },
      { name: "Line", text: true, value: (r) => r.line },
      n("GPUs", gpus, format.integer),
      n("KV tokens", (r) => r.kv_tokens_total, format.integer),
      n("If sharded", (r) => r.kv_tokens_if_sharded, format.integer),
      n("KV copies", (r) => r.replication_factor, format.times),
      n("Sequences", (r) => r.sequences_total, format.integer),
      n("TPOT", (r) => r.tpot_ms, format.ms),
      { name: "Why not", wide: true, value: (r) => r.why_not?.message ?? "" },
    ],
  };
}
