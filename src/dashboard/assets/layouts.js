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

/** A layout as a word for the address: "8.2.1.1.1.1". */
export function keyOf(layout) {
  return SIZES.map((size) => layout[size]).join(".");
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
      const chosen = rows.find((row) => keyOf(row.layout) === context.state.layout) ?? rows[0] ?? null;
      fill(select, rows.map((row, i) => h("option", { value: i === 0 ? "" : keyOf(row.layout), selected: row === chosen,
        text: `${i + 1}. ${format.layout(row.layout)}${row.kv.replication_factor > 1 ? `  ▲ ${format.times(row.kv.replication_factor)}` : ""}` })));
      element.hidden = rows.length === 0;
      return chosen;
    },
  };
}

/** What is said when there is nothing to look into. */
export function nothingFits(answer) {
  return [h("p", { class: "sentence", text: answer.answer }), h("p", { class: "quiet", text: "The first screen has every refused layout with its reason." })];
}
