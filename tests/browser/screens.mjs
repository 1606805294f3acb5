/** Each screen on real data: what it must show, that it answers to its controls, and that axe-core finds no serious fault. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { CLUSTERS, LOGS } from "./data.mjs";
import { faults, open, picture, resized, settled, show, WIDTHS } from "./harness.mjs";
import { clean } from "./shell.mjs";

/** What a screen shows once it is drawn, by its id. */
const SHOWS = {
  async ask(page) {
    assert.match(await page.locator(".sentence").first().innerText(), /TP=8 × PP=2|KV tokens/);
    assert.equal(await page.locator(".card").count(), 3);
    assert.ok((await page.locator(".screen-ask tbody tr").count()) > 3);
  },
  async floor(page) {
    assert.match(await page.locator(".screen-floor .sentence").innerText(), /each byte of cache held 2×/, "past the KV heads it is copied");
    assert.equal(await page.locator(".screen-floor .plot .scatterlayer").count(), 2);
  },
  async memory(page) {
    assert.match(await page.locator(".screen-memory .sentence").innerText(), /GiB/);
    assert.ok((await page.locator(".screen-memory .plot .barlayer .point").count()) > 5);
    await page.locator(".screen-memory .row-button").first().click();
    await page.waitForFunction(() => document.querySelector(".screen-memory .detail").innerText.length > 30);
  },
  async step(page) {
    assert.match(await page.locator(".screen-step .sentence").innerText(), /ms/);
    assert.ok((await page.locator(".screen-step .plot .barlayer .point").count()) > 3);
  },
  async tradeoff(page) {
    assert.ok((await page.locator(".screen-tradeoff .plot .scatterlayer .trace").count()) > 3);
    assert.match(await page.locator(".screen-tradeoff .reading").innerText(), /tokens\/s for each user/);
  },
  async fleet(page) {
    assert.equal(await page.locator(".heat thead th").count(), Object.keys(CLUSTERS).length + 1);
    assert.ok((await page.locator(".pair-cell .mark.copies, .pair-cell.narrower, .pair-cell.none").count()) > 0);
  },
  async whatif(page) {
    assert.equal(await page.locator(".screen-whatif .plot .barlayer").count(), 2);
    assert.ok((await page.locator(".compare tbody tr").count()) >= 8);
  },
  async observed(page) {
    assert.ok((await page.locator(".screen-observed .table-frame tbody tr").count()) >= 1);
    assert.ok((await page.locator(".screen-observed .plot .scatterlayer path.point").count()) >= LOGS.length);
  },
};

export function screens(world) {
  for (const screen of world.screens) {
    for (const dark of [false, true]) {
      const how = dark ? "dark" : "light";
      clean(`${screen}, ${how}: real data, no serious fault of axe-core, and it fits every width`, world, { dark }, async (page) => {
        await show(page, world.origin, screen);
        assert.match(await page.locator(".calls").innerText(), /(GET|POST) \/v1\//, "it names what it asks");
        assert.deepEqual(await faults(page), []);
        for (const [name, viewport] of WIDTHS) {
          await resized(page, viewport);
          await picture(page, `${screen}-${name}-${how}`);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          assert.ok(over <= 1, `${over} px too wide at ${name}`);
        }
        if (!dark) await SHOWS[screen](page);
      });
    }
  }

  clean("where nothing fits, every screen says so and none draws an empty chart", world, {}, async (page) => {
    for (const screen of ["ask", "floor", "memory", "step", "tradeoff", "whatif"]) {
      await show(page, world.origin, screen, "model=meta-llama%2FLlama-3.1-405B-Instruct&cluster=2+H100");
      assert.match(await page.locator(`.screen-${screen}`).innerText(), /Nothing fits/, screen);
      assert.equal(await page.locator(`.screen-${screen} .plot:visible`).count(), 0, screen);
      assert.deepEqual(await faults(page), [], screen);
    }
  });

  clean("on GPUs of two kinds a layout says which it is on, and its figures are of those", world, {}, async (page) => {
    const mixed = "model=meta-llama%2FLlama-3.1-70B-Instruct&cluster=8+H100+and+8+A100+80GB";
    await show(page, world.origin, "ask", mixed);
    const rows = await page.locator(".screen-ask > .table tbody th").allInnerTexts();
    assert.ok(rows.every((row) => /H100|A100/.test(row)) && rows.some((row) => /A100/.test(row)), rows.join());
    await page.locator(".screen-ask tbody tr", { hasText: "A100" }).first().locator("a").click();
    await settled(page, "memory");
    assert.match(await page.locator(".screen-memory .picker option:checked").innerText(), /A100/);
    const there = await page.locator(".screen-memory .sentence").innerText();
    await show(page, world.origin, "memory", mixed);
    assert.notEqual(await page.locator(".screen-memory .sentence").innerText(), there, "the same TP=8 leaves another size on an H100");
  });

  clean("a point tells its figures where the pointer rests", world, {}, async (page) => {
    for (const screen of ["tradeoff", "observed"]) {
      await show(page, world.origin, screen);
      await page.locator(`.screen-${screen} .plot path.point`).last().hover({ force: true });
      await page.locator(`.screen-${screen} .hoverlayer text`).first().waitFor();
    }
  });

  clean("a table is sorted, and its link keeps the order", world, {}, async (page) => {
    await show(page, world.origin, "ask");
    const head = page.locator(".screen-ask thead button", { hasText: "TPOT" }).first();
    await head.click();
    await page.waitForFunction(() => document.querySelector(".screen-ask th[aria-sort]"));
    await page.waitForFunction(() => location.search.includes("ask.sort"));
    const first = await page.locator(".screen-ask tbody tr").first().innerText();
    const order = await page.locator(".screen-ask tbody tr").allInnerTexts();
    await page.goto(page.url());
    await settled(page, "ask");
    assert.deepEqual(await page.locator(".screen-ask tbody tr").allInnerTexts(), order);
    await page.locator(".screen-ask thead button", { hasText: "TPOT" }).first().click();
    assert.notEqual(await page.locator(".screen-ask tbody tr").first().innerText(), first, "the other way round");
  });

  clean("the floor follows its sliders", world, {}, async (page) => {
    await show(page, world.origin, "floor");
    const before = await page.locator(".screen-floor .sentence").innerText();
    await page.getByLabel("KV heads").focus();
    for (let i = 0; i < 3; i += 1) await page.keyboard.press("ArrowRight");
    await page.waitForFunction((then) => document.querySelector(".screen-floor .sentence").innerText !== then, before);
    // four heads over sixteen ranks: each held four times
    await page.waitForFunction(() => /4×/.test(document.querySelector(".screen-floor .sentence").innerText));
    await page.waitForFunction(() => location.search.includes("floor.heads=4"));
  });

  clean("the floor says where the number of heads changes nothing", world, {}, async (page) => {
    await show(page, world.origin, "floor", "model=deepseek-ai%2FDeepSeek-V3&cluster=2x8xH200&floor.heads=4");
    assert.match(await page.locator(".screen-floor .sentence").innerText(), /one latent for all its heads/);
  });

  clean("the trade-off follows its limits and its axes", world, {}, async (page) => {
    await show(page, world.origin, "tradeoff");
    assert.equal(await page.locator(".plot .shapelayer path").count(), 0);
    const slider = page.getByLabel("TPOT at most").last();
    await slider.focus();
    for (let i = 0; i < 4; i += 1) await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => document.querySelectorAll(".screen-tradeoff .plot .shapelayer path").length === 1);
    await page.waitForFunction(() => location.search.includes("tpot=25"));
    await page.getByText("Cost", { exact: true }).click();
    await page.waitForFunction(() => /price/i.test(document.querySelector(".screen-tradeoff .reading").textContent));
    await page.getByLabel("Price of a GPU").fill("2.5");
    await page.getByLabel("Price of a GPU").press("Tab");
    await page.waitForFunction(() => /dollars/i.test(document.querySelector(".screen-tradeoff .plot").textContent));
  });

  clean("a cell of the fleet leads to its plan", world, {}, async (page) => {
    await show(page, world.origin, "fleet");
    const cell = page.locator("a.pair-cell:not(.none):not(.narrower)").first();
    const held = (await cell.locator(".big").innerText()).trim();
    await cell.click();
    await settled(page, "ask");
    assert.match(await page.evaluate(() => location.search), /saved%3A/);
    const row = await page.locator(".screen-ask tbody tr").first().innerText();
    assert.ok(row.includes(held.split(/\s/)[0]), `${row} has ${held}`);
  });

  clean("the fleet is a spreadsheet too", world, {}, async (page) => {
    await show(page, world.origin, "fleet");
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download CSV" }).click()]);
    assert.equal(file.suggestedFilename(), "fleet.csv");
  });

  clean("a change of the what-if is chosen and shared", world, {}, async (page) => {
    await show(page, world.origin, "whatif");
    await page.getByLabel("Beside it, the same with").selectOption("gpu-h200");
    await page.waitForFunction(() => /GPU: H200/.test(document.querySelector(".compare thead").innerText));
    await page.waitForFunction(() => location.search.includes("whatif.change=gpu-h200"));
  });

  clean("a pasted log is compared and kept", world, {}, async (page) => {
    await show(page, world.origin, "observed");
    await page.getByLabel("The engine’s log").fill(LOGS[0].log);
    await page.getByLabel("What it ran on").fill(LOGS[0].cluster);
    await page.getByRole("button", { name: "Compare" }).click();
    await page.waitForFunction(() => /420,896/.test(document.querySelector(".comparison").innerText));
    assert.match(await page.locator(".comparison").innerText(), /Predicted/i);
  });

  test("a fleet without clusters offers some", async () => {
    for (const name of Object.keys(CLUSTERS)) await fetch(`${world.origin}/v1/clusters/${name}`, { method: "DELETE" });
    const { page, noted, close } = await open(world.browser, world.origin);
    await show(page, world.origin, "fleet");
    await page.getByRole("button", { name: /Save these/ }).click();
    await page.waitForFunction(() => document.querySelectorAll(".heat thead th").length === 5);
    assert.deepEqual(noted.errors, []);
    await close();
  });
}
