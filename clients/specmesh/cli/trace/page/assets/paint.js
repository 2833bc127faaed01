// Draws the visible part of a layout on a canvas.

import { milliseconds, tickLabel, ticks } from "page/format";
import { firstAfter, HEADER, LANE } from "page/layout";

export const AXIS = 24;
export const PATH = 30;
/** The height of the fixed part above the lanes: the axis, and the critical path. */
export const ABOVE = AXIS + PATH;

/** Activities on the path in which a node waits for something else. */
const WAITS = new Set(["queue", "network", "core"]);
const BAR = LANE - 3;
const LETTER = 6.4;
const FONT = "11px system-ui, sans-serif";

/** Draws one frame. `scene`: {model, layout, view, width, height, scroll, selected, hovered, marked,
 * pointer} in CSS pixels and ms; `marked` are spans to highlight. */
export function paint(context, colors, scene) {
  const { view, width, height } = scene;
  const perMs = width / (view.to - view.from);
  const x = (ms) => (ms - view.from) * perMs;
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  const axis = ticks(view.from, view.to, width / 110);
  context.fillStyle = colors.grid;
  for (const at of axis) context.fillRect(Math.round(x(at)), AXIS, 1, height);
  for (const group of scene.layout.groups) paintGroup(context, colors, scene, group, x);
  paintAbove(context, colors, scene, x, axis);
}

function paintGroup(context, colors, scene, group, x) {
  const top = ABOVE + group.top - scene.scroll;
  if (top > scene.height || top + group.height < ABOVE) return;
  context.fillStyle = colors.header;
  context.fillRect(0, top, scene.width, HEADER - 3);
  context.fillStyle = colors.text;
  context.font = `600 ${FONT}`;
  context.fillText(scene.labels.get(group.node) ?? group.node, 6, top + HEADER / 2 - 1);
  context.font = FONT;
  group.lanes.forEach((lane, number) => {
    const y = top + HEADER + number * LANE;
    if (y < scene.height && y + LANE > ABOVE) paintLane(context, colors, scene, lane, y, x);
  });
}

function paintLane(context, colors, scene, lane, y, x) {
  let drawn = -1;
  for (let n = firstAfter(lane, scene.view.from); n < lane.length; n += 1) {
    const span = lane[n];
    if (span.from > scene.view.to) break;
    const left = x(span.from);
    const right = Math.max(x(span.to), left + 1);
    const pixel = Math.floor(right);
    const plain = span.state === "ok" || span.state === "cancelled";
    // A span that ends within a pixel that is already drawn would not be visible.
    if (pixel === drawn && plain && !span.lostServer) continue;
    drawn = pixel;
    paintSpan(
      context,
      colors,
      scene,
      span,
      Math.max(left, -2),
      y,
      Math.min(right, scene.width + 2),
      x,
    );
  }
}

function paintSpan(context, colors, scene, span, left, y, right, x) {
  const wide = right - left;
  const fills = {
    ok: colors[span.activity],
    failed: colors.failed,
    lost: colors.surface,
    cancelled: wide < 3 ? colors[span.activity] : colors.hatch(span.activity),
  };
  context.fillStyle = fills[span.state];
  context.fillRect(left, y, wide, BAR);
  if (wide >= 3) {
    const begun = span.queueMs ? paintQueue(context, colors, span, left, y, right, x) : left;
    outline(
      context,
      span.state === "lost" ? colors.lost : colors[span.activity],
      left,
      y,
      wide,
      span.state,
    );
    label(context, colors, span, begun, y, right - begun);
  } else if (span.state === "lost") {
    context.fillStyle = colors.lost;
    context.fillRect(left, y, wide, BAR);
  }
  context.fillStyle = colors.critical;
  for (const stretch of span.path) {
    const [start, end] = [Math.max(x(stretch.from), left), Math.min(x(stretch.to), right)];
    if (end > start) context.fillRect(start, y + BAR - 3, Math.max(end - start, 1), 3);
  }
  if (span.lostServer) {
    context.fillStyle = colors.lost;
    context.fillRect(left, y, Math.max(wide, 3), 2);
  }
  if (span === scene.selected || scene.marked.has(span)) {
    context.strokeStyle = span === scene.selected ? colors.text : colors.accent;
    context.lineWidth = 2;
    context.strokeRect(left - 1, y - 1, wide + 2, BAR + 2);
  } else if (span === scene.hovered) {
    context.strokeStyle = colors.muted;
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, y - 0.5, wide + 1, BAR + 1);
  }
}

/** Draws the queue as dots on the background, since no work was done. Returns its end. */
function paintQueue(context, colors, span, left, y, right, x) {
  const end = Math.min(x(span.from + span.queueMs), right);
  if (end - left < 1) return left;
  context.fillStyle = colors.surface;
  context.fillRect(left, y, end - left, BAR);
  context.fillStyle = colors[span.activity];
  for (let at = Math.max(left, 0) + 1; at < end - 1; at += 4)
    context.fillRect(at, y + BAR / 2 - 1, 2, 2);
  return end;
}

function outline(context, stroke, left, y, wide, state) {
  context.strokeStyle = stroke;
  context.lineWidth = 1;
  context.setLineDash(state === "lost" ? [4, 3] : []);
  context.strokeRect(left + 0.5, y + 0.5, wide - 1, BAR - 1);
  context.setLineDash([]);
}

function label(context, colors, span, left, y, wide) {
  const signs = { failed: "! ", lost: "? ", cancelled: "" };
  const sign = span.lostServer ? "? " : (signs[span.state] ?? "");
  const room = Math.floor((wide - 6) / LETTER);
  if (room < 3 && !(sign && room >= 1)) return;
  let name = `${sign}${span.name.replace(/^.*\/|^specmesh\./, "")}`;
  if (name.length > room) name = `${name.slice(0, Math.max(room - 1, 1))}…`;
  else if (name.length + 10 < room) name += `  ${milliseconds(span.ms)} ms`;
  if (span.state === "cancelled") {
    // Text on a hatching needs a background of its own.
    context.fillStyle = colors.surface;
    context.fillRect(Math.max(left, 0) + 2, y + 2, name.length * LETTER, BAR - 4);
  }
  const plain = span.state === "cancelled" || span.state === "lost";
  context.fillStyle = plain ? colors.text : colors["on-bar"];
  context.fillText(name, Math.max(left, 0) + 4, y + BAR / 2);
}

function paintAbove(context, colors, scene, x, axis) {
  const { width, model } = scene;
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, width, ABOVE - 2);
  context.fillStyle = colors.grid;
  context.fillRect(0, AXIS - 1, width, 1);
  context.fillRect(0, ABOVE - 3, width, 1);
  context.fillStyle = colors.muted;
  const step = axis.length > 1 ? axis[1] - axis[0] : 1;
  for (const at of axis) context.fillText(tickLabel(at, step), Math.round(x(at)) + 4, AXIS / 2);
  paintPath(context, colors, scene, x);
  if (scene.pointer !== null) {
    const at = x(scene.pointer);
    context.fillStyle = colors.muted;
    context.fillRect(Math.round(at), 0, 1, scene.height);
    const text = tickLabel(scene.pointer, step / 100);
    const room = text.length * LETTER + 8;
    const left = at + room > width ? at - room : at + 1;
    context.fillStyle = colors.surface;
    context.fillRect(left, 2, room, AXIS - 5);
    context.fillStyle = colors.text;
    context.fillText(text, left + 4, AXIS / 2);
  }
  if (model.root.to < scene.view.to) {
    context.fillStyle = colors.muted;
    context.fillRect(Math.round(x(model.root.to)), AXIS, 1, PATH);
  }
}

function paintPath(context, colors, scene, x) {
  const y = AXIS + 5;
  let drawn = -1;
  for (const stretch of scene.model.path) {
    const left = Math.max(x(stretch.from), 0);
    const right = Math.min(x(stretch.to), scene.width);
    if (right <= 0 || left >= scene.width || (Math.floor(right) === drawn && right - left < 1))
      continue;
    drawn = Math.floor(right);
    const wide = Math.max(right - left, 1);
    const known = stretch.part !== "unknown";
    const activity = stretch.span?.activity ?? "request";
    context.fillStyle = !known
      ? colors.hatch("lost")
      : WAITS.has(stretch.part)
        ? colors.hatch(activity)
        : colors[activity];
    context.fillRect(left, y, wide, BAR);
    context.fillStyle = colors.critical;
    context.fillRect(left, y + BAR, wide, 3);
    const text = `${stretch.node} ${stretch.part}`;
    if (wide > text.length * LETTER + 8) {
      context.fillStyle = colors.surface;
      if (WAITS.has(stretch.part) || !known) {
        context.fillRect(left + 2, y + 2, text.length * LETTER, BAR - 4);
        context.fillStyle = colors.text;
      } else context.fillStyle = colors["on-bar"];
      context.fillText(text, left + 4, y + BAR / 2);
    }
  }
}
