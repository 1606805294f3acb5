/**
 * Screen 8, Predicted and observed: what an engine printed at its start beside what was predicted, and how far all kept
 * starts lie from their predictions.
 */

import { chart } from "../chart.js";
import { fill, fresh, h } from "../dom.js";
import * as format from "../format.js";
import { mark, table } from "../parts.js";

export const id = "observed";
export const title = "Predicted and observed";
export const calls = ["POST /v1/observations", "GET /v1/observations", "GET /v1/accuracy"];
export const keys = { "observed.id": "" };
export const alone = true;

/** A prediction within this share of what was observed counts as met; the band of the scatter. */
const BAND = 0.05;
const EXAMPLE = [
  "Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32000, tensor_parallel_size=1, kv_cache_dtype=auto",
  "Model loading took 14.9889 GiB and 3.1 seconds",
  "Available KV cache memory: 51.38 GiB",
  "GPU KV cache size: 420,896 tokens",
  "Maximum concurrency for 32,000 tokens per request: 13.15x",
].join("\n");
const EXAMPLE_CLUSTER = "1 H100";

const NAMES = { kv_tokens: "KV tokens", kv_pool: "KV pool", weights: "Weights", activation: "Activations", cuda_graph: "CUDA graphs", concurrency: "Maximum concurrency", bytes_per_token: "Bytes per token" };
const named = (name) => NAMES[name] ?? format.words(name);

/** A figure of the log in its own unit. */
function inUnit(n, unit) {
  if (n === null || n === undefined) return "–";
  return unit === "tokens" || unit === "bytes" ? format.integer(n) : `${format.figure(n)}${unit ? ` ${unit}` : ""}`;
}

export function render(root, context) {
  const log = h("textarea", { id: fresh("log"), rows: 7, spellcheck: "false", autocomplete: "off", class: "mono" });
  const cluster = h("input", { id: fresh("ran"), type: "text", spellcheck: "false", autocomplete: "off", placeholder: "8 H100" });
  const fault = h("p", { class: "fault", role: "alert", hidden: true });
  const keep = h("input", { type: "checkbox", checked: true });
  const button = h("button", { type: "submit", class: "primary", text: "Compare" });
  const form = h("form", { class: "log-form", on: { submit: compare } },
    h("div", { class: "field" }, h("label", { for: log.id, text: "The engine’s log, from its start" }), log),
    h("div", { class: "field" }, h("label", { for: cluster.id }, "What it ran on ", h("span", { class: "unit", text: "as you would say it" })), cluster),
    h("p", { class: "buttons" }, button,
      h("button", { type: "button", on: { click: () => { log.value = EXAMPLE; cluster.value = EXAMPLE_CLUSTER; } }, text: "Fill in an example" }),
      h("label", { class: "toggle" }, keep, h("span", { text: "Keep the figures (never the log)" }))),
    fault);
  const answer = h("div", { class: "comparison", "aria-live": "polite" });
  const points = chart({ title: "KV tokens of every kept start: predicted across, observed up", height: 460 });
  const all = h("div");
  root.append(form, answer, h("h2", { class: "spaced", text: "All kept starts" }), all, points.element);

  async function compare(event) {
    event.preventDefault();
    fault.hidden = true;
    button.disabled = true;
    try {
      const body = { log: log.value, ...(cluster.value.trim() ? { cluster: cluster.value.trim() } : {}), ...(keep.checked ? {} : { store: false }) };
      const told = await context.call("POST", "/v1/observations", body);
      fill(answer, comparison(told));
      if (told.id) context.set({ "observed.id": told.id });
      await fleet();
    } catch (problem) {
      fault.textContent = problem.errors?.map((e) => e.detail).join("; ") || problem.message;
      fault.hidden = false;
    } finally {
      button.disabled = false;
    }
  }

  /** The kept starts, asked anew: one may have come. */
  async function fleet() {
    const kept = await everything(context);
    const accuracy = await context.call("GET", "/v1/accuracy");
    const shown = kept.filter((row) => row.kv_tokens_observed && row.kv_tokens_predicted);
    points.element.hidden = shown.length === 0;
    fill(all, accuracy.observations ? accuracyTable(accuracy) : h("p", { class: "quiet", text: "No start is kept yet. Paste the log of one above." }));
    if (shown.length) await points.draw({ make: (c) => scatter(shown, c), alt: altOf(shown), table: { columns: COLUMNS, rows: kept }, click: (point) => point.customdata && context.set({ "observed.id": point.customdata }) });
  }

  return async function refresh() {
    const wanted = context.state["observed.id"];
    if (wanted) fill(answer, comparison(await context.call("GET", `/v1/observations/${encodeURIComponent(wanted)}`)));
    await fleet();
  };
}

/** Every kept start, page by page, as many as can be told apart in a plot. */
async function everything(context) {
  const rows = [];
  let token = null;
  do {
    const page = await context.call("GET", `/v1/observations?page_size=1000${token ? `&page_token=${token}` : ""}`);
    rows.push(...page.items);
    token = page.next_page_token;
  } while (token && rows.length < 5000);
  return rows;
}

/** One start: figure by figure, and why they differ. */
function comparison(told) {
  const what = [told.engine && `${format.engine(told.engine)} ${told.version}`, told.model, told.outcome === "started" ? "started" : told.outcome === "refused" ? "refused to start" : null].filter(Boolean).join(" · ");
  const lines = table([
    { name: "Figure", text: true, value: (item) => named(item.name) },
    { name: "Predicted", value: (item) => item.predicted, show: (item) => inUnit(item.predicted, item.unit) },
    { name: "Observed", value: (item) => item.observed, show: (item) => inUnit(item.observed, item.unit) },
    { name: "Predicted ÷ observed", value: (item) => item.ratio, show: (item) => (item.ratio === null ? "–" : h("span", {}, format.figure(item.ratio), " ", mark(Math.abs(item.ratio - 1) <= BAND ? "fits" : "rough"))) },
    { name: "Line of the log", value: (item) => item.line, show: (item) => format.integer(item.line) },
  ], { caption: "Predicted and observed figures" });
  lines.rows(told.items);
  return [
    h("p", { class: "sentence", text: what || "Nothing in this text is known." }),
    told.not_predicted && h("p", { class: "quiet", text: told.not_predicted }),
    told.refusal && h("p", {}, mark("refused"), ` ${told.refusal.message} `, h("span", { class: "quiet", text: `(line ${told.refusal.line})` })),
    told.items.length > 0 && lines.element,
    told.causes.length > 0 && h("div", { class: "causes" }, h("h3", { text: "Likely causes" }), h("ul", {}, told.causes.map((cause) => h("li", { text: cause })))),
    h("p", { class: "quiet", text: `${format.integer(told.lines_used)} of ${format.integer(told.lines)} lines were used.${told.stored ? " The figures are kept." : told.not_stored ? ` Not kept: ${told.not_stored}.` : ""}` }),
  ];
}

/** Residuals by engine, version and GPU. */
function accuracyTable(accuracy) {
  const of = (name) => (group) => group.figures.find((f) => f.name === name);
  const kv = of("kv_tokens");
  const groups = table([
    { name: "Engine", text: true, value: (g) => format.engine(g.engine) },
    { name: "Version", text: true, value: (g) => g.version },
    { name: "GPU", text: true, value: (g) => g.gpu ?? "", show: (g) => format.product(g.gpu) },
    { name: "Starts", value: (g) => g.count, show: (g) => format.integer(g.count) },
    { name: "Median miss", title: "Half of the KV token predictions are nearer than this", value: (g) => kv(g)?.median ?? null, show: (g) => format.percent(kv(g)?.median) },
    { name: "90 % within", title: "Nine in ten KV token predictions are nearer than this", value: (g) => kv(g)?.p90 ?? null, show: (g) => format.percent(kv(g)?.p90) },
    { name: "Bias", title: "Above zero: too much was predicted", value: (g) => kv(g)?.bias ?? null, show: (g) => signed(kv(g)?.bias) },
    { name: "Start or refusal right", value: (g) => g.outcomes_agreed, show: (g) => `${format.integer(g.outcomes_agreed)} of ${format.integer(g.outcomes_judged)}` },
  ], { caption: "How far predictions of KV tokens lie from what was printed", sort: "Starts", descending: true });
  groups.rows(accuracy.groups);
  const whole = kv(accuracy.all);
  return [
    h("p", { class: "reading", text: whole ? `${format.integer(accuracy.observations)} starts: half of the KV token predictions are within ${format.percent(whole.median)}, nine in ten within ${format.percent(whole.p90)}.` : `${format.integer(accuracy.observations)} starts, none of them with KV tokens on both sides.` }),
    groups.element,
  ];
}

const signed = (share) => (share === undefined || share === null ? "–" : `${share > 0 ? "+" : ""}${format.percent(share)}`);

const engines = (rows) => [...new Set(rows.map((row) => row.engine))].sort();
const SYMBOLS = ["circle", "square", "diamond", "triangle-up"];

function altOf(rows) {
  return `${format.integer(rows.length)} starts on logarithmic axes; the line is where both agree, the band is ${format.percent(BAND)} to either side.`;
}

function scatter(rows, c) {
  const all = rows.flatMap((row) => [row.kv_tokens_predicted, row.kv_tokens_observed]);
  const ends = [Math.min(...all) * 0.7, Math.max(...all) * 1.4];
  const line = (factor, style) => ({ type: "scatter", mode: "lines", x: ends, y: ends.map((n) => n * factor), hoverinfo: "skip", showlegend: false, line: style });
  // powers of ten alone would leave a short axis without a figure
  const dtick = Math.log10(ends[1] / ends[0]) < 1.5 ? "D1" : 1;
  const axis = (words) => ({ title: { text: words }, type: "log", range: ends.map(Math.log10), dtick, tickformat: "~s", tickangle: 0 });
  return {
    traces: [
      line(1 - BAND, { width: 0 }),
      { ...line(1 + BAND, { width: 0 }), fill: "tonexty", fillcolor: fade(c.accent) },
      line(1, { width: 1.5, color: c.quiet }),
      ...engines(rows).map((engine, i) => {
        const mine = rows.filter((row) => row.engine === engine);
        return {
          type: "scatter", mode: "markers", name: format.engine(engine), x: mine.map((row) => row.kv_tokens_predicted), y: mine.map((row) => row.kv_tokens_observed), customdata: mine.map((row) => row.id),
          marker: { color: c.series[i % c.series.length], symbol: SYMBOLS[i % SYMBOLS.length], size: 10, line: { width: 1, color: c.ground } },
          text: mine.map((row) => `${row.model ?? "model unknown"}<br>${row.layout} on ${format.product(row.gpu)}, ${format.engine(row.engine)} ${row.version}<br>predicted ${format.integer(row.kv_tokens_predicted)}, observed ${format.integer(row.kv_tokens_observed)}`),
          hovertemplate: "%{text}<extra></extra>",
        };
      }),
    ],
    layout: { xaxis: axis("Predicted KV tokens"), yaxis: axis("Observed KV tokens") },
  };
}

/** The colour at a fifth of its strength; the page's colours are written #rrggbb. */
function fade(colour) {
  return /^#[0-9a-f]{6}$/i.test(colour) ? `${colour}33` : colour;
}

const COLUMNS = [
  { name: "Model", text: true, value: (row) => row.model ?? "", show: (row) => row.model ?? "–" },
  { name: "Engine", text: true, value: (row) => `${format.engine(row.engine)} ${row.version}` },
  { name: "GPU", text: true, value: (row) => row.gpu ?? "", show: (row) => format.product(row.gpu) },
  { name: "Layout", text: true, value: (row) => row.layout },
  { name: "Predicted", value: (row) => row.kv_tokens_predicted, show: (row) => format.integer(row.kv_tokens_predicted) },
  { name: "Observed", value: (row) => row.kv_tokens_observed, show: (row) => format.integer(row.kv_tokens_observed) },
  { name: "Predicted ÷ observed", value: (row) => row.kv_tokens_ratio, show: (row) => format.figure(row.kv_tokens_ratio) },
];
