/**
 * The shell: one question at the side, eight screens that answer it, and the address that holds both.
 *
 * ## A screen
 * is a module in `screens/`, listed in `screens/all.js`, that exports
 * - `id`: a word for the address (`?screen=floor`);
 * - `title`: the words of its tab;
 * - `calls`: what it asks of the API, e.g. `["POST /v1/plans"]`, shown under its title;
 * - `keys` (if any): its own part of the address, each with its usual value, e.g. `{"floor.by": "none"}`; values are texts,
 *   names begin with the screen's id;
 * - `alone` (if any): true when the question at the side says nothing to it;
 * - `render(root, context)`: called once, when the screen is first shown. It puts its elements into `root` and returns
 *   `refresh()`, which the shell calls then and whenever the state has changed while the screen is shown.
 *
 * `refresh` may be async. What it throws is shown: a problem's faults beside the controls they belong to, the rest above the
 * screen; that it was aborted is not shown. It must not hold figures of its own: it asks, and draws what it was told.
 *
 * ## The context
 * - `context.state`: every key of the question and of the screens, as texts (frozen; see state.js);
 * - `context.request()`: the body of `POST /v1/plans` for the question; a screen spreads it and changes parts;
 * - `context.set({key: text})`: change the state; the address follows and `refresh` is called;
 * - `context.call(method, path, body)`: the API (see api.js): resolves to JSON, throws `Problem`; equal questions are asked
 *   once; it is what "copy as curl" copies; aborted when the screen has moved on;
 * - `context.link(changes)`: the address with other state, for `href`.
 *
 * Parts to draw with: dom.js (elements), format.js (units), parts.js (tables, sliders, choices), chart.js (plots).
 * The look is in style.css (the shell, shared parts) and screens.css (what only one screen has).
 */

import { call, curl, Problem } from "./api.js";
import { prepare } from "./chart.js";
import { announce, coded, fill, h } from "./dom.js";
import { copyButton } from "./parts.js";
import { question } from "./question.js";
import { SCREENS } from "./screens/all.js";
import { PLACES, read, requestOf, rulesOf, write } from "./state.js";
import { themeSwitch } from "./theme.js";

/** A refresh that takes longer is given up when the state changes; a shorter one may end, so that sliders do not starve. */
const PATIENCE_MS = 150;
/** Browsers refuse an address that changes too often. */
const ADDRESS_PAUSE_MS = 250;

let state = Object.freeze(read(location.search, SCREENS));
let run = null;
let again = false;
let addressTimer = 0;
let prepared = false;
const mounted = new Map();

const parts = {
  nav: h("nav", { class: "tabs", "aria-label": "Screens" }),
  aside: h("aside", { class: "side", "aria-label": "The question" }),
  apart: h("p", { class: "apart quiet", text: "This screen is about what engines printed; the question of the other screens says nothing to it, and is kept." }),
  title: h("h1", { tabindex: "-1" }),
  calls: h("p", { class: "calls" }),
  actions: h("div", { class: "actions" }),
  notice: h("div", { class: "notice", role: "status" }),
  faults: h("div", { class: "faults", role: "alert" }),
  screens: h("div", { class: "screens" }),
};

const context = {
  get state() { return state; },
  request: () => requestOf(state),
  set,
  link: (changes) => write({ ...state, ...changes }, SCREENS),
  call(method, path, body) {
    const here = run;
    here?.calls.push({ method, path, body });
    return call(method, path, body, here?.controller.signal).then((json) => {
      if (json?.versions) noteVersions(json);
      return json;
    });
  },
};
const form = question(context);

/** Change the state. A new screen is a step of the history; everything else replaces the address. */
function set(changes, { step = false } = {}) {
  const next = { ...state, ...changes };
  if (!("rules" in changes)) delete next.rules;
  if (!("plan" in changes)) delete next.plan;
  if (Object.keys(next).every((key) => next[key] === state[key])) return;
  state = Object.freeze(next);
  clearTimeout(addressTimer);
  if (step) history.pushState(null, "", write(state, SCREENS));
  else addressTimer = setTimeout(() => history.replaceState(null, "", write(state, SCREENS)), ADDRESS_PAUSE_MS);
  show();
}

const current = () => SCREENS.find((screen) => screen.id === state.screen);

/** Bring the page to the state. */
function show() {
  const screen = current();
  for (const link of parts.nav.children) {
    const here = link.dataset.screen === screen.id;
    link.setAttribute("href", write({ ...state, screen: link.dataset.screen }, SCREENS));
    if (here) {
      link.setAttribute("aria-current", "page");
      // never the page: only the row of tabs is moved
      parts.nav.scrollLeft = Math.max(0, link.offsetLeft - parts.nav.clientWidth / 2);
    } else link.removeAttribute("aria-current");
  }
  if (parts.title.textContent !== screen.title) {
    document.title = `${screen.title} · shardwise`;
    parts.title.textContent = screen.title;
    fill(parts.calls, "From ", screen.calls.map((name, i) => [i ? ", " : "", h("code", { text: name })]));
    parts.aside.classList.toggle("quiet", screen.alone === true);
    for (const [id, { root }] of mounted) root.hidden = id !== screen.id;
    fill(parts.faults);
  }
  form.update(state);
  refresh(screen);
}

/** Let the screen follow the state; one run at a time, the newest state last. */
async function refresh(screen) {
  if (run) {
    again = true;
    if (run.screen !== screen || performance.now() - run.since > PATIENCE_MS) run.controller.abort();
    return;
  }
  run = { screen, since: performance.now(), controller: new AbortController(), calls: [] };
  const here = run;
  const busy = setTimeout(() => parts.screens.setAttribute("aria-busy", "true"), PATIENCE_MS);
  try {
    await mount(screen).refresh();
    mounted.get(screen.id).answered = true;
    showFaults(null);
  } catch (error) {
    if (error.name !== "AbortError") showFaults(error);
  } finally {
    clearTimeout(busy);
    if (!prepared) prepare();
    prepared = true;
    if (here.calls.length) mounted.get(screen.id).calls = here.calls;
    run = null;
    if (again) {
      again = false;
      show();
    } else {
      parts.screens.removeAttribute("aria-busy");
    }
  }
}

function mount(screen) {
  const known = mounted.get(screen.id);
  if (known) return known;
  const root = h("section", { class: `screen screen-${screen.id}`, "aria-label": screen.title });
  parts.screens.append(root);
  const made = { root, refresh: screen.render(root, context), calls: [], answered: false };
  mounted.set(screen.id, made);
  return made;
}

/** Faults beside their controls; what belongs to none, above the screen. */
function showFaults(error) {
  const rest = [];
  const byKey = {};
  const others = [];
  if (error instanceof Problem) {
    for (const fault of error.errors) {
      const pointer = (fault.pointer ?? "").replace(/^#\/items\/\d+/, "#");
      const key = PLACES.find(([start]) => pointer === start || pointer.startsWith(`${start}/`))?.[1];
      // the context stands in two places of a request: one fault, said once
      if (key) byKey[key] = byKey[key]?.includes(fault.detail) ? byKey[key] : [byKey[key], fault.detail].filter(Boolean).join("; ");
      else rest.push([fault.pointer ? h("code", { text: fault.pointer }) : null, fault.pointer ? " " : "", coded(fault.detail)]);
      if (key === "model" || key === "engine") others.push(...(fault.allowed ?? []).map((value) => [key, String(value)]));
    }
    if (!error.errors.length) rest.push(coded(error.message));
  } else if (error) {
    rest.push(`This screen could not be drawn: ${error.message}`);
    console.error(error);
  }
  form.faults(byKey);
  const asked = Object.keys(byKey).length;
  fill(parts.faults,
    asked > 0 && h("p", {}, h("span", { class: "mark refused", "aria-hidden": "true", text: "✕ " }),
      Object.entries(byKey).map(([key, detail], i) => [i ? "; " : "", h("strong", { text: `${form.label(key)}: ` }),
        coded(others.length ? detail.replace(/; did you mean .*\?$/, "") : detail)])),
    others.length > 0 && h("p", {}, "Try ", others.slice(0, 6).map(([key, value], i) => [i ? ", " : "", h("a", { href: context.link({ [key]: value }), text: value })]), "."),
    rest.map((words) => h("p", {}, h("span", { class: "mark refused", "aria-hidden": "true", text: "✕ " }), words)));
  const shown = mounted.get(state.screen);
  shown?.root.classList.toggle("stale", Boolean(error) && shown.answered);
}

/** Say which rules gave the figures; a shared link that was made with others gets a bar with both answers. */
let newest = null;
function noteVersions(json) {
  const rules = rulesOf(json.versions);
  const place = document.getElementById("versions");
  const v = json.versions;
  fill(place, `Rules: planner ${v.planner}, ${v.engine_rules}, catalogue ${v.catalogue}, calibration ${v.calibration}.`);
  newest = json.plan_id ? { rules, plan: json.plan_id } : newest;
  if (json.plan_id && state.rules && state.rules !== rules) compareWithThen(rules, json.answer);
}

async function compareWithThen(rules, now) {
  const { rules: then, plan } = state;
  const before = plan ? await call("GET", `/v1/plans/${encodeURIComponent(plan)}`).catch(() => null) : null;
  fill(parts.notice,
    h("p", {}, "This link was made with other rules (", h("code", { text: then }), "; now ", h("code", { text: rules }), ")."),
    before && h("p", {}, h("strong", { text: "Then: " }), before.answer),
    before && h("p", {}, h("strong", { text: "Now: " }), now));
}

/** What can be done with any screen. */
function actions() {
  const share = () => new URL(write({ ...state, ...(newest ?? {}) }, SCREENS), location.href).href;
  const asCurl = () => (mounted.get(state.screen)?.calls ?? []).map((c) => curl(c.method, c.path, c.body)).join("\n");
  fill(parts.actions,
    copyButton("Copy link", share),
    copyButton("Copy as curl", asCurl),
    h("button", { type: "button", on: { click: () => window.print() }, text: "Print" }));
}

/** Links that only change the state need no new page. */
function follow(event) {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  set(read(link.getAttribute("href"), SCREENS), { step: true });
  parts.title.focus({ preventScroll: true });
  announce(`${current().title} is shown`);
}

function start() {
  for (const screen of SCREENS) {
    parts.nav.append(h("a", { href: "?", "data-screen": screen.id, text: screen.title }));
  }
  parts.aside.append(form.element, parts.apart);
  actions();
  const frame = document.getElementById("frame");
  fill(frame, parts.aside, h("main", { id: "screen" }, parts.nav,
    h("div", { class: "heading" }, h("div", {}, parts.title, parts.calls), parts.actions),
    parts.notice, parts.faults, parts.screens),
  h("div", { id: "announce", class: "unseen", role: "status", "aria-live": "polite" }));
  frame.hidden = false;
  document.getElementById("not-started").remove();
  document.getElementById("tools").append(themeSwitch());
  document.addEventListener("click", follow);
  window.addEventListener("popstate", () => {
    state = Object.freeze(read(location.search, SCREENS));
    show();
  });
  show();
}

start();
