// One trace: heading, waterfall, details, tokens and tables, which point at each other.

import { only } from "page/data";
import { details, inShort, tooltip } from "page/details";
import { el, settled } from "page/dom";
import { correction, heading } from "page/heading";
import { bind, help } from "page/keys";
import { modelOf, tokensIn } from "page/model";
import { overview } from "page/overview";
import { hashOf } from "page/route";
import { shorter } from "page/shorter";
import { nodes, pathParts } from "page/tables";
import { toggle } from "page/theme";
import { tokens } from "page/tokens";
import { fitted, including, isWhole, panned, zoomed } from "page/view";
import { waterfall } from "page/waterfall";

const ZOOM = 1.5;
const PAN = 0.15;
const REMEMBER_MS = 150;
const POINTER = [
  ["wheel", "zoom; with Shift, or sideways: pan"],
  ["drag", "pan; over the strip above: choose a stretch"],
  ["click", "select a span; twice: zoom to it"],
];

/** Makes the view of a trace in the form of /api/traces/ID; `parameters`: `from` and `to` in ms,
 * `span`; `rename` changes its address. */
export function trace(told, parameters, rename) {
  const model = modelOf(told);
  const whole = model.extent;
  const state = { view: whole, selected: null };
  const inTime = [...model.spans].sort((a, b) => a.from - b.from || b.to - a.to);
  const tip = tooltip();
  const panel = details(model.root, select);
  const chart = waterfall(model, labelsOf(told), {
    view: look,
    select,
    open: zoomTo,
    hover: (span, event) => tip.show(span && inShort(span), event),
  });
  const strip = overview(model, look);
  const changes = shorter(told.summary.trace_id);
  const tree = tokens(model, {
    select,
    hover(spans, lines, event) {
      tip.show(lines, event);
      chart.show({ marked: new Set(spans) });
    },
  });

  function look(view) {
    state.view = fitted(view, whole);
    chart.show({ view: state.view });
    strip.show(state.view);
    remember();
  }

  function select(span) {
    state.selected = span;
    chart.show({ selected: span });
    panel.show(span);
    tree?.mark(span ? tokensIn(span) : []);
    if (span) {
      look(including(state.view, whole, span));
      chart.reveal(span);
    }
    remember();
  }

  function zoomTo(span) {
    if (!span) return look(whole);
    select(span);
    const margin = Math.max(span.ms * 0.1, 0.0005);
    return look({ from: span.from - margin, to: span.to + margin });
  }

  const remember = settled(REMEMBER_MS, () => rename(here()));
  function here() {
    const stretch = isWhole(state.view, whole)
      ? {}
      : { from: state.view.from.toFixed(4), to: state.view.to.toFixed(4) };
    const id = told.summary.trace_id;
    return { view: "trace", id, parameters: { ...stretch, span: state.selected?.id } };
  }

  function step(order, by) {
    tip.show(null);
    const at = order.indexOf(state.selected);
    const first = order.findIndex((span) => span.to >= state.view.from);
    select(order[at < 0 ? Math.max(first, 0) : Math.min(Math.max(at + by, 0), order.length - 1)]);
  }

  function zoom(factor) {
    const { selected, view } = state;
    const middle = selected ? (selected.from + selected.to) / 2 : NaN;
    look(zoomed(view, whole, factor, middle > view.from && middle < view.to ? middle : undefined));
  }

  function leave() {
    if (state.selected) select(null);
    else if (!isWhole(state.view, whole)) look(whole);
    else if (!only) location.hash = hashOf({ view: "list" });
  }

  const onPath = [...new Set(model.path.map((stretch) => stretch.span).filter(Boolean))];
  const keys = [
    [["j", "ArrowDown"], "next span, by its start", () => step(inTime, 1)],
    [["k", "ArrowUp"], "span before", () => step(inTime, -1)],
    [["c"], "next span on the critical path", () => step(onPath, 1)],
    [["C"], "the one before on it", () => step(onPath, -1)],
    [["p"], "its parent", () => state.selected?.parent && select(state.selected.parent)],
    [["Enter"], "zoom to the span", () => state.selected && zoomTo(state.selected)],
    [["ArrowLeft", "h"], "earlier", () => look(panned(state.view, whole, -PAN))],
    [["ArrowRight", "l"], "later", () => look(panned(state.view, whole, PAN))],
    [["+", "="], "zoom in", () => zoom(1 / ZOOM)],
    [["-"], "zoom out", () => zoom(ZOOM)],
    [["0"], "the whole trace", () => look(whole)],
    [
      ["Escape"],
      only ? "no span; the whole trace" : "no span; the whole trace; back to the list",
      leave,
    ],
    [["t"], "dark or light", toggle],
    [["?"], "this help", () => help(keys, POINTER)],
  ];
  const unbind = bind(keys);

  const element = el(
    "main",
    { class: "trace" },
    heading(told),
    el(
      "div",
      { class: "stage" },
      el(
        "section",
        { class: "panel waterfall", "aria-label": "waterfall" },
        toolbar(zoom, () => look(whole)),
        strip.element,
        chart.element,
        legend(),
      ),
      panel.element,
    ),
    el(
      "div",
      { class: "below" },
      tree?.element,
      el("div", {}, nodes(told), pathParts(model, select), changes.element),
    ),
    tip.element,
  );

  const [from, to] = [Number(parameters.from), Number(parameters.to)];
  look(to > from ? { from, to } : whole);
  if (model.byId.has(parameters.span)) {
    // Only now does the element have its size.
    requestAnimationFrame(() => select(model.byId.get(parameters.span)));
  }
  return {
    element,
    title: `trace ${told.summary.trace_id.slice(0, 8)}`,
    help: () => help(keys, POINTER),
    end() {
      unbind();
      chart.end();
      strip.end();
      changes.end();
    },
  };
}

function labelsOf({ clocks }) {
  return new Map(clocks.map((clock) => [clock.node, `${clock.node}   clock ${correction(clock)}`]));
}

function toolbar(zoom, whole) {
  const button = (sign, name, act) =>
    el("button", { type: "button", onclick: act, title: name, "aria-label": name }, sign);
  return el(
    "div",
    { class: "toolbar", role: "toolbar", "aria-label": "zoom" },
    el("h2", {}, "waterfall"),
    button("−", "zoom out (-)", () => zoom(ZOOM)),
    button("+", "zoom in (+)", () => zoom(1 / ZOOM)),
    button("whole", "the whole trace (0)", whole),
  );
}

function legend() {
  const entries = [
    ["draft", "draft"],
    ["verify", "verify"],
    ["store", "commit"],
    ["round", "round"],
    ["request", "other"],
    ["queue", "in a queue"],
    ["cancelled", "cancelled"],
    ["failed", "! failed"],
    ["lost", "? missing"],
    ["critical", "critical path"],
  ];
  return el(
    "ul",
    { class: "legend" },
    entries.map(([name, meaning]) =>
      el("li", {}, el("span", { class: `swatch ${name}` }), meaning),
    ),
  );
}
