/** The screens in the order of their tabs. */

import * as ask from "./ask.js";

export const SCREENS = [ask];
