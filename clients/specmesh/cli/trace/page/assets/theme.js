// The dark or light theme: the system's, until the user chooses.

import { el } from "page/dom";

const KEY = "specmesh-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a page opened from a file may have no storage
  }
}

function apply() {
  document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
  for (const listener of listeners) listener();
}

/** Returns the other theme. */
export function toggle() {
  const now = document.documentElement.dataset.theme;
  try {
    localStorage.setItem(KEY, now === "dark" ? "light" : "dark");
  } catch {
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    for (const listener of listeners) listener();
    return;
  }
  apply();
}

/** Calls `listener` after each change; returns a function that stops this. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns the value of a custom property of the page's style. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Makes the button that switches the theme. */
export function button() {
  return el(
    "button",
    { type: "button", onclick: toggle, title: "dark or light (t)" },
    "◐",
    el("span", { class: "spoken" }, "Toggle dark and light"),
  );
}

system.addEventListener("change", apply);
apply();
