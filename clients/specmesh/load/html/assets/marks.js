"use strict";

// What is drawn on charts besides their lines, in the colors of the page.

const LIMIT = { color: "var(--objective)", dash: [5, 4] };

// A canvas knows no variables of CSS: an element that has the color tells what it is just now.
function resolved(color) {
  const probe = document.getElementById("hint");
  probe.style.borderColor = color;
  return getComputedStyle(probe).borderTopColor;
}

function shade(plot, shaded) {
  if (!shaded) return;
  const { ctx, bbox } = plot;
  const [from, until] = shaded.map((each) => plot.valToPos(each, "x", true));
  const left = Math.max(bbox.left, from);
  ctx.save();
  ctx.fillStyle = resolved("var(--measured)");
  ctx.fillRect(left, bbox.top, Math.min(until, bbox.left + bbox.width) - left, bbox.height);
  ctx.restore();
}

function drawLimit(plot, { axis: name, at }) {
  const { ctx, bbox } = plot;
  const scale = plot.scales[name];
  if (at < scale.min || at > scale.max) return;
  const place = plot.valToPos(at, name, true);
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = resolved(LIMIT.color);
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash(LIMIT.dash.map((each) => each * ratio));
  ctx.beginPath();
  if (name === "x") {
    ctx.moveTo(place, bbox.top);
    ctx.lineTo(place, bbox.top + bbox.height);
  } else {
    ctx.moveTo(bbox.left, place);
    ctx.lineTo(bbox.left + bbox.width, place);
  }
  ctx.stroke();
  ctx.restore();
}
