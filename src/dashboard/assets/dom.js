/** Elements without markup: nothing that comes from outside is ever read as HTML. */

/**
 * An element.
 * @param {string} tag
 * @param {Object} [properties] attributes; `class`, `text`, `on` (listeners by event), `vars` (custom CSS properties),
 *   and anything else as an attribute: true is an empty one, false, null and undefined are none
 * @param {...(Node|string|number|null|undefined|Array)} children
 * @returns {HTMLElement}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "vars") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

/** Append children, lists among them; empty ones are passed over. */
function put(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) put(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

/** Words of the API, in which code stands between backticks. */
export function coded(text) {
  return String(text).split("`").map((part, i) => (i % 2 ? h("code", { text: part }) : part));
}

/** A number that no other element of the page has, for `id` and `for`. */
let count = 0;
export function fresh(prefix) {
  count += 1;
  return `${prefix}-${count}`;
}

/** Say something to those who hear the page. */
export function announce(text) {
  const place = document.getElementById("announce");
  if (place) place.textContent = text;
}
