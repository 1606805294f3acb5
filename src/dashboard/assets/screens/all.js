/** The screens in the order of their tabs. */

import * as ask from "./ask.js";
import * as floor from "./floor.js";
import * as memory from "./memory.js";
import * as step from "./step.js";

export const SCREENS = [ask, floor, memory, step];
