/** How long one waits, measured in the page. Reported, not asserted: a debug build on a busy machine is slow. */

import { test } from "node:test";
import { open, show } from "./harness.mjs";

/** Runs before the page's own script: notes when the first answer is drawn. */
function watchFirst() {
  const watch = new MutationObserver(() => {
    if (window.firstAnswer || !document.querySelector(".sentence")?.textContent) return;
    requestAnimationFrame(() => requestAnimationFrame((now) => { window.firstAnswer ??= now; }));
  });
  watch.observe(document, { childList: true, subtree: true, characterData: true });
}

/** Moves a slider by a stop and waits until the plot has changed and a frame was painted; milliseconds. */
function moveOnce({ slider, plot, value }) {
  const input = document.querySelector(slider);
  return new Promise((done, failed) => {
    const start = performance.now();
    const watch = new MutationObserver(() => {
      watch.disconnect();
      requestAnimationFrame(() => requestAnimationFrame((now) => done(now - start)));
    });
    watch.observe(document.querySelector(plot), { childList: true, subtree: true, attributes: true, characterData: true });
    setTimeout(() => failed(new Error("the plot did not change")), 5000);
    input.value = String(value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const told = (what, list) => console.log(`measured: ${what}: median ${median(list).toFixed(0)} ms, worst ${Math.max(...list).toFixed(0)} ms of ${list.length}`);

export function timings(world) {
  test("the first answer from a cold page", async () => {
    const times = [];
    for (let i = 0; i < 5; i += 1) {
      const { page, close } = await open(world.browser, world.origin);
      await page.addInitScript(watchFirst);
      await page.goto(`${world.origin}/`);
      times.push(await page.waitForFunction(() => window.firstAnswer).then((handle) => handle.jsonValue()));
      await close();
    }
    told("first answer drawn, cold page", times);
  });

  for (const [screen, query, slider] of world.sliders) {
    test(`a slider of ${screen} to the redraw`, async () => {
      const { page, close } = await open(world.browser, world.origin);
      await show(page, world.origin, screen, query);
      const plot = `.screen-${screen} .plot`;
      await page.locator(`${plot} svg`).first().waitFor();
      const stops = await page.locator(slider).first().evaluate((input) => Number(input.max));
      const times = [];
      for (let i = 0; i < 10; i += 1) {
        const now = await page.locator(slider).first().evaluate((input) => Number(input.value));
        times.push(await page.evaluate(moveOnce, { slider, plot, value: now >= stops ? 0 : now + 1 }));
        await page.waitForTimeout(120);
      }
      told(`slider to redraw, ${screen}`, times);
      await close();
    });
  }
}
