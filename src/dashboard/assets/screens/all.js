/** The screens in the order of their tabs. */

import * as ask from "./ask.js";
import * as floor from "./floor.js";
import * as memory from "./memory.js";
import * as step from "./step.js";
import * as tradeoff from "./tradeoff.js";
import * as fleet from "./fleet.js";
import * as whatif from "./whatif.js";
import * as observed from "./observed.js";

export const SCREENS = [ask, floor, memory, step, tradeoff, fleet, whatif, observed];
