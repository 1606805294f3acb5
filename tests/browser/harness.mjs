/**
 * What every browser test stands on: the real binary on a free port with a database of its own, Debian's Chromium, and a
 * page that notes each error, each violation of the content policy (Chromium logs them as errors) and each request.
 */

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../..");
const require = createRequire(join(root, "target/browser/package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const SCREENSHOTS = join(root, "target/screenshots");
export const WIDTHS = [["1440", { width: 1440, height: 900 }], ["1024", { width: 1024, height: 768 }], ["390", { width: 390, height: 844 }]];

/** Wait at most this long for anything; the machine may be busy with other tests. */
const PATIENCE_MS = 20_000;

/** Start the service; port 0 takes a free one, which the log names. */
export async function serve(binary) {
  const folder = mkdtempSync(join(tmpdir(), "shardwise-browser-"));
  const server = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "",
    "--database-url", `sqlite:${join(folder, "page.sqlite")}`, "--set", "server.drain_ms=0"], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const origin = await new Promise((found, failed) => {
    const timer = setTimeout(() => failed(new Error(`the server did not start:\n${log}`)), PATIENCE_MS);
    server.stderr.on("data", (bytes) => {
      log += bytes;
      const address = /listening.* api=([0-9.:]*)/.exec(log)?.[1];
      if (address) {
        clearTimeout(timer);
        found(`http://${address}`);
      }
    });
    server.on("exit", (code) => failed(new Error(`the server ended with ${code}:\n${log}`)));
  });
  // the database is brought up to date beside the requests
  await until(async () => (await fetch(`${origin}/readyz`)).ok, "the service is ready");
  return {
    origin,
    log: () => log,
    async stop() {
      const ended = new Promise((done) => server.on("exit", done));
      server.kill("SIGTERM");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function until(holds, what) {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    if (await holds()) return;
    await new Promise((next) => setTimeout(next, 50));
  }
  throw new Error(`in vain: ${what}`);
}

/** Debian's Chromium; its sandbox cannot be had as root. */
export function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const args = ["--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"];
  if (process.getuid?.() === 0) args.push("--no-sandbox");
  return chromium.launch({ executablePath, args });
}

/**
 * A page of a fresh browser profile.
 * @returns {Promise<{page: Object, noted: {errors: string[], hosts: string[]}, close: function(): Promise<void>}>}
 *   `errors`: console errors and uncaught exceptions; the browser's own line about an answer of the API with status 4xx is
 *   left out where `refusals` says that the test asks for one
 */
export async function open(browser, origin, { viewport = { width: 1440, height: 900 }, dark = false, refusals = false, ...more } = {}) {
  const context = await browser.newContext({ viewport, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce", ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const noted = { errors: [], hosts: [] };
  page.on("console", (message) => {
    if (message.type() !== "error") return;
    const refused = /^Failed to load resource: .* status of 4\d\d/.test(message.text());
    if (!(refusals && refused)) noted.errors.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => noted.errors.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && !["data:", "blob:"].includes(url.protocol)) noted.hosts.push(url.href);
  });
  return { page, noted, close: () => context.close() };
}

/** Open a screen and wait until its answer is drawn and nothing more is asked. */
export async function show(page, origin, screen, query = "") {
  await page.goto(`${origin}/?${new URLSearchParams({ screen })}${query ? `&${query}` : ""}`);
  await settled(page, screen);
}

/** The screen is there, not busy, and its text no longer changes. */
export async function settled(page, screen) {
  await page.waitForFunction((id) => {
    const section = document.querySelector(`.screen-${id}`);
    return section && !section.hidden && section.innerText.trim().length > 40
      && document.querySelector(".screens")?.getAttribute("aria-busy") !== "true";
  }, screen);
  await page.waitForLoadState("networkidle");
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** Another width: nothing is asked anew, but plots are drawn again. */
export async function resized(page, viewport) {
  await page.setViewportSize(viewport);
  await page.evaluate(() => new Promise((done) => setTimeout(() => requestAnimationFrame(done), 200)));
}

/** Serious and critical faults that axe-core finds, one line each. */
export async function faults(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  return found.violations.filter((v) => ["serious", "critical"].includes(v.impact))
    .map((v) => `${v.id} (${v.impact}): ${v.help}: ${v.nodes.slice(0, 4).map((n) => `${n.target.join(" ")} ${n.any[0]?.message ?? ""}`).join(" | ")}`);
}

/** A picture of the whole page. */
export async function picture(page, name) {
  mkdirSync(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage: true });
}
