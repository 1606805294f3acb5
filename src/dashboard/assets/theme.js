/** Light, dark, or as the system has it; kept in this browser only. */

import { h } from "./dom.js";

const CHOICES = ["system", "light", "dark"];
const KEY = "shardwise-theme";

/** Storage may be switched off; the page then forgets. */
function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keep(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // nothing is lost but the choice
  }
}

function apply(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  document.dispatchEvent(new CustomEvent("theme"));
}

/** A button that goes through the choices. Charts listen for the `theme` event of the document. */
export function themeSwitch() {
  let choice = CHOICES.includes(kept()) ? kept() : "system";
  const button = h("button", { type: "button", class: "plain" });
  const show = () => {
    button.textContent = `Theme: ${choice}`;
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    keep(choice);
    apply(choice);
    show();
  });
  // paper is light, whatever the screen is
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", () => document.dispatchEvent(new CustomEvent("theme")));
  }
  apply(choice);
  show();
  return button;
}
