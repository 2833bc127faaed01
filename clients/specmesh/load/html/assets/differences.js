"use strict";

// Two runs: how much each statistic has changed, a dot for what was seen and a bar for the interval
// that holds the change with 95 % confidence.

const ROW = 30;
const LEFT = 130;
const PLOT = 400;
const RIGHT = 250;

function differencesSection(differences) {
  const rows = differences.map((each) => [
    `${each.label} ${each.statistic}`,
    number(each.before),
    number(each.after),
    change(each.after / each.before - 1),
    `${change(each.low)} to ${change(each.high)}`,
    each.in_words,
  ]);
  const headings = ["milliseconds", "before", "after", "change", "95 % interval", ""];
  return section(
    "What has changed",
    el(
      "figure",
      {},
      el("figcaption", {}, "Change ", el("span", { className: "muted" }, "of times, % of before; left is faster")),
      el("div", { className: "intervals-scroll" }, intervalsChart(differences)),
    ),
    el("p", {}),
    table(headings, rows, { texts: [5] }),
  );
}

function change(share) {
  return `${share > 0 ? "+" : ""}${(share * 100).toFixed(1)} %`.replace("-", "−");
}

function intervalsChart(differences) {
  const scale = scaleOf(differences);
  const height = differences.length * ROW + 34;
  const drawing = svg("svg", {
    class: "intervals",
    viewBox: `0 0 ${LEFT + PLOT + RIGHT} ${height}`,
    role: "img",
    "aria-label": "Changes with their intervals; the table below has the same",
  });
  for (const tick of scale.ticks) drawing.append(...gridLine(tick, scale.place(tick), height));
  differences.forEach((each, n) => drawing.append(interval(each, n * ROW + ROW / 2, scale)));
  return drawing;
}

function scaleOf(differences) {
  const ends = differences.flatMap(({ low, high }) => [low, high]);
  const least = Math.min(0, ...ends);
  const most = Math.max(0, ...ends);
  const span = most - least || 0.02;
  const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10].find((each) => span / each <= 6) ?? span / 4;
  const from = Math.floor(least / step) * step;
  const until = Math.max(Math.ceil(most / step) * step, from + step);
  const count = Math.round((until - from) / step);
  return {
    ticks: Array.from({ length: count + 1 }, (_, n) => from + n * step),
    place: (share) => LEFT + (PLOT * (share - from)) / (until - from),
  };
}

function gridLine(tick, x, height) {
  const zero = Math.abs(tick) < 1e-9;
  const line = svg("line", { class: zero ? "zero" : "grid", x1: x, x2: x, y1: 0, y2: height - 26 });
  const label = svg("text", { x, y: height - 8, "text-anchor": "middle" }, `${Number((tick * 100).toFixed(1))} %`.replace("-", "−"));
  return [line, label];
}

function interval(each, y, scale) {
  const kind = each.low > 0 ? "slower" : each.high < 0 ? "faster" : "neither";
  const [low, high, seen] = [each.low, each.high, each.after / each.before - 1].map(scale.place);
  const words = `${each.label} ${each.statistic}: ${number(each.before)} ms before, ${number(each.after)} ms after; ${each.in_words}`;
  return svg(
    "g",
    { class: kind },
    svg("title", {}, words),
    svg("rect", { x: 0, y: y - ROW / 2, width: LEFT + PLOT + RIGHT, height: ROW, fill: "transparent", stroke: "none" }),
    svg("text", { class: "name", x: 0, y: y + 4, stroke: "none" }, `${each.label} ${each.statistic}`),
    svg("line", { x1: low, x2: high, y1: y, y2: y, "stroke-width": 5, "stroke-opacity": 0.45, "stroke-linecap": "round" }),
    svg("circle", { cx: seen, cy: y, r: 5, stroke: "none" }),
    svg("text", { class: "words", x: LEFT + PLOT + 16, y: y + 4, stroke: "none" }, each.in_words),
  );
}
