"use strict";

// Marks on charts in addition to their lines, in the colors of the page.

const LIMIT = { color: "var(--objective)", dash: [5, 4] };
const LOGARITHMIC = { splits: logarithmicMarks, filter: (plot, splits) => splits };
// Marks within a decade, from many to one, with the smallest gap that they leave, in decades.
const MARKS = [
  { digits: [1, 2, 3, 4, 5, 6, 7, 8, 9], gap: Math.log10(10 / 9) },
  { digits: [1, 2, 3, 5, 7], gap: Math.log10(7 / 5) },
  { digits: [1, 2, 5], gap: Math.log10(2) },
  { digits: [1], gap: 1 },
];
const MARK_HEIGHT = 18;

// A canvas can't use CSS variables, so an element with the color yields its current value.
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

// As many as fit. The values are from ``least`` to ``most``.
function logarithmicMarks(plot, n, least, most) {
  const decades = Math.log10(most / least);
  const perDecade = (plot.height - 64) / decades;
  const { digits } = MARKS.find(({ gap }) => gap * perDecade >= MARK_HEIGHT) ?? MARKS.at(-1);
  const every = Math.ceil(MARK_HEIGHT / perDecade);
  const first = Math.floor(Math.log10(least) / every) * every;
  return Array.from({ length: Math.ceil(decades / every) + 2 }, (_, k) => first + k * every)
    .flatMap((exponent) => digits.map((digit) => digit * 10 ** exponent))
    .filter((each) => each >= least && each <= most);
}
