/**
 * The page in a browser. Usage: node --test-reporter=spec tests/browser/run.mjs [BINARY]; `script/browser` installs what it needs.
 *
 * One server, one browser; every page that is opened must end without an error and without a request to another host.
 */

import { after, before } from "node:test";
import { launch, serve } from "./harness.mjs";
import { fill } from "./data.mjs";
import { screens } from "./screens.mjs";
import { shell } from "./shell.mjs";
import { timings } from "./timings.mjs";

const binary = process.argv[2] ?? "target/debug/shardwise";
const only = process.env.ONLY?.split(",");
/** Every screen by its id, in the order of the tabs, and the sliders whose redraw is timed. */
const world = {
  screens: ["ask", "floor", "memory", "step", "tradeoff", "fleet", "whatif", "observed"],
  sliders: [["floor", "", ".screen-floor .knobs .slider input"], ["tradeoff", "tpot=30", ".screen-tradeoff .slider input"]],
};

before(async () => {
  world.server = await serve(binary);
  world.origin = world.server.origin;
  world.browser = await launch();
  await fill(world.origin);
});

after(async () => {
  await world.browser?.close();
  await world.server?.stop();
});

for (const [name, suite] of Object.entries({ shell, screens, timings })) {
  if (!only || only.includes(name)) suite(world);
}
