/** The question at the side: every control of it, with suggestions, what was understood, and the faults of each. */

import { call } from "./api.js";
import { coded, fill, fresh, h } from "./dom.js";
import * as format from "./format.js";

/** After a key, before the answer follows. */
const PAUSE_MS = 250;
const SUGGESTIONS = 12;

const KV = [["auto", "auto"], ["fp8", "fp8"], ["bf16", "bf16"]];
const ENGINES = [["vllm", "vLLM"], ["sglang", "SGLang"], ["tensorrt-llm", "TensorRT-LLM"]];
const WEIGHTS = [["", "published"], ["bf16", "bf16"], ["fp8", "fp8"], ["int8", "int8"], ["int4", "int4"], ["nvfp4", "nvfp4"], ["mxfp4", "mxfp4"]];
const OBJECTIVES = [["balanced", "balanced"], ["throughput", "throughput"], ["latency", "latency"], ["capacity", "capacity"], ["cost", "cost"]];

/**
 * The form.
 * @param {{set: function(Object), state: Object}} context of the shell
 * @returns {{element: HTMLElement, label: function(string): string, update: function(Object), faults: function(Object<string, string>)}}
 */
export function question(context) {
  const controls = new Map();
  const add = (key, control) => {
    controls.set(key, control);
    return control.element;
  };
  const change = (key) => (value) => context.set({ [key]: value });
  const field = (key, label, more = {}) => add(key, input({ label, change: change(key), ...more }));
  const pick = (key, label, options) => add(key, select({ label, options, change: change(key) }));
  const summary = h("summary", {}, h("span", { class: "asked" }));

  const element = h("form", { class: "question", autocomplete: "off", on: { submit: (event) => event.preventDefault() } },
    h("h2", { class: "unseen", text: "The question" }),
    add("model", modelSearch({ change: change("model") })),
    add("cluster", clusterText({ change: change("cluster") })),
    h("div", { class: "pair" },
      field("context", "Context", { unit: "tokens", list: ["8k", "16k", "32k", "64k", "128k"], show: (v) => (/^\d+$/.test(v) ? format.context(Number(v)) : v), keep: tokens }),
      field("users", "Users", { unit: "at once" })),
    h("div", { class: "pair" }, field("input", "Prompt", { unit: "tokens", keep: tokens }), field("output", "Output", { unit: "tokens", keep: tokens })),
    h("div", { class: "pair" }, pick("kv", "KV cache", KV), pick("engine", "Engine", ENGINES)),
    h("details", { class: "fold more" }, h("summary", { text: "More" }),
      h("div", { class: "pair" }, field("ttft", "TTFT at most", { unit: "ms" }), field("tpot", "TPOT at most", { unit: "ms" })),
      h("div", { class: "pair" }, pick("weights", "Weights", WEIGHTS), pick("objective", "Rank by", OBJECTIVES))));
  const folded = h("details", { class: "side-fold" }, summary, element);
  // wide screens have the form open beside the answer; on a phone it is folded to one line
  const wide = matchMedia("(min-width: 861px)");
  const follow = () => { folded.open = wide.matches; };
  wide.addEventListener("change", follow);
  follow();

  return {
    element: folded,
    label: (key) => controls.get(key)?.label ?? key,
    update(state) {
      for (const [key, control] of controls) control.set(state[key]);
      if (["ttft", "tpot", "weights"].some((key) => state[key]) || state.objective !== "balanced") element.querySelector(".more").open = true;
      const model = state.model.trim().startsWith("{") ? "pasted config" : state.model.split("/").pop();
      const context = /^\d+$/.test(state.context) ? format.context(Number(state.context)) : state.context;
      summary.firstChild.textContent = `${model} on ${state.cluster} · ${context} · ${state.users} users`;
    },
    faults(byKey) {
      for (const [key, control] of controls) control.fault(byKey[key] ?? "");
      if (Object.keys(byKey).length && !wide.matches) folded.open = true;
    },
  };
}

/** "32k" is 32768 to those who write it of a context; the address holds the number. */
function tokens(text) {
  const found = /^([\d.]+)\s*([km])$/i.exec(text.trim());
  if (!found) return text.trim().replaceAll(",", "");
  return String(Math.round(Number(found[1]) * (found[2].toLowerCase() === "k" ? 1024 : 1048576)));
}

/** A label, a control, and a place for its fault. */
function framed(label, control, { unit, after = [] } = {}) {
  const id = fresh("ask");
  control.id = id;
  const fault = h("p", { class: "fault", id: `${id}-f`, hidden: true });
  control.setAttribute("aria-describedby", fault.id);
  const element = h("div", { class: "field" },
    h("label", { for: id }, label, unit && h("span", { class: "unit", text: ` ${unit}` })), control, after, fault);
  return {
    element,
    label,
    fault(text) {
      fill(fault, coded(text));
      fault.hidden = text === "";
      if (text) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    },
  };
}

/** Calls `then` when nothing more was typed for a moment. */
function settled(then) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => then(...values), PAUSE_MS);
  };
}

function input({ label, unit, list, change, show = String, keep = (text) => text.trim() }) {
  const control = h("input", { type: "text", inputmode: list ? "text" : "numeric", spellcheck: "false" });
  const after = [];
  if (list) {
    const options = h("datalist", { id: fresh("list") }, list.map((value) => h("option", { value })));
    control.setAttribute("list", options.id);
    after.push(options);
  }
  const later = settled((text) => change(keep(text)));
  control.addEventListener("input", () => later(control.value));
  control.addEventListener("change", () => change(keep(control.value)));
  const frame = framed(label, control, { unit, after });
  return {
    ...frame,
    set(value) {
      if (document.activeElement !== control) control.value = show(value);
    },
  };
}

function select({ label, options, change }) {
  const control = h("select", { on: { change: () => change(control.value) } }, options.map(([value, words]) => h("option", { value, text: words })));
  return {
    ...framed(label, control),
    set(value) {
      if (!options.some(([known]) => known === value) && ![...control.options].some((o) => o.value === value)) {
        control.append(h("option", { value, text: value }));
      }
      control.value = value;
    },
  };
}

/** The model: an id with suggestions as one types, or a pasted config.json. */
function modelSearch({ change }) {
  const list = h("ul", { class: "suggestions", role: "listbox", id: fresh("models"), "aria-label": "Models", hidden: true });
  // a pasted config.json loses its line breaks here, which JSON does not need
  const control = h("input", { type: "text", spellcheck: "false", role: "combobox", "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list" });
  const frame = framed("Model", control, { unit: "id, or config.json", after: [list] });
  let at = -1;
  let asked = 0;

  const close = () => {
    list.hidden = true;
    at = -1;
    control.setAttribute("aria-expanded", "false");
    control.removeAttribute("aria-activedescendant");
  };
  const take = (id) => {
    control.value = id;
    close();
    change(id);
  };
  const suggest = settled(async (text) => {
    asked += 1;
    const mine = asked;
    if (text.trim() === "" || text.trim().startsWith("{")) return close();
    const found = await call("GET", `/v1/models?page_size=${SUGGESTIONS}&search=${encodeURIComponent(text.trim())}`).catch(() => null);
    if (mine !== asked || document.activeElement !== control) return undefined;
    const items = found?.items ?? [];
    fill(list, items.map((item, i) => h("li", { role: "option", id: `${list.id}-${i}`, on: { pointerdown: (event) => { event.preventDefault(); take(item.id); } } }, item.id)));
    at = -1;
    list.hidden = items.length === 0;
    control.setAttribute("aria-expanded", String(items.length > 0));
    return undefined;
  });
  const move = (step) => {
    const items = [...list.children];
    if (list.hidden || !items.length) return false;
    at = (at + step + items.length) % items.length;
    items.forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    items[at].scrollIntoView({ block: "nearest" });
    control.setAttribute("aria-activedescendant", items[at].id);
    return true;
  };
  control.addEventListener("input", () => {
    suggest(control.value);
    // a pasted configuration is complete; an id is when it is chosen or left
    if (control.value.trim().startsWith("{")) change(control.value.trim());
  });
  control.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && move(1)) event.preventDefault();
    else if (event.key === "ArrowUp" && move(-1)) event.preventDefault();
    else if (event.key === "Escape") close();
    else if (event.key === "Enter" && !control.value.trim().startsWith("{")) {
      event.preventDefault();
      take(at >= 0 ? list.children[at].textContent : control.value.trim());
    }
  });
  control.addEventListener("focus", () => control.select());
  control.addEventListener("blur", () => {
    close();
    change(control.value.trim());
  });
  return {
    ...frame,
    set(value) {
      if (document.activeElement !== control) control.value = value;
    },
  };
}

/** The cluster as one writes it, and what was understood while one writes. */
function clusterText({ change }) {
  const understood = h("div", { class: "understood", "aria-live": "polite" });
  const control = h("textarea", { rows: 1, spellcheck: "false" });
  const frame = framed("Cluster", control, { unit: "as you would say it", after: [understood] });
  let asked = "";

  async function parse(text) {
    if (text === asked) return;
    asked = text;
    const body = { cluster: (text.trim().startsWith("{") && attempt(text)) || text };
    try {
      const told = await call("POST", "/v1/clusters:parse", body);
      if (asked === text) fill(understood, told.cluster.node_pools.map(pool), notes(told));
    } catch (problem) {
      if (asked === text) fill(understood, h("p", { class: "quiet" }, coded(problem.errors?.[0]?.detail ?? problem.message)));
    }
  }
  const typed = settled(parse);
  const settledChange = settled((text) => change(text.trim()));
  control.addEventListener("input", () => {
    typed(control.value);
    settledChange(control.value);
  });
  control.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      change(control.value.trim());
    }
  });
  return {
    ...frame,
    set(value) {
      if (document.activeElement !== control) control.value = value;
      parse(value);
    },
  };
}

function attempt(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** "2 × 8 NVIDIA H100 SXM5 80GB · nvlink4, infiniband-ndr". */
function pool(p) {
  return h("p", {}, h("strong", { text: `${p.nodes} × ${p.gpus_per_node} ${p.gpu_name.replace(/^NVIDIA /, "")}` }),
    h("span", { class: "quiet", text: ` · ${[p.intra_link, p.nodes > 1 ? p.inter_link : null].filter(Boolean).join(", ")}` }));
}

function notes(told) {
  if (!told.assumptions.length && !told.warnings.length) return null;
  const text = (w) => (typeof w === "string" ? w : w.message ?? w.detail ?? "");
  return h("details", { class: "fold" }, h("summary", { text: `${told.assumptions.length} assumed` }),
    h("ul", {}, told.assumptions.map((a) => h("li", {}, h("span", { class: "mono", text: `${a.name} = ${a.value}` }), h("span", { class: "quiet", text: ` ${a.source}` }))),
      told.warnings.map((w) => h("li", { text: text(w) }))));
}
