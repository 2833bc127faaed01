// The details of one span: a summary beside the pointer, and a panel with all of them.

import { el } from "page/dom";
import { counted, duration, shortName } from "page/format";
import { servedAt, tokensIn } from "page/model";

const STATES = {
  ok: "",
  cancelled: "cancelled on purpose",
  failed: "failed",
  lost: "missing: known only by the spans that name it as their parent",
};
const EDGE_PX = 12;
const NUM_VALUES = 500;
const NUM_CHILDREN = 8;

/** Makes a box beside the pointer. */
export function tooltip() {
  const element = el("div", { class: "tooltip", role: "tooltip", hidden: true });
  return {
    element,
    /** Shows lines of text at the position of an event; without lines, hides the box. */
    show(lines, event) {
      element.hidden = !lines;
      if (!lines) return;
      element.replaceChildren(
        ...lines.filter(Boolean).map((line, number) => el(number ? "div" : "b", {}, line)),
      );
      const { width, height } = element.getBoundingClientRect();
      const right = event.clientX + EDGE_PX + width > innerWidth;
      const below = event.clientY + EDGE_PX + height > innerHeight;
      element.style.left = `${Math.max(right ? event.clientX - width - EDGE_PX : event.clientX + EDGE_PX, 4)}px`;
      element.style.top = `${Math.max(below ? event.clientY - height - EDGE_PX : event.clientY + EDGE_PX, 4)}px`;
    },
  };
}

/** Describes a span in a few lines. */
export function inShort(span) {
  const critical = span.path.reduce((sum, stretch) => sum + stretch.ms, 0);
  return [
    shortName(span.name),
    `${span.node}${span.kind === "client" && servedAt(span) !== span.node ? ` → ${servedAt(span)}` : ""}`,
    `${duration(span.ms)}, from ${duration(span.from)} to ${duration(span.to)}`,
    span.queueMs || span.forwardMs
      ? `queue ${duration(span.queueMs)}, forward ${duration(span.forwardMs)}`
      : "",
    critical ? `${duration(critical)} of it on the critical path` : "",
    STATES[span.state],
    span.lostServer ? "the span of its server is missing" : "",
  ];
}

/** Makes the panel; `select` goes to another span, `tokens` shows the tokens of a span. */
export function details(root, select) {
  const element = el("aside", { class: "details", "aria-label": "details of a span" });
  const live = el("p", { class: "spoken", role: "status" });
  const hint = () =>
    el("p", { class: "hint" }, "Click a span, or press j, to see what is known of it.");
  const body = el("div", {}, hint());
  element.append(live, body);
  return {
    element,
    show(span) {
      body.replaceChildren(...(span ? told(span, root, select) : [hint()]));
      live.textContent = span ? inShort(span).filter(Boolean).join(", ") : "";
    },
  };
}

function told(span, root, select) {
  const link = (other) =>
    el(
      "button",
      { type: "button", class: "link", onclick: () => select(other) },
      `${shortName(other.name)} (${duration(other.ms)})`,
    );
  const rows = [
    ["node", span.node],
    ["took", duration(span.ms)],
    ["from, to", `${duration(span.from)}, ${duration(span.to)}`],
    [
      "queue, forward",
      span.queueMs || span.forwardMs
        ? `${duration(span.queueMs)}, ${duration(span.forwardMs)}`
        : null,
    ],
    ["critical path", span.path.length ? onPath(span) : null],
    ["state", STATES[span.state] || null],
    ["missing", span.lostServer ? "the span of its server" : null],
    ["tokens", tokensIn(span).length ? counted(tokensIn(span).length, "token") : null],
    ["parent", span.parent ? link(span.parent) : span === root ? "none: the root" : "not known"],
    [
      "below it",
      span.children.length
        ? [
            ...span.children.slice(0, NUM_CHILDREN).map((child) => el("div", {}, link(child))),
            span.children.length > NUM_CHILDREN
              ? `and ${span.children.length - NUM_CHILDREN} more`
              : null,
          ]
        : null,
    ],
    ["id", el("code", {}, span.id)],
  ];
  const attributes = Object.entries(span.attributes).sort(([a], [b]) => (a < b ? -1 : 1));
  return [
    el("h2", { class: `state-${span.state}` }, shortName(span.name)),
    table(rows.filter(([, value]) => value != null)),
    el("h3", {}, "attributes"),
    attributes.length
      ? table(attributes.map(([name, value]) => [name, shown(value)]))
      : el("p", {}, "none"),
  ];
}

/** Sums up, by activity, the time that the answer waited for a span. */
function onPath(span) {
  const sums = new Map();
  for (const { part, ms } of span.path) sums.set(part, (sums.get(part) ?? 0) + ms);
  return [...sums].map(([part, ms]) => `${part} ${duration(ms)}`).join(", ");
}

function table(rows) {
  return el(
    "table",
    { class: "pairs" },
    el(
      "tbody",
      {},
      rows.map(([name, value]) =>
        el("tr", {}, el("th", { scope: "row" }, breakable(name)), el("td", {}, value)),
      ),
    ),
  );
}

/** Returns a dotted name that may be broken after its dots. */
function breakable(name) {
  return name.split(/(?<=\.)/).flatMap((part) => [part, el("wbr")]);
}

/** Returns an attribute's value; of a list, as of an answer's tokens, its beginning: tens of
 * thousands of values would hold up the browser for seconds. */
function shown(value) {
  if (!Array.isArray(value)) return String(value);
  const more = value.length > NUM_VALUES ? `, and ${value.length - NUM_VALUES} more` : "";
  const first = value.slice(0, NUM_VALUES).map((each) => JSON.stringify(each));
  return `${first.join(", ")}${more}`;
}
