/**
 * Plots: plotly.js with the page's colours, words for those who do not see it, and the table it was drawn from underneath.
 *
 * The page's policy refuses styles in attributes, so texts of traces and labels may hold `<br>` and no other markup; a bold label
 * is `font: {weight: 700}`.
 *
 * The library is large, so it is fetched when the first chart is drawn; tables and sentences do not wait for it.
 */

import { fill, fresh, h } from "./dom.js";
import { table as sortable } from "./parts.js";

let library = null;

/** plotly.js, once. */
function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = h("script", { src: document.documentElement.dataset.chartLibrary });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      library = null;
      script.remove();
      reject(new Error("the chart library could not be loaded; the tables have every figure"));
    });
    document.head.append(script);
  });
  return library;
}

/** Fetch the library into the browser's cache before it is needed, when there is time; it is read when a chart is drawn. */
export function prepare() {
  const soon = window.requestIdleCallback ?? ((f) => setTimeout(f, 300));
  soon(() => library ?? fetch(document.documentElement.dataset.chartLibrary, { priority: "low" }).catch(() => {}));
}

/** The page's colours by their names in style.css, as they are now (light, dark, print). */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: get("text"), quiet: get("quiet"), line: get("line"), ground: get("ground"), raised: get("raised"),
    accent: get("accent"), copies: get("copies"), copiesFill: get("copies-fill"), copiesSoft: get("copies-soft"), refused: get("refused"), idle: get("idle"),
    /** Told apart by the colour-blind too; amber is not among them. */
    series: [1, 2, 3, 4, 5, 6, 7].map((i) => get(`series-${i}`)),
  };
}

/** Axis and frame of every plot; a screen's own layout is laid over it. */
function theme(c) {
  const axis = {
    gridcolor: c.line, linecolor: c.line, zerolinecolor: c.line, tickcolor: c.line, automargin: true,
    title: { standoff: 12, font: { size: 13, color: c.quiet } }, tickfont: { size: 12.5, color: c.quiet }, fixedrange: true,
  };
  return {
    axis,
    frame: {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: c.series,
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: c.text },
      margin: { l: 8, r: 16, t: 16, b: 8 }, hovermode: "closest", dragmode: false,
      hoverlabel: { bgcolor: c.raised, bordercolor: c.line, font: { color: c.text, size: 13, family: getComputedStyle(document.body).fontFamily }, align: "left" },
      showlegend: false,
    },
  };
}

/** Marks of the legend; a hatched bar looks like one. */
const SYMBOLS = { circle: "●", diamond: "◆", square: "■", "triangle-up": "▲", "triangle-down": "▼", star: "★", x: "✕", "circle-open": "○", "line-ns": "┃", "line-ns-open": "│" };
function symbolOf(trace) {
  if (trace.type === "bar") return trace.marker.pattern?.shape ? "▨" : "■";
  if (trace.mode === "lines") return "┄";
  const symbol = trace.meta?.symbol ?? trace.marker?.symbol;
  return SYMBOLS[Array.isArray(symbol) ? symbol[0] : symbol] ?? "●";
}

/** The names of the traces as a list that wraps, which the library's own legend does not on a phone. */
function legendOf(traces) {
  const rank = (trace) => trace.legendrank ?? 1000;
  const named = traces.filter((trace) => trace.name && trace.showlegend !== false).sort((a, b) => rank(a) - rank(b));
  const colour = (trace) => trace.line?.color ?? (Array.isArray(trace.marker?.color) ? trace.marker.color[0] : trace.marker?.color);
  return named.length < 2 ? [] : named.map((trace) => h("li", {}, h("span", { "aria-hidden": "true", vars: { "--key": colour(trace) }, text: symbolOf(trace) }), trace.name));
}

/** Lay `over` over `base`, objects key by key. */
function merge(base, over) {
  const out = { ...base };
  for (const [key, value] of Object.entries(over ?? {})) {
    const both = value && base[key] && typeof value === "object" && typeof base[key] === "object" && !Array.isArray(value);
    out[key] = both ? merge(base[key], value) : value;
  }
  return out;
}

/**
 * A chart.
 * @param {{title: string, height?: number}} options
 * @returns {{element: HTMLElement, draw: function(Object): Promise<void>, height: function(number)}} `draw` takes
 *   `make(colours)` → `{traces, layout}` of plotly (called again when the theme changes; `legendrank` orders the list of names,
 *   `meta.symbol` is a trace's mark in it where its points have several),
 *   `alt`: what the chart shows, in a sentence,
 *   `table`: `{columns, rows}` as for parts.js,
 *   `click(point)`: told plotly's point when one is clicked
 */
export function chart({ title, height = 380 }) {
  const id = fresh("chart");
  const plot = h("div", { class: "plot", role: "img", "aria-labelledby": `${id}-t`, "aria-describedby": `${id}-d`, vars: { "--plot-height": `${height}px` } });
  const legend = h("ul", { class: "legend" });
  const words = h("p", { class: "alt", id: `${id}-d` });
  const under = h("details", { class: "fold under" }, h("summary", { text: "Table of this chart" }));
  const element = h("figure", { class: "chart" }, h("figcaption", { id: `${id}-t`, text: title }), legend, plot, words, under);
  let now = null;
  let made = null;
  // it comes while the figures are asked for
  plotly().catch(() => {});
  under.addEventListener("toggle", () => tabulate());

  /** The table under the chart; what is folded away need not follow a slider. */
  function tabulate() {
    if (!now?.table || !under.open) return;
    const names = now.table.columns.map((c) => c.name).join("|");
    if (made?.names !== names) {
      made = { names, ...sortable(now.table.columns, { caption: `${title}: the figures` }) };
      fill(under, h("summary", { text: "Table of this chart" }), made.element);
    }
    made.rows(now.table.rows);
  }

  async function paint() {
    if (!now) return;
    const drawn = now;
    const Plotly = await plotly();
    if (drawn !== now) return;
    const c = colours();
    const { axis, frame } = theme(c);
    const { traces, layout = {} } = drawn.make(c);
    const whole = merge(frame, layout);
    fill(legend, legendOf(traces));
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))]);
    for (const key of axes) whole[key] = merge(axis, layout[key]);
    await Plotly.react(plot, traces, whole, { displayModeBar: false, responsive: true, doubleClick: false });
    if (!plot.dataset.listens && plot.on) {
      plot.dataset.listens = "yes";
      plot.on("plotly_click", (event) => event.points[0] && now.click?.(event.points[0]));
    }
  }
  document.addEventListener("theme", () => element.isConnected && paint().catch(() => {}));

  return {
    element,
    height(pixels) { plot.style.setProperty("--plot-height", `${pixels}px`); },
    async draw(next) {
      now = next;
      words.textContent = next.alt;
      tabulate();
      under.hidden = !next.table;
      try {
        await paint();
      } catch (error) {
        fill(plot, h("p", { class: "plain-message", text: `The chart could not be drawn: ${error.message}` }));
        under.open = true;
      }
    },
  };
}
