/** One layout out of the answer, for the screens that look into it. */

import { fill, fresh, h } from "./dom.js";
import * as format from "./format.js";

/** Layouts that are asked for. Screens ask with the same body, so that the API is asked once. */
const LIMIT = 100;
const SIZES = ["tp", "pp", "dp", "ep", "attention_dp", "dcp"];

/** The plan of the question: every layout that fits, up to 100. */
export function plan(context) {
  return context.call("POST", "/v1/plans", { ...context.request(), limit: LIMIT });
}

/** A layout as a word for the address: "8.2.1.1.1.1"; where GPUs are of several kinds, with the kind it is on. */
export function keyOf(layout, mixed) {
  return `${SIZES.map((size) => layout[size]).join(".")}${mixed ? `.${layout.gpu}` : ""}`;
}

/** How many kinds of GPU a plan's cluster has. */
export function kinds(answer) {
  return new Set(answer.cluster.node_pools.map((pool) => pool.gpu)).size;
}

/** "TP=8 × PP=2", and on which GPUs where there are several kinds. */
export function nameOf(row, mixed) {
  return `${format.layout(row.layout)}${mixed ? ` on ${format.product(row.layout.gpu)}` : ""}`;
}

/** `search` that leaves this layout only. */
export function only(layout) {
  return Object.fromEntries(SIZES.map((size) => [size, [layout[size]]]));
}

/**
 * A choice among the layouts of a plan; kept in the address under `layout`, which several screens share.
 * @returns {{element: HTMLElement, choose: function(Object): Object|null}} `choose` takes a plan and gives the row that is looked into
 */
export function layoutPicker(context) {
  const id = fresh("layout");
  const select = h("select", { id, on: { change: () => context.set({ layout: select.value }) } });
  const element = h("div", { class: "field picker" }, h("label", { for: id, text: "Layout" }), select);
  return {
    element,
    choose(answer) {
      const rows = answer.layouts;
      const mixed = kinds(answer) > 1;
      const chosen = rows.find((row) => keyOf(row.layout, mixed) === context.state.layout) ?? rows[0] ?? null;
      fill(select, rows.map((row, i) => h("option", { value: i === 0 ? "" : keyOf(row.layout, mixed), selected: row === chosen,
        text: `${i + 1}. ${nameOf(row, mixed)}${row.kv.replication_factor > 1 ? `  ▲ ${format.times(row.kv.replication_factor)}` : ""}` })));
      element.hidden = rows.length === 0;
      return chosen;
    },
  };
}

/** What is said when there is nothing to look into. */
export function nothingFits(words, context) {
  return [words, h("span", { class: "aside" }, h("a", { href: context.link({ screen: "ask" }), text: "Every refused layout with its reason" }))];
}
