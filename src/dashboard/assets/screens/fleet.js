/**
 * Screen 6, Fleet: models down, saved clusters across; how many sequences each pair holds, and what stands in the way.
 *
 * Each cell is a plan of its own and leads to it. The shade is by sequences on a GPU; every other meaning has a symbol too.
 */

import { Problem } from "../api.js";
import { fill, fresh, h } from "../dom.js";
import * as format from "../format.js";
import { fold, mark } from "../parts.js";

export const id = "fleet";
export const title = "Fleet";
export const calls = ["GET /v1/clusters", "POST /v1/batches"];

/** Models that are asked about when the address names none. */
const USUAL = ["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B-Instruct", "openai/gpt-oss-120b",
  "meta-llama/Llama-3.1-405B-Instruct", "deepseek-ai/DeepSeek-V3"].join(",");
export const keys = { "fleet.models": USUAL };

/** Clusters to begin with where none is saved. */
const EXAMPLES = [["two-nodes-h100", "2x8 H100"], ["one-node-h200", "8 H200"], ["four-a100", "4 A100 80GB"], ["two-l40s", "2 L40S"]];
const MOST_CLUSTERS = 24;

export function render(root, context) {
  const models = modelList(context);
  const saving = saveForm(context, () => draw().catch(say));
  const said = h("p", { class: "fault", role: "status", hidden: true });
  const reading = h("p", { class: "reading" });
  const matrix = h("div", { class: "matrix" });
  const csv = h("button", { type: "button", text: "Download CSV" });
  const key = h("div", { class: "plot-key" });
  let question = null;
  csv.addEventListener("click", () => download(question).catch(say));
  root.append(reading, models.chips, h("div", { class: "controls" }, models.form, saving.element, csv), said, matrix, key);

  function say(problem) {
    said.textContent = problem.message;
    said.hidden = false;
  }

  async function draw() {
    said.hidden = true;
    const asked = list(context.state["fleet.models"]);
    models.set(asked);
    const saved = await savedClusters(context);
    models.chips.hidden = models.form.hidden = saved.length === 0;
    csv.hidden = key.hidden = saved.length === 0 || asked.length === 0;
    saving.open(saved.length === 0);
    if (!saved.length || !asked.length) {
      reading.textContent = saved.length ? "Add a model to compare." : "No cluster is saved yet. Save your own, or a few to look at:";
      fill(matrix, saved.length ? null : offer(context, () => draw().catch(say)));
      return;
    }
    // a cluster of the question's form would be one more: the fleet is what is saved
    const { model: _model, cluster: _cluster, ...rest } = context.request();
    question = { models: asked, clusters: saved.map((name) => ({ saved: name })), ...rest };
    const batch = await context.call("POST", "/v1/batches", question);
    const [first] = batch.items;
    // what is wrong with every pair is wrong with the question at the side
    if (batch.answered === 0 && batch.items.every((item) => item.problem?.detail === first.problem?.detail)) throw new Problem({ status: first.status, ...first.problem });
    reading.textContent = `Of ${batch.answered} pairs ${batch.feasible} fit${batch.feasible < batch.answered ? "; the others say what is missing, and lead to the reasons" : ""}. Each cell has the whole cluster to itself: whole sequences of ${format.context(Number(context.state.context)) ?? context.state.context} tokens.`;
    fill(matrix, tableOf(batch, asked, saved, context));
    fill(key, keyOf());
  }
  return draw;
}

const list = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);

/** Every saved cluster's name, page by page. */
async function savedClusters(context) {
  const names = [];
  let token = null;
  do {
    const page = await context.call("GET", `/v1/clusters?page_size=200${token ? `&page_token=${token}` : ""}`);
    names.push(...page.items.map((item) => item.name));
    token = page.next_page_token;
  } while (token && names.length < MOST_CLUSTERS);
  return names.slice(0, MOST_CLUSTERS);
}

/** The matrix: a table, since it is one. */
function tableOf(batch, models, clusters, context) {
  const item = (m, c) => batch.items[m * clusters.length + c];
  const largest = Math.max(0, ...batch.items.map((i) => i.plan?.sequences_per_gpu ?? 0));
  const head = h("tr", {}, h("th", { scope: "col", class: "text", text: "Model" }), clusters.map((name, c) => {
    const total = batch.by_cluster[c];
    return h("th", { scope: "col" }, h("span", { class: "cluster", text: name }), h("span", { class: "quiet", title: total?.text, text: total?.words ?? "cannot be read" }));
  }));
  const rows = models.map((model, m) => h("tr", {},
    h("th", { scope: "row", class: "text" }, h("span", { class: "quiet", text: model.includes("/") ? `${model.split("/")[0]}/` : "" }), h("span", { class: "name", text: model.split("/").pop() })),
    clusters.map((name, c) => h("td", {}, cell(item(m, c), largest, (more) => context.link({ screen: "ask", model, cluster: `saved:${name}`, ...more }))))));
  const totals = [["GPUs", (t) => format.integer(t.gpus)], ["Models that fit", (t) => `${t.feasible} of ${t.answered}${t.feasible_narrower ? ` (+${t.feasible_narrower} narrower)` : ""}`]];
  const foot = totals.map(([words, show]) => h("tr", {}, h("th", { scope: "row", class: "text", text: words }), batch.by_cluster.map((t) => h("td", { text: show(t) }))));
  return h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Models by clusters" },
    h("table", { class: "heat" }, h("caption", { class: "unseen", text: "Sequences that each cluster holds of each model" }), h("thead", {}, head), h("tbody", {}, rows), h("tfoot", {}, foot)));
}

/** One pair; `to(changes)` is the address of its plan. */
function cell(item, largest, to) {
  if (item.problem) return h("span", { class: "pair-cell none", title: item.problem.detail }, mark("refused"), h("span", { text: " not answered" }), h("span", { class: "small", text: item.problem.detail }));
  const plan = item.plan;
  const best = plan.layouts[0];
  if (plan.feasible) {
    // by the logarithm: a small model on a large cluster holds a thousand times what a large one does
    const shade = Math.log1p(plan.sequences_per_gpu) / Math.log1p(Math.max(largest, 1e-9));
    const copies = best.kv.replication_factor > 1;
    return h("a", { class: "pair-cell", href: to(), vars: { "--heat": shade.toFixed(3) }, title: plan.answer },
      h("span", { class: "big" }, format.integer(best.capacity.sequences_total), copies && h("span", { class: "corner" }, mark("copies"))),
      h("span", { class: "small", text: `${format.figure(plan.sequences_per_gpu)} a GPU` }),
      h("span", { class: "small", text: format.layout(best.layout) }),
      best.layout.idle_gpus > 0 && h("span", { class: "small" }, mark("idle"), ` ${best.layout.idle_gpus} idle`));
  }
  const why = plan.why_not;
  const short = why?.short_by_bytes ? `${format.bytes(why.short_by_bytes)} short` : format.words(why?.code);
  if (plan.fits_only_as) {
    const narrow = plan.fits_only_as;
    return h("a", { class: "pair-cell narrower", href: to({ weights: narrow.weights }), title: `As published it does not fit: ${why?.message ?? ""} With ${narrow.weights} weights: ${format.layout(narrow.best.layout)}.` },
      h("span", { class: "big", text: format.integer(narrow.best.capacity.sequences_total) }),
      h("span", { class: "small", text: `only as ${narrow.weights}` }), h("span", { class: "small", text: short }));
  }
  return h("a", { class: "pair-cell none", href: to(), title: why?.message ?? plan.answer }, h("span", { class: "big" }, mark("refused")), h("span", { class: "small", text: short }));
}

function keyOf() {
  return h("ul", { class: "plot-key" },
    h("li", {}, h("span", { class: "swatch heat-scale", "aria-hidden": "true" }), " darker: more sequences on each GPU"),
    h("li", {}, mark("copies"), " the best layout copies KV heads"),
    h("li", {}, h("span", { class: "swatch hatched", "aria-hidden": "true" }), " hatched: fits only with narrower weights"),
    h("li", {}, mark("refused"), " does not fit; what is missing on the tightest GPU"),
    h("li", {}, mark("idle"), " GPUs that no replica uses"));
}

/** The models that are compared: taken away by a button, added by name. */
function modelList(context) {
  const chips = h("ul", { class: "chips", "aria-label": "Models in the matrix" });
  const options = h("datalist", { id: fresh("models") });
  const input = h("input", { type: "text", id: fresh("model"), list: options.id, spellcheck: "false", autocomplete: "off" });
  const set = (models) => context.set({ "fleet.models": models.join(",") });
  let now = [];
  input.addEventListener("input", async () => {
    const text = input.value.trim();
    if (!text) return;
    const found = await context.call("GET", `/v1/models?page_size=12&search=${encodeURIComponent(text)}`).catch(() => ({ items: [] }));
    fill(options, found.items.map((item) => h("option", { value: item.id })));
  });
  const add = () => {
    const text = input.value.trim();
    if (text && !now.includes(text)) set([...now, text]);
    input.value = "";
  };
  const form = h("form", { class: "add", on: { submit: (event) => { event.preventDefault(); add(); } } },
    h("label", { for: input.id, text: "Add a model" }), h("span", { class: "row" }, input, h("button", { type: "submit", text: "Add" })), options);
  return {
    chips,
    form,
    set(models) {
      now = models;
      fill(chips, models.map((model) => h("li", {}, h("span", { text: model.split("/").pop() }),
        h("button", { type: "button", class: "plain", "aria-label": `Take ${model} away`, on: { click: () => set(now.filter((m) => m !== model)) }, text: "×" }))));
    },
  };
}

/** Save a cluster under a name. */
function saveForm(context, saved) {
  const name = h("input", { type: "text", id: fresh("name"), required: true, spellcheck: "false", autocomplete: "off", placeholder: "prod-east" });
  const text = h("input", { type: "text", id: fresh("text"), required: true, spellcheck: "false", autocomplete: "off", placeholder: "2x8 H100" });
  const fault = h("p", { class: "fault", role: "alert", hidden: true });
  const form = h("form", { class: "add", on: { submit: save } },
    h("label", { for: name.id, text: "Name" }), name, h("label", { for: text.id, text: "Cluster" }),
    h("span", { class: "row" }, text, h("button", { type: "submit", text: "Save" })), fault);
  const element = fold("Save a cluster", form);

  async function save(event) {
    event.preventDefault();
    fault.hidden = true;
    try {
      await context.call("PUT", `/v1/clusters/${encodeURIComponent(name.value.trim())}`, { cluster: text.value.trim() });
      name.value = text.value = "";
      saved();
    } catch (problem) {
      fault.textContent = problem.errors?.map((e) => e.detail).join("; ") || problem.message;
      fault.hidden = false;
    }
  }
  return { element, open(yes) { element.open ||= yes; } };
}

/** A few clusters to begin with. */
function offer(context, saved) {
  const button = h("button", { type: "button", class: "offer", text: "Save these four" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    for (const [name, cluster] of EXAMPLES) await context.call("PUT", `/v1/clusters/${name}`, { cluster });
    saved();
  });
  return h("div", { class: "empty" }, h("ul", {}, EXAMPLES.map(([name, cluster]) => h("li", {}, h("strong", { text: name }), ` ${cluster}`))), button);
}

/** The matrix as the API writes it for spreadsheets. */
async function download(question) {
  const answer = await fetch("/v1/batches", { method: "POST", headers: { "content-type": "application/json", accept: "text/csv" }, body: JSON.stringify(question) });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const link = h("a", { href: URL.createObjectURL(await answer.blob()), download: "fleet.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
