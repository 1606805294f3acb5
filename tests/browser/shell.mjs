/** What holds for the page as a whole: shared links, faults by field, no script, keyboard, print, narrow widths. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { open, settled, show } from "./harness.mjs";

/** A page for one test; what it noted must be nothing. */
export function clean(name, world, options, body) {
  test(name, async () => {
    const opened = await open(world.browser, world.origin, options);
    try {
      await body(opened.page, opened.noted);
      assert.deepEqual(opened.noted.errors, [], "errors on the console");
      assert.deepEqual(opened.noted.hosts, [], "requests to other hosts");
    } finally {
      await opened.close();
    }
  });
}

export function shell(world) {
  clean("every screen has its tab, and every tab its tests", world, {}, async (page) => {
    await show(page, world.origin, "ask");
    const tabs = await page.locator("nav.tabs a").evaluateAll((links) => links.map((link) => link.dataset.screen));
    assert.deepEqual(tabs, world.screens);
  });

  clean("a shared link gives the same answer", world, {}, async (page) => {
    await show(page, world.origin, "ask", "model=openai%2Fgpt-oss-120b&cluster=4+H100&context=65536&users=16");
    const first = await page.locator(".sentence").first().innerText();
    assert.match(first, /TP=|fit/);
    // every control is in the address
    await page.getByLabel("Users at once").fill("48");
    await page.getByLabel("Users at once").press("Tab");
    await page.waitForFunction(() => location.search.includes("users=48"));
    await settled(page, "ask");
    const link = page.url();
    const answer = await page.locator(".screen-ask").innerText();
    const other = await open(world.browser, world.origin);
    await other.page.goto(link);
    await settled(other.page, "ask");
    assert.equal(await other.page.locator(".screen-ask").innerText(), answer);
    assert.equal(await other.page.getByLabel("Users at once").inputValue(), "48");
    assert.deepEqual(other.noted.errors, []);
    await other.close();
  });

  clean("a fault of the API stands beside its field, and goes again", world, { refusals: true }, async (page) => {
    await page.goto(`${world.origin}/?cluster=8+H100&users=many`);
    const users = page.getByLabel("Users at once");
    await page.waitForFunction(() => document.querySelector("[aria-invalid]"));
    assert.equal(await users.getAttribute("aria-invalid"), "true");
    const told = await page.locator(`#${await users.getAttribute("aria-describedby")}`).innerText();
    assert.match(told, /integer|number|whole/i);
    assert.ok((await page.locator(".faults").innerText()).length > 10, "it is told above the screen too");
    await users.fill("8");
    await users.press("Tab");
    await page.waitForFunction(() => !document.querySelector("[aria-invalid]") && !document.querySelector(".faults").innerText.trim());
    await settled(page, "ask");
  });

  clean("faults of many questions at once stand beside the field too", world, {}, async (page) => {
    for (const screen of ["fleet", "whatif"]) {
      await page.goto(`${world.origin}/?screen=${screen}&cluster=8+H100&users=0`);
      await page.waitForFunction(() => document.querySelector("[aria-invalid]") && document.querySelector(".faults").innerText.trim());
      assert.equal(await page.getByLabel("Users at once").getAttribute("aria-invalid"), "true", screen);
    }
  });

  clean("an unknown model is told with what there is", world, { refusals: true }, async (page) => {
    await page.goto(`${world.origin}/?model=no-such-model-71b&cluster=8+H100`);
    await page.waitForFunction(() => document.querySelector(".faults")?.innerText.trim().length > 10);
    assert.equal(await page.locator("[aria-invalid='true']").count(), 1);
    // a near miss is a link away
    await page.goto(`${world.origin}/?model=llama-3.1-71b&cluster=8+H100`);
    await page.locator(".faults a", { hasText: "meta-llama/Llama-3.1-70B" }).first().click();
    await settled(page, "ask");
    assert.match(page.url(), /Llama-3.1-70B/);
  });

  clean("a saved cluster is asked about by its bare name", world, {}, async (page) => {
    await show(page, world.origin, "ask", "model=meta-llama%2FLlama-3.1-8B-Instruct&cluster=prod-west");
    assert.match(await page.locator(".side").innerText(), /H200/);
  });

  test("without JavaScript the page says so and points to the API", async () => {
    const { page, close } = await open(world.browser, world.origin, { javaScriptEnabled: false });
    await page.goto(world.origin);
    assert.match(await page.locator("noscript").innerText(), /JavaScript/);
    assert.ok(await page.locator("noscript a[href='/docs']").count());
    await close();
  });

  test("a script that cannot be loaded leaves a message", async () => {
    const { page, close } = await open(world.browser, world.origin);
    await page.route("**/app.js", (route) => route.abort());
    await page.goto(world.origin);
    const message = page.locator("#not-started");
    await message.waitFor({ state: "visible" });
    assert.match(await message.innerText(), /reload|API/);
    await close();
  });

  test("a server that is gone is told, not a blank page", async () => {
    const { page, close } = await open(world.browser, world.origin);
    await show(page, world.origin, "ask");
    await page.route("**/v1/**", (route) => route.abort());
    await page.getByLabel("Users at once").fill("5");
    await page.getByLabel("Users at once").press("Tab");
    await page.waitForFunction(() => /cannot be reached/.test(document.querySelector(".faults").innerText));
    await close();
  });

  clean("a print is as wide as its paper", world, { viewport: { width: 718, height: 1000 } }, async (page) => {
    for (const screen of ["ask", "step", "memory", "whatif"]) {
      await show(page, world.origin, screen);
      await page.emulateMedia({ media: "print" });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(over <= 1, `${screen}: ${over} px too wide`);
      await page.emulateMedia({ media: "screen" });
    }
  });

  clean("the keyboard reaches the answer and the tabs", world, {}, async (page) => {
    await show(page, world.origin, "ask");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("href")), "#screen", "first a way past the question");
    const focusable = await page.evaluate(() => document.querySelectorAll("nav.tabs a[href]").length);
    assert.ok(focusable >= 4, "tabs are links");
    await page.locator("nav.tabs a").nth(1).focus();
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement.tagName === "H1");
  });
}
