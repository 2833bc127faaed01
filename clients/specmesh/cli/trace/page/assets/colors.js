// The palette of the canvas: the theme's colours, and hatchings made of them.

import { color } from "page/theme";

const NAMES = [
  "request",
  "round",
  "draft",
  "verify",
  "assess",
  "store",
  "failed",
  "lost",
  "critical",
  "text",
  "muted",
  "grid",
  "surface",
  "on-bar",
  "accent",
  "header",
];

/** Returns the theme's colours and hatchings. */
export function palette(context) {
  const colors = Object.fromEntries(NAMES.map((name) => [name, color(name)]));
  const hatched = new Map();
  return {
    ...colors,
    hatch(name) {
      if (!hatched.has(name)) hatched.set(name, hatching(context, colors[name], colors.surface));
      return hatched.get(name);
    },
  };
}

function hatching(context, line, ground) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const on = tile.getContext("2d");
  on.fillStyle = ground;
  on.fillRect(0, 0, 6, 6);
  on.strokeStyle = line;
  on.lineWidth = 1.6;
  for (const shift of [-6, 0, 6]) {
    on.beginPath();
    on.moveTo(shift, 6);
    on.lineTo(shift + 6, 0);
    on.stroke();
  }
  return context.createPattern(tile, "repeat");
}
