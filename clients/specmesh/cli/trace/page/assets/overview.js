// A strip of the whole trace, which shows the activity over time and the interval in view.

import { brush } from "page/brush";
import { el, painter } from "page/dom";
import { duration } from "page/format";
import { color, onChange as onTheme } from "page/theme";
import { isWhole } from "page/view";

const HEIGHT = 36;
const ACTIVITIES = ["store", "assess", "draft", "verify"];

/** Makes the strip; `onView` gets the selected interval. */
export function overview(model, onView) {
  const whole = model.extent;
  const length = whole.to - whole.from;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const over = brush({
    label: "stretch of the trace to look at",
    told: (share) => duration(whole.from + share * length),
    onChange: (stretch) =>
      onView(
        stretch
          ? { from: whole.from + stretch[0] * length, to: whole.from + stretch[1] * length }
          : whole,
      ),
  });
  const element = el("div", { class: "overview" }, canvas, over.element);
  const draw = painter(() => paint(canvas, element.clientWidth, model));
  const observer = new ResizeObserver(draw);
  observer.observe(element);
  const untheme = onTheme(draw);
  return {
    element,
    show(view) {
      const shares = [view.from, view.to].map((ms) => (ms - whole.from) / length);
      over.show(isWhole(view, whole) ? null : shares);
    },
    end() {
      observer.disconnect();
      untheme();
    },
  };
}

function paint(canvas, width, model) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = HEIGHT * ratio;
  const context = canvas.getContext("2d", { alpha: false });
  context.scale(ratio, ratio);
  context.fillStyle = color("surface");
  context.fillRect(0, 0, width, HEIGHT);
  const counts = ACTIVITIES.map((activity) =>
    running(model, activity, Math.max(Math.floor(width), 1)),
  );
  const most = Math.max(
    1,
    ...Array.from(counts[0], (_, x) => counts.reduce((sum, each) => sum + each[x], 0)),
  );
  const base = new Float32Array(counts[0].length).fill(HEIGHT - 5);
  counts.forEach((each, number) => {
    context.fillStyle = color(ACTIVITIES[number]);
    each.forEach((count, x) => {
      const height = (count * (HEIGHT - 8)) / most;
      base[x] -= height;
      if (count) context.fillRect(x, base[x], 1, height);
    });
  });
  const perMs = width / (model.extent.to - model.extent.from);
  for (const span of model.spans) {
    if (span.state !== "failed" && span.state !== "lost") continue;
    context.fillStyle = color(span.state);
    context.fillRect(
      (span.from - model.extent.from) * perMs,
      HEIGHT - 4,
      Math.max(span.ms * perMs, 2),
      4,
    );
  }
}

/** Counts the running spans of an activity in each column, with fractions for parts of it. */
function running(model, activity, columns) {
  const found = new Float32Array(columns);
  const perMs = columns / (model.extent.to - model.extent.from);
  for (const span of model.spans) {
    // A call and its server count as one activity.
    if (span.activity !== activity || span.parent?.activity === activity) continue;
    const from = (span.from - model.extent.from) * perMs;
    const to = Math.min((span.to - model.extent.from) * perMs, columns);
    for (let x = Math.floor(from); x < to; x += 1) {
      found[x] += Math.min(x + 1, to) - Math.max(x, from);
    }
  }
  return found;
}
