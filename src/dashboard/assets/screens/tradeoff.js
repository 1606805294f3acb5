/**
 * Screen 5, Trade-off: what a user feels against what a GPU earns, over the batch; a line for each layout.
 *
 * Filled points run as they are; hollow ones are batches beyond what the layout takes, at the rates they would have.
 */

import { chart } from "../chart.js";
import { fill, fresh, h } from "../dom.js";
import * as format from "../format.js";
import { nothingFits } from "../layouts.js";
import { choice, mark, slider } from "../parts.js";

export const id = "tradeoff";
export const title = "Trade-off";
export const calls = ["POST /v1/sweeps"];
export const keys = { "tradeoff.x": "user", "tradeoff.y": "gpu", "tradeoff.price": "" };

/** Requests at once along each line. */
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/** Hollow points of a line: further ones crowd where nobody wants to be. */
const BEYOND = 3;
/** Stops of the limits; an empty one is no limit. */
const TPOT_MS = ["", "10", "15", "20", "25", "30", "40", "50", "75", "100", "150", "200"];
const TTFT_MS = ["", "100", "200", "300", "500", "1000", "2000", "3000", "5000", "10000"];

/** What can stand on an axis: where a point has it, its words, and whether it is drawn by powers of ten. */
const X = {
  user: { of: (p) => p.output_tokens_per_s_per_user, words: "Output tokens/s for one user", log: false, show: (n) => `${format.figure(n)} tokens/s` },
  ttft: { of: (p) => p.ttft_ms, words: "Time to the first token, ms", log: true, show: format.ms },
};
const Y = {
  gpu: { of: (p) => p.output_tokens_per_s_per_gpu, words: "Output tokens/s of one GPU", show: (n) => `${format.figure(n)} tokens/s` },
  cost: { of: (p) => p.usd_per_million_output_tokens, words: "US dollars per million output tokens", show: format.usd },
};

/** Shapes of points by what a layout splits beside TP, each with its sign for the key; one for each line of the kind. */
const SHAPES = {
  tp: [["circle", "●"], ["hexagon2", "⬢"], ["star", "★"]],
  pp: [["square", "■"], ["pentagon", "⬟"], ["cross", "✚"], ["hexagram", "✶"]],
  ep: [["diamond", "◆"], ["star-diamond", "✦"], ["bowtie", "⧓"]],
  adp: [["triangle-up", "▲"], ["triangle-down", "▼"], ["triangle-right", "▶"]],
};
const kind = (layout) => (layout.attention_dp > 1 ? "adp" : layout.ep > 1 ? "ep" : layout.pp > 1 ? "pp" : "tp");

/** The shape of each curve: its kind's, another where the kind comes again, so that no line is told by its colour alone. */
function shapesOf(curves) {
  const seen = {};
  return curves.map((curve) => {
    const shapes = SHAPES[kind(layoutOf(curve))];
    seen[shapes[0][0]] = (seen[shapes[0][0]] ?? -1) + 1;
    return shapes[seen[shapes[0][0]] % shapes.length];
  });
}
const layoutOf = (curve) => curve.points.find((p) => p.layout).layout;

export function render(root, context) {
  const x = choice({ label: "Across", options: [["user", "Speed for a user"], ["ttft", "Time to first token"]], value: context.state["tradeoff.x"], change: (v) => context.set({ "tradeoff.x": v }) });
  const y = choice({ label: "Up", options: [["gpu", "Tokens/s of a GPU"], ["cost", "Cost"]], value: context.state["tradeoff.y"], change: (v) => context.set({ "tradeoff.y": v }) });
  const limit = (key, label, values) => slider({ label, values, value: context.state[key], show: (v) => (v ? format.ms(Number(v)) : "no limit"), change: (v) => context.set({ [key]: v }) });
  const tpot = limit("tpot", "TPOT at most", TPOT_MS);
  const ttft = limit("ttft", "TTFT at most", TTFT_MS);
  const price = h("input", { id: fresh("price"), type: "text", inputmode: "decimal", autocomplete: "off", on: { change: () => context.set({ "tradeoff.price": price.value.trim() }) } });
  const priced = h("div", { class: "field price" }, h("label", { for: price.id }, "Price of a GPU", h("span", { class: "unit", text: " $/hour" })), price);
  const plot = chart({ title: "Each line is a layout, each point a number of requests at once", height: 500 });
  const key = h("ul", { class: "plot-key" });
  const reading = h("p", { class: "reading" });
  root.append(h("div", { class: "controls" }, x.element, y.element, priced, tpot.element, ttft.element), reading, plot.element);
  plot.element.querySelector("figcaption").after(key);

  return async function refresh() {
    const { state } = context;
    x.set(state["tradeoff.x"]);
    y.set(state["tradeoff.y"]);
    tpot.set(state.tpot);
    ttft.set(state.ttft);
    priced.hidden = state["tradeoff.y"] !== "cost";
    if (document.activeElement !== price) price.value = state["tradeoff.price"];
    const assumptions = state["tradeoff.price"] ? { assumptions: { usd_per_gpu_hour: Number(state["tradeoff.price"]) || state["tradeoff.price"] } } : {};
    const sweep = await context.call("POST", "/v1/sweeps", { ...context.request(), ...assumptions, over: { axis: "concurrency", values: BATCHES }, by: "layout" });
    const across = X[state["tradeoff.x"]] ?? X.user;
    const up = Y[state["tradeoff.y"]] ?? Y.gpu;
    const curves = sweep.curves.filter((curve) => curve.points.some((p) => p.layout)).map((curve) => ({ ...curve, by: format.layout(layoutOf(curve)) }));
    const drawn = curves.some((curve) => curve.points.some((p) => up.of(p) !== null));
    for (const part of [x, y, tpot, ttft]) part.element.hidden = curves.length === 0;
    reading.classList.toggle("sentence", curves.length === 0);
    fill(reading, curves.length ? readingOf(curves, drawn, limited(state)) : nothingFits("Nothing fits: no layout of this model holds a sequence on this cluster.", context));
    plot.element.hidden = curves.length === 0 || !drawn;
    fill(key, curves.length > 0 && keyOf(curves, state));
    if (!curves.length || !drawn) return;
    await plot.draw({
      make: (c) => drawing(curves, across, up, limitOn(state), c),
      alt: `${curves.length} layouts over ${BATCHES[0]} to ${BATCHES.at(-1)} requests at once. ${up.words} against ${across.words.toLowerCase()}.`,
      table: { columns: COLUMNS, rows: curves.flatMap((curve) => curve.points.filter((p) => p.layout).map((p) => ({ ...p, name: curve.by }))) },
    });
  };
}

/** The limit that is a line across the plot, in the unit of the axis. */
function limitOn(state) {
  const tpot = Number(state.tpot);
  const ttft = Number(state.ttft);
  if (state["tradeoff.x"] === "ttft") return ttft > 0 ? { at: ttft, words: `TTFT limit ${format.ms(ttft)}`, side: "left" } : null;
  return tpot > 0 ? { at: 1000 / tpot, words: `TPOT limit ${format.ms(tpot)}`, side: "right" } : null;
}

const limited = (state) => Boolean(state.tpot || state.ttft);

/** The two ends of the front, as the API marked it; within the limits, the best points that keep them. */
function readingOf(curves, drawn, withLimits) {
  const all = curves.flatMap((curve) => curve.points.filter((p) => p.layout && p.fits_kv).map((p) => ({ ...p, name: curve.by })));
  if (!all.some((p) => p.pareto)) return "No point holds a whole sequence.";
  const kept = withLimits ? all.filter((p) => p.meets_slo !== false) : all.filter((p) => p.pareto);
  if (!kept.length) return "No layout keeps these limits, at however few requests at once.";
  const largest = (of) => kept.reduce((a, b) => (of(b) > of(a) ? b : a));
  const [most, fastest] = [largest(Y.gpu.of), largest(X.user.of)];
  const end = (p) => `${p.name} at ${format.integer(p.concurrency)} at once: ${format.figure(p.output_tokens_per_s_per_user)} tokens/s for each user and ${format.figure(p.output_tokens_per_s_per_gpu)} from each GPU`;
  return `${withLimits ? "Within the limits, most" : "Most"} from the hardware: ${end(most)}. Fastest for a user: ${end(fastest)}.${drawn ? "" : " The price of these GPUs is not known: say what one costs to see the cost."}`;
}

function drawing(curves, across, up, limit, c) {
  const traces = [];
  const front = curves.flatMap((curve) => curve.points.filter((p) => p.pareto)).toSorted((a, b) => across.of(a) - across.of(b));
  if (across === X.user && front.length > 1) {
    traces.push({ type: "scatter", mode: "lines", x: front.map(across.of), y: front.map(up.of), name: "front", hoverinfo: "skip", showlegend: false, line: { color: c.accent, width: 13, shape: "linear" }, opacity: 0.2 });
  }
  const shapes = shapesOf(curves);
  curves.forEach((curve, i) => {
    const colour = c.series[i % c.series.length];
    const beyond = curve.points.filter((p) => p.layout && p.if_all_ran).slice(0, BEYOND);
    // the first batch that is too large still runs what fits: the end of the filled line
    const runs = curve.points.filter((p) => p.layout && (!p.if_all_ran || p === beyond[0]));
    const size = markSize(layoutOf(curve));
    const [symbol] = shapes[i];
    const faded = (p) => (p.meets_slo === false ? 0.3 : 1);
    const hollow = [...runs.slice(-1).map((p) => [p, p]), ...beyond.map((p) => [p.if_all_ran, p])];
    if (beyond.length) {
      traces.push({
        type: "scatter", mode: "lines+markers", name: curve.by, showlegend: false, x: hollow.map(([at]) => across.of(at)), y: hollow.map(([at]) => up.of(at)),
        line: { color: colour, width: 1.5, dash: "dot" }, marker: { symbol: `${symbol}-open`, size: hollow.map((_, k) => (runs.length && k === 0 ? 0 : size)), color: colour, line: { width: 1.75, color: colour } },
        text: hollow.map(([at, p]) => hover(curve.by, at, p, true)), hovertemplate: "%{text}<extra></extra>",
      });
    }
    traces.push({
      type: "scatter", mode: "lines+markers", name: curve.by, showlegend: false, x: runs.map(across.of), y: runs.map(up.of),
      line: { color: colour, width: 2 }, marker: { symbol, size, color: colour, opacity: runs.map(faded), line: { width: 1, color: c.ground } },
      text: runs.map((p) => hover(curve.by, p, p, false)), hovertemplate: "%{text}<extra></extra>",
    });
  });
  const layout = {
    xaxis: { title: { text: across.words }, type: across.log ? "log" : "linear", rangemode: "tozero", ...(across.log ? { dtick: 1 } : {}) },
    yaxis: { title: { text: up.words }, rangemode: "tozero", ...(up === Y.cost ? { type: "log", dtick: "D2", tickprefix: "$" } : {}) },
    showlegend: false, shapes: [], annotations: [],
  };
  if (limit) {
    layout.shapes.push({ type: "line", xref: "x", yref: "paper", x0: limit.at, x1: limit.at, y0: 0, y1: 1, line: { color: c.text, width: 1.5, dash: "dash" } });
    layout.annotations.push({ xref: "x", yref: "paper", x: across.log ? Math.log10(limit.at) : limit.at, y: 1, xanchor: limit.side === "right" ? "left" : "right", yanchor: "top", showarrow: false, text: ` ${limit.words} `, font: { color: c.text, size: 12.5 } });
  }
  return { traces, layout };
}

/** Larger for more GPUs in one instance. */
function markSize(layout) {
  return 7 + 1.6 * Math.log2(layout.tp * layout.pp * layout.attention_dp);
}

function hover(name, at, point, beyond) {
  const runs = beyond ? `more than it takes: ${format.integer(point.concurrency)} run. If all ran:<br>` : "";
  return `${name} · ${format.integer(beyond ? point.at : point.concurrency)} at once<br>${runs}${format.figure(at.output_tokens_per_s_per_user)} tokens/s for a user, ${format.figure(at.output_tokens_per_s_per_gpu)} of a GPU`
    + `<br>TTFT ${format.ms(at.ttft_ms)}, TPOT ${format.ms(at.tpot_ms)}${at.usd_per_million_output_tokens === null ? "" : `<br>${format.usd(at.usd_per_million_output_tokens)} per million tokens`}`;
}

/** Which line is which, with what each symbol means; the colours come from the style sheet. */
function keyOf(curves, state) {
  const shapes = shapesOf(curves);
  const lines = curves.map((curve, i) => h("li", {},
    h("span", { class: `swatch series-${(i % 7) + 1}`, "aria-hidden": "true", text: shapes[i][1] }), ` ${curve.by}`,
    curve.points.some((p) => p.replication_factor > 1) ? [" ", mark("copies")] : null));
  const more = [["○", "hollow: more requests than the cache or max_num_seqs takes, as if they ran"]];
  if (state["tradeoff.x"] !== "ttft") more.push(["▬", "thick: the front, no other layout is better in both"]);
  if (state.tpot || state.ttft) more.push(["◌", "faded: misses a limit"]);
  return [...lines, ...more.map(([symbol, words]) => h("li", { class: "quiet" }, h("span", { class: "swatch", "aria-hidden": "true", text: symbol }), ` ${words}`))];
}

const COLUMNS = [
  { name: "Layout", text: true, value: (p) => p.name },
  { name: "At once", value: (p) => p.at, show: (p) => format.integer(p.at) },
  { name: "Run", title: "Sequences decoded at once for these figures", value: (p) => p.concurrency, show: (p) => format.integer(p.concurrency) },
  { name: "Cache holds them", value: (p) => Number(p.fits_kv), show: (p) => mark(p.fits_kv ? "fits" : "refused") },
  { name: "Tokens/s a user", value: (p) => p.output_tokens_per_s_per_user, show: (p) => format.figure(p.output_tokens_per_s_per_user) },
  { name: "Tokens/s a GPU", value: (p) => p.output_tokens_per_s_per_gpu, show: (p) => format.figure(p.output_tokens_per_s_per_gpu) },
  { name: "TTFT", value: (p) => p.ttft_ms, show: (p) => format.ms(p.ttft_ms) },
  { name: "TPOT", value: (p) => p.tpot_ms, show: (p) => format.ms(p.tpot_ms) },
  { name: "$ a million", title: "US dollars per million output tokens", value: (p) => p.usd_per_million_output_tokens, show: (p) => format.usd(p.usd_per_million_output_tokens) },
  { name: "Front", value: (p) => Number(p.pareto), show: (p) => (p.pareto ? "✓" : "–") },
];
