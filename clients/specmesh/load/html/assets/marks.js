"use strict";

// What is drawn on charts besides their lines, in the colors of the page.

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

function drawLimit(plot, { axis: name, at, label }) {
  const { ctx, bbox } = plot;
  const scale = plot.scales[name];
  if (at < scale.min || at > scale.max) return;
  const place = plot.valToPos(at, name, true);
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = resolved("var(--objective)");
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([5 * ratio, 4 * ratio]);
  ctx.beginPath();
  if (name === "x") {
    ctx.moveTo(place, bbox.top);
    ctx.lineTo(place, bbox.top + bbox.height);
    ctx.stroke();
    const left = place + ctx.measureText(label).width + 12 * ratio > bbox.left + bbox.width;
    ctx.textAlign = left ? "right" : "left";
    writeOver(ctx, label, place + (left ? -6 : 6) * ratio, bbox.top + bbox.height - 8 * ratio);
  } else {
    ctx.moveTo(bbox.left, place);
    ctx.lineTo(bbox.left + bbox.width, place);
    ctx.stroke();
    ctx.textAlign = "left";
    writeOver(ctx, label, bbox.left + 6 * ratio, place - 6 * ratio);
  }
  ctx.restore();
}

// Text with a rim, to be read across lines.
function writeOver(ctx, text, x, y) {
  ctx.setLineDash([]);
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = resolved("var(--surface)");
  ctx.strokeText(text, x, y);
  ctx.fillText(text, x, y);
}
