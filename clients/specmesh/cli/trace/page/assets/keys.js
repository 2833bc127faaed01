// Keyboard shortcuts, and the dialog that explains them.

import { el } from "page/dom";

/** Calls the action of a pressed key, except in text fields. Returns a function that stops this.
 * `keys`: [key or keys, description, action]; a key may be "Shift+x". */
export function bind(keys) {
  const actions = new Map(keys.flatMap(([names, , act]) => names.map((name) => [name, act])));
  const listener = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    const activates = event.key === "Enter" && event.target.closest?.("a, button, summary");
    const act = actions.get(event.key);
    if (!act || activates) return;
    event.preventDefault();
    act();
  };
  document.addEventListener("keydown", listener);
  return () => document.removeEventListener("keydown", listener);
}

/** Shows what the keys do, and `more`, which lists what a pointer can do. */
export function help(keys, more = []) {
  const rows = keys.map(([names, what]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, ...names.map((name) => el("kbd", {}, shown(name)))),
      el("td", {}, what),
    ),
  );
  const others = more.map(([name, what]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, what)),
  );
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = el(
    "dialog",
    { "aria-label": "Keys", onclose: () => dialog.remove() },
    el("h2", {}, "Keys"),
    el("table", {}, el("tbody", {}, rows, others)),
    close,
  );
  document.body.append(dialog);
  dialog.showModal();
}

function shown(key) {
  const names = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };
  return names[key] ?? key;
}
