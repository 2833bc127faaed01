// Shows the view that the address names.

import { only, trace as asked } from "page/data";
import { el } from "page/dom";
import { list } from "page/list";
import { arrived, hashOf, parsed } from "page/route";
import * as theme from "page/theme";
import { trace } from "page/trace";

const place = el("div");
let shown = null;
let asking = new AbortController();

function bar() {
  const home = only
    ? el("b", {}, "specmesh trace")
    : el("a", { href: hashOf({ view: "list" }) }, el("b", {}, "specmesh"), " traces");
  const help = el(
    "button",
    { type: "button", title: "keys (?)", onclick: () => shown?.help?.() },
    "?",
    el("span", { class: "spoken" }, "Help with keys"),
  );
  return el(
    "nav",
    { "aria-label": "page" },
    home,
    el("span", { class: "space" }),
    help,
    theme.button(),
  );
}

function show(view) {
  shown?.end();
  shown = view;
  document.title = view.title;
  place.replaceChildren(view.element);
}

function message(text, kind) {
  const element = el("main", { class: "message" }, el("p", { class: kind, role: "status" }, text));
  show({ element, title: "specmesh traces", end() {} });
}

async function go() {
  asking.abort();
  asking = new AbortController();
  try {
    const route = parsed(location.hash);
    const rename = arrived();
    if (only) return show(trace(only, route.parameters, rename));
    if (route.view === "list") return show(list(route.parameters, rename));
    message("reading the trace …", "hint");
    return show(trace(await asked(route.id, asking.signal), route.parameters, rename));
  } catch (error) {
    if (error.name !== "AbortError") message(error.message, "error");
    return undefined;
  }
}

document.body.append(bar(), place);
addEventListener("hashchange", go);
go();
