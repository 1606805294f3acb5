/** Parts that several screens draw with: tables that sort, sliders, choices, folds, marks, copies. */

import { announce, fill, fresh, h } from "./dom.js";

/**
 * A table that sorts by any column.
 * @param {Array<{name: string, title?: string, value: function(Object): (number|string|null), show?: function(Object): (Node|string),
 *   text?: boolean, wide?: boolean, first?: "descending"}>} columns `value` is what sorts, `show` what is seen; `text` aligns to the left,
 *   `wide` is text that may take several lines
 * @param {{caption: string, sort?: string, descending?: boolean, first?: number, row?: function(Object): Object, sorted?: function(string)}} options
 *   `sort` is the name of a column; `row` gives attributes of a row; `sorted` is told "name" or "-name"; of more than `first` rows
 *   the others are shown on demand
 * @returns {{element: HTMLElement, rows: function(Array<Object>)}}
 */
export function table(columns, options) {
  let rows = [];
  let by = columns.find((c) => c.name === options.sort) ?? null;
  let down = Boolean(options.descending);
  let all = !options.first;
  const body = h("tbody");
  const kind = (column) => (column.wide ? "text wide" : column.text ? "text" : "number");
  const heads = columns.map((column) => {
    const button = h("button", { type: "button", title: column.title, on: { click: () => turn(column) } },
      column.name, h("span", { class: "arrow", "aria-hidden": "true" }));
    return h("th", { scope: "col", class: kind(column) }, button);
  });
  const more = h("button", { type: "button", class: "show-all", hidden: true, on: { click: () => { all = true; draw(); } } });
  const element = h("div", { class: "table" }, h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": options.caption },
    h("table", {}, h("caption", { class: "unseen", text: options.caption }), h("thead", {}, h("tr", {}, heads)), body)), more);

  function turn(column) {
    down = by === column ? !down : column.first === "descending";
    by = column;
    draw();
    options.sorted?.(`${down ? "-" : ""}${column.name}`);
    announce(`Sorted by ${column.name}, ${down ? "largest" : "smallest"} first`);
  }

  function draw() {
    columns.forEach((column, i) => {
      if (by === column) heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
    const ordered = by ? rows.toSorted((a, b) => compare(by.value(a), by.value(b), down)) : rows;
    more.hidden = all || rows.length <= options.first;
    more.textContent = `Show all ${rows.length}`;
    fill(body, (more.hidden ? ordered : ordered.slice(0, options.first)).map((row) => h("tr", options.row?.(row) ?? {}, columns.map((column, i) => {
      const cell = column.show ? column.show(row) : column.value(row) ?? "–";
      return i === 0 ? h("th", { scope: "row", class: kind(column) }, cell)
        : h("td", { class: kind(column) }, cell);
    }))));
  }

  return { element, rows(next) { rows = next; draw(); } };
}

/** What has no value comes last, whichever way the rest runs. */
function compare(a, b, down) {
  const none = (v) => v === null || v === undefined || Number.isNaN(v);
  if (none(a) || none(b)) return Number(none(a)) - Number(none(b));
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return down ? -order : order;
}

/**
 * A slider with its value in words.
 * @param {{label: string, values: Array<string>, value: string, show?: function(string): string, hint?: string, change: function(string)}} options
 *   `values` are its stops in order; `change` is told a stop while the slider moves
 * @returns {{element: HTMLElement, set: function(string)}} `set` adds a stop, in order of size, for a value that is none yet
 */
export function slider({ label, values: stops, value, show = String, hint, change }) {
  const id = fresh("slider");
  const values = [...stops];
  if (!values.includes(value)) values.splice(placeOf(values, value), 0, value);
  const input = h("input", { id, type: "range", min: 0, max: values.length - 1, step: 1, value: Math.max(0, values.indexOf(value)) });
  const told = h("output", { for: id });
  const say = () => {
    const words = show(values[Number(input.value)]);
    told.textContent = words;
    input.setAttribute("aria-valuetext", words);
  };
  input.addEventListener("input", () => {
    say();
    change(values[Number(input.value)]);
  });
  say();
  const element = h("div", { class: "slider" }, h("label", { for: id, text: label }), told, input, hint && h("p", { class: "hint", text: hint }));
  return {
    element,
    set(next) {
      if (values[Number(input.value)] === next) return;
      if (!values.includes(next)) values.splice(placeOf(values, next), 0, next);
      input.max = String(values.length - 1);
      input.value = String(values.indexOf(next));
      say();
    },
  };
}

/** Where a new stop stands among the others. */
function placeOf(values, value) {
  const after = values.findIndex((stop) => stop !== "" && Number(stop) > Number(value));
  return after < 0 ? values.length : after;
}

/**
 * One of a few.
 * @param {{label: string, options: Array<[string, string]>, value: string, change: function(string)}} choice `options` are [value, words]
 * @returns {{element: HTMLElement, set: function(string)}}
 */
export function choice({ label, options, value, change }) {
  const name = fresh("choice");
  const inputs = options.map(([key]) =>
    h("input", { type: "radio", name, value: key, checked: key === value, on: { change: () => change(key) } }));
  const element = h("fieldset", { class: "choice" }, h("legend", { text: label }),
    h("div", { class: "segments" }, options.map(([, words], i) => h("label", {}, inputs[i], h("span", { text: words })))));
  return { element, set(next) { for (const input of inputs) input.checked = input.value === next; } };
}

/** A box to tick. */
export function toggle({ label, value, change }) {
  const input = h("input", { type: "checkbox", checked: value, on: { change: () => change(input.checked) } });
  return { element: h("label", { class: "toggle" }, input, h("span", { text: label })), set(next) { input.checked = next; } };
}

/** Something that opens on demand. */
export function fold(summary, ...children) {
  return h("details", { class: "fold" }, h("summary", {}, summary), children);
}

/** A button that copies what `text` gives, and says so. */
export function copyButton(words, text) {
  const button = h("button", { type: "button", text: words });
  button.addEventListener("click", async () => {
    const copied = await copy(text());
    button.textContent = copied ? "Copied" : "Could not copy";
    announce(button.textContent);
    setTimeout(() => { button.textContent = words; }, 1600);
  });
  return button;
}

/** The clipboard needs a secure page; a plain one still has the older way. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

/** Marks that go with a colour, so that no meaning hangs on colour alone: the symbol, and words for those who do not see it. */
const MARKS = {
  copies: ["▲", "holds copies of KV heads"],
  refused: ["✕", "refused"],
  fits: ["✓", "fits"],
  idle: ["○", "idle GPUs"],
  rough: ["≈", "a rough estimate"],
  caution: ["!", "to be minded"],
};
export function mark(kind) {
  const [symbol, words] = MARKS[kind];
  return h("span", { class: `mark ${kind}`, title: words }, h("span", { "aria-hidden": "true", text: symbol }),
    h("span", { class: "unseen", text: words }));
}
