"use strict";

// Two runs: the change of each statistic, a dot for the observed change and a bar for its 95 %
// confidence interval.

const MOST_STEPS = 6;
const LABEL_GAP = 12;
const PRINTED_SCALE = 260;

function differencesSection(differences) {
  const rows = differences.map((each) => [
    `${each.label} ${each.statistic}`,
    number(each.before),
    number(each.after),
    isBounded(each) ? change(each.after / each.before - 1) : "–",
    isBounded(each) ? `${change(each.low)} to ${change(each.high)}` : "–",
    each.in_words,
  ]);
  const headings = ["milliseconds", "before", "after", "change", "95 % interval", ""];
  return section(
    "What has changed",
    el(
      "figure",
      {},
      el(
        "figcaption",
        {},
        "Change ",
        el("span", { className: "muted" }, "of times, % of before; left is faster"),
      ),
      intervalsChart(differences.filter(isBounded)),
    ),
    table(headings, rows, { texts: [5] }),
  );
}

// Whether there is a change in percent: there is none from a time of 0.
function isBounded({ low }) {
  return low !== null;
}

function change(share) {
  return `${share > 0 ? "+" : ""}${(share * 100).toFixed(1)} %`.replace("-", "−");
}

function intervalsChart(differences) {
  const scale = scaleOf(differences);
  return el(
    "div",
    { className: "intervals", role: "group", "aria-label": "The table below has the same" },
    scaleGrid(scale),
    ...differences.map((each) => intervalRow(each, scale)),
  );
}

function scaleGrid({ ticks, place }) {
  const zero = ticks.indexOf(0);
  const labels = ticks.map((tick) => el("span", {}, tickLabel(tick)));
  const lines = ticks.map((tick, n) => {
    const line = el("div", { className: n === zero ? "zero" : "" }, labels[n]);
    line.style.left = place(tick);
    return line;
  });
  const grid = el("div", { className: "grid" }, ...lines);
  // Zero keeps its label, and as many of the others as fit.
  const fitTo = (width) => {
    const widest = Math.max(...labels.map((each) => each.offsetWidth)) + LABEL_GAP;
    const every = Math.ceil((widest * (ticks.length - 1)) / width);
    labels.forEach((each, n) => {
      each.style.visibility = (n - zero) % every ? "hidden" : "visible";
    });
  };
  new ResizeObserver(() => fitTo(grid.clientWidth)).observe(grid);
  addEventListener("beforeprint", () => fitTo(PRINTED_SCALE));
  addEventListener("afterprint", () => fitTo(grid.clientWidth));
  return grid;
}

// Round steps from below the lowest end to above the highest, including zero.
function scaleOf(differences) {
  const ends = [0, ...differences.flatMap(({ low, high }) => [low, high])];
  const span = Math.max(...ends) - Math.min(...ends) || 0.02;
  const least = span / MOST_STEPS;
  const decade = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((each) => each * decade).find((each) => each >= least);
  const first = Math.floor(Math.min(...ends) / step);
  const last = Math.max(first + 1, Math.ceil(Math.max(...ends) / step));
  return {
    ticks: Array.from({ length: last - first + 1 }, (_, n) => (first + n) * step || 0),
    place: (share) => `${(100 * (share / step - first)) / (last - first)}%`,
  };
}

function tickLabel(share) {
  return `${number(share * 100)} %`.replace("-", "−");
}

function intervalRow(each, scale) {
  const kind = each.low > 0 ? "slower" : each.high < 0 ? "faster" : "neither";
  const bar = el("span", { className: "bar" });
  bar.style.left = scale.place(each.low);
  bar.style.right = `calc(100% - ${scale.place(each.high)})`;
  const dot = el("span", { className: "dot" });
  dot.style.left = scale.place(each.after / each.before - 1);
  const name = `${each.label} ${each.statistic}`;
  const row = el(
    "div",
    { className: `row ${kind}` },
    el("span", { className: "name" }, name),
    el("span", { className: "place" }, bar, dot),
    el("span", { className: "words" }, each.in_words),
  );
  const times = `${number(each.before)} ms before, ${number(each.after)} ms after`;
  return explained(
    row,
    `${name}: ${times}, ${change(each.after / each.before - 1)}; ${each.in_words}`,
  );
}
