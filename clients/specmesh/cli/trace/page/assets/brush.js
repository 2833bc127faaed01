// Selection of an interval on an axis, by dragging or by keys on its two ends.

import { el } from "page/dom";

const STEP = 0.02;
const LEAST_PX = 4;

/** Makes a layer over a chart. `onChange` gets the interval as shares of the axis, [from, to], or
 * null if nothing is selected; `told` describes a share in words. */
export function brush({ label, told, onChange }) {
  let chosen = null;
  const window_ = el("div", { class: "brush-window", hidden: true });
  const ends = ["from", "to"].map((name, which) =>
    el("div", {
      class: `brush-end ${name}`,
      role: "slider",
      tabindex: 0,
      "aria-label": `${label}: ${name}`,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      onkeydown: (event) => stepped(event, which),
    }),
  );
  const layer = el(
    "div",
    {
      class: "brush",
      role: "group",
      "aria-label": label,
      onpointerdown: began,
      ondblclick: () => choose(null),
    },
    window_,
    ends,
  );

  function show(stretch) {
    chosen = stretch;
    const [from, to] = stretch ?? [0, 1];
    window_.hidden = !stretch;
    window_.style.left = `${from * 100}%`;
    window_.style.width = `${(to - from) * 100}%`;
    [from, to].forEach((share, which) => {
      ends[which].style.left = `${share * 100}%`;
      ends[which].setAttribute("aria-valuenow", Math.round(share * 100));
      ends[which].setAttribute("aria-valuetext", told(share));
    });
  }

  function choose(stretch) {
    const whole = !stretch || (stretch[0] <= 0 && stretch[1] >= 1);
    show(whole ? null : stretch);
    onChange(chosen);
  }

  function stepped(event, which) {
    const steps = { ArrowLeft: -STEP, ArrowRight: STEP, Home: -1, End: 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    event.stopPropagation();
    const stretch = [...(chosen ?? [0, 1])];
    const [low, high] = which ? [stretch[0] + STEP, 1] : [0, stretch[1] - STEP];
    stretch[which] = Math.min(Math.max(stretch[which] + steps[event.key], low), high);
    choose(stretch);
  }

  function began(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    const box = layer.getBoundingClientRect();
    const at = (moved) => Math.min(Math.max((moved.clientX - box.left) / box.width, 0), 1);
    const start = at(event);
    const end = ends.indexOf(event.target);
    const before = chosen ?? [0, 1];
    const moves = event.target === window_ && chosen;
    layer.setPointerCapture(event.pointerId);
    const move = (moved) => {
      if (Math.abs(moved.clientX - event.clientX) < LEAST_PX) return;
      const now = at(moved);
      if (moves) {
        const by = Math.min(Math.max(now - start, -before[0]), 1 - before[1]);
        choose([before[0] + by, before[1] + by]);
      } else {
        const fixed = end < 0 ? start : before[1 - end];
        choose([Math.min(fixed, now), Math.max(fixed, now)]);
      }
    };
    const done = () => {
      layer.removeEventListener("pointermove", move);
      layer.removeEventListener("pointerup", done);
      layer.removeEventListener("pointercancel", done);
    };
    layer.addEventListener("pointermove", move);
    layer.addEventListener("pointerup", done);
    layer.addEventListener("pointercancel", done);
  }

  show(null);
  return { element: layer, show };
}
