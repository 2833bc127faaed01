// Tables of the time by node, and along the critical path.

import { el } from "page/dom";
import { milliseconds, percent, shortName } from "page/format";

const PARTS = [
  ["queue", "queue_ms"],
  ["forward", "forward_ms"],
  ["own", "other_ms"],
  ["network", "hop_ms"],
];
const NUM_PARTS = 12;

/** Makes the table of time by node. */
export function nodes(trace) {
  const sum = (node) => PARTS.reduce((total, [, field]) => total + node[field], 0);
  const most = Math.max(...trace.nodes.map(sum), 1e-9);
  const rows = trace.nodes.map((node) => [
    node.node,
    stacked(node, most),
    node.num_calls,
    milliseconds(node.busy_ms),
    ...PARTS.map(([, field]) => milliseconds(node[field])),
    `${milliseconds(node.path_ms)}`,
    percent(node.path_share),
  ]);
  const parts = PARTS.map(([name]) => [el("span", { class: `key part ${name}` }), name]);
  const headings = ["node", "parts", "calls", "busy", ...parts, "critical path", "share"];
  return panel(
    "time by node, in ms",
    headings,
    rows,
    "queue, forward, own and network count each of the calls at a time; busy counts concurrent ones once",
  );
}

function stacked(node, most) {
  const bars = PARTS.map(([name, field]) => {
    const bar = el("span", {
      class: `part ${name}`,
      title: `${name} ${milliseconds(node[field])} ms`,
    });
    bar.style.width = `${(node[field] / most) * 100}%`;
    return bar;
  });
  return el("div", { class: "stack", "aria-hidden": "true" }, bars);
}

/** Makes the table of the critical path by node and activity; `select` gets the span of a part's
 * longest stretch. */
export function pathParts(model, select) {
  const { trace } = model;
  const whole = trace.summary.duration_ms || 1;
  const shown = trace.critical_path_parts.slice(0, NUM_PARTS);
  const others = trace.critical_path_parts.slice(NUM_PARTS);
  const rows = shown.map((part) => [
    part.node,
    part.part,
    link(model, part, select),
    milliseconds(part.ms),
    percent(part.ms / whole),
  ]);
  if (others.length) {
    const ms = others.reduce((sum, part) => sum + part.ms, 0);
    rows.push([`${others.length} others`, "", "", milliseconds(ms), percent(ms / whole)]);
  }
  const caption = trace.incomplete.length ? "that of what is known: spans are missing" : "";
  return panel("critical path, in ms", ["node", "what", "in", "ms", "share"], rows, caption);
}

function link(model, part, select) {
  const longest = model.path
    .filter(
      (stretch) =>
        stretch.node === part.node &&
        stretch.part === part.part &&
        stretch.name === part.name &&
        stretch.span,
    )
    .reduce((best, stretch) => (!best || stretch.ms > best.ms ? stretch : best), null);
  if (!longest) return shortName(part.name);
  const attributes = {
    type: "button",
    class: "link",
    title: "go to the longest",
    onclick: () => select(longest.span),
  };
  return el("button", attributes, shortName(part.name));
}

/** Makes a table with a title; the first cell of each row is its heading. */
export function panel(title, headings, rows, caption) {
  const isNumber = (row, column) =>
    typeof row[column] === "number" || /^[\d.,]+( %)?$/.test(row[column]);
  const cell = (row) => (value, column) =>
    el(
      column ? "td" : "th",
      {
        scope: column ? null : "row",
        class: isNumber(row, column) ? "number" : null,
        title: typeof value === "string" ? value : null,
      },
      value,
    );
  const kind = (column) => (rows[0] && isNumber(rows[0], column) ? "number" : null);
  return el(
    "section",
    { class: "panel", "aria-label": title },
    el("h2", {}, title),
    el(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": title },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            headings.map((heading, column) =>
              el("th", { scope: "col", class: kind(column) }, heading),
            ),
          ),
        ),
        el(
          "tbody",
          {},
          rows.map((row) => el("tr", {}, row.map(cell(row)))),
        ),
      ),
    ),
    caption ? el("p", { class: "hint" }, caption) : null,
  );
}
