// The form above the list; its fields are the parameters of /api/traces.

import { el, settled } from "page/dom";

const OUTCOMES = ["ok", "cancelled", "failed"];
const WAIT_MS = 250;

/** Makes the form; `onChange` gets the filters that are set, by name. */
export function filters(onChange) {
  const fields = {
    slower_than: number("slower than (ms)", { min: 0, step: "any" }),
    outcome: choice("outcome", [["", "any"], ...OUTCOMES.map((each) => [each, each])]),
    strategy: text("strategy", "strategies"),
    acceptance_below: number("acceptance below", {
      min: 0,
      max: 1,
      step: "any",
      placeholder: "0–1",
    }),
    session: text("session"),
    node: text("node", "nodes"),
    since: text("since", null, "10m, 2h, 1d"),
    order: choice("order", [
      ["", "newest first"],
      ["slowest", "slowest first"],
    ]),
    incomplete: flag("lost spans"),
    internal: flag("the mesh's own"),
  };
  const suggested = {
    strategies: el("datalist", { id: "strategies" }),
    nodes: el("datalist", { id: "nodes" }),
  };
  const message = el("p", { class: "error", role: "alert", hidden: true });
  const told = () => onChange(set());
  const element = el(
    "form",
    {
      class: "filters",
      role: "search",
      "aria-label": "which traces to list",
      onsubmit: (event) => {
        event.preventDefault();
        told();
      },
      oninput: settled(WAIT_MS, told),
      onreset: () => setTimeout(told),
    },
    Object.values(fields).map(({ label }) => label),
    Object.values(suggested),
    el("button", { type: "reset" }, "Clear"),
    message,
  );

  function set() {
    const found = {};
    for (const [name, { input }] of Object.entries(fields)) {
      const value = input.type === "checkbox" ? (input.checked ? "true" : "") : input.value.trim();
      if (value) found[name] = value;
    }
    return found;
  }

  return {
    element,
    names: Object.keys(fields),
    focus: () => fields.slower_than.input.focus(),
    show(values) {
      for (const [name, { input }] of Object.entries(fields)) {
        if (input.type === "checkbox") input.checked = values[name] === "true";
        else if (document.activeElement !== input) input.value = values[name] ?? "";
      }
    },
    suggest(traces) {
      const options = (values) =>
        [...new Set(values)]
          .filter(Boolean)
          .sort()
          .map((value) => el("option", { value }));
      suggested.strategies.replaceChildren(...options(traces.map((each) => each.strategy)));
      suggested.nodes.replaceChildren(...options(traces.flatMap((each) => each.nodes)));
    },
    refuse(error) {
      message.hidden = !error;
      message.textContent = error?.message ?? "";
      for (const [name, { input }] of Object.entries(fields)) {
        input.setAttribute("aria-invalid", String(Boolean(error) && error.field === name));
      }
    },
  };
}

function labelled(name, input) {
  return { input, label: el("label", {}, el("span", {}, name), input) };
}

function text(name, list = null, placeholder = "") {
  return labelled(name, el("input", { type: "text", list, placeholder, autocomplete: "off" }));
}

function number(name, limits) {
  return labelled(name, el("input", { type: "number", inputmode: "decimal", ...limits }));
}

function choice(name, options) {
  return labelled(
    name,
    el(
      "select",
      {},
      options.map(([value, shown]) => el("option", { value }, shown)),
    ),
  );
}

function flag(name) {
  const input = el("input", { type: "checkbox" });
  return { input, label: el("label", { class: "flag" }, input, el("span", {}, name)) };
}
