"use strict";

// Line charts by uPlot: a caption with units, a legend that toggles lines and shows the values
// under the pointer, limits as lines, and the same numbers as a table.

const HEIGHT = 230;
const PRINTED = { width: 330, height: 190 };
const NUM_COLORS = 6;
const DASHES = { p50: [], p95: [7, 4], p99: [2, 3] };
const charts = new Set();

function seriesColor(n) {
  return `var(--series-${n % NUM_COLORS})`;
}

// `x`: {label, unit, values}; `series`: [{label, values, color, dash}]; `unit` is that of the
// values; `logarithmic` is their axis. `limits`: [{axis, at, label}] are drawn as lines; `shaded`:
// [from, until] on x; `form` writes a value. `together` names charts whose pointers move as one.
function lineChart(spec) {
  const plot = el("div", { className: "plot" });
  const at = el("span", { className: "at" });
  const buttons = spec.series.map(legendButton);
  const { seen, beyond } = limitsOf(spec);
  const figure = el(
    "figure",
    {},
    el("figcaption", {}, spec.title, " ", el("span", { className: "muted" }, noteOf(spec, beyond))),
    el("div", { className: "legend" }, ...buttons, ...seen.map(legendLimit), at),
    plot,
    numbersOf(spec),
  );
  const chart = { spec, plot, at, buttons, drawn: null };
  buttons.forEach((button, n) => button.addEventListener("click", () => toggle(chart, n)));
  new ResizeObserver(() => fit(chart)).observe(plot);
  charts.add(chart);
  return figure;
}

// Splits limits into those within view and those beyond it.
function limitsOf({ x, series, limits = [] }) {
  const most = {
    x: Math.max(...x.values),
    y: Math.max(...series.flatMap((each) => each.values)),
  };
  const near = ({ axis: name, at }) => isNear(at, most[name]);
  return { seen: limits.filter(near), beyond: limits.filter((each) => !near(each)) };
}

// Names the limits that are out of view.
function noteOf(spec, beyond) {
  return [spec.note, ...beyond.map(({ label }) => `${label} is beyond`)].filter(Boolean).join("; ");
}

// Includes limits in the range, unless they are so far away that they would dwarf the data.
function isNear(limit, most) {
  return limit <= 3 * most;
}

function legendButton({ label, color, dash }) {
  return el(
    "button",
    { type: "button", "aria-pressed": "true", title: "show or hide" },
    swatchOf(color, dash),
    el("span", {}, label),
    el("span", { className: "value" }),
  );
}

// Labels of limits stand here, because beside their lines they would overlap.
function legendLimit({ label }) {
  return el("span", { className: "limit" }, swatchOf(LIMIT.color, LIMIT.dash), label);
}

function swatchOf(color, dash) {
  const swatch = svg("svg", { width: 20, height: 8, "aria-hidden": "true" });
  const line = svg("line", { x1: 0, x2: 20, y1: 4, y2: 4, "stroke-width": 2.5 });
  line.style.stroke = color;
  if (dash?.length) line.setAttribute("stroke-dasharray", dash.join(" "));
  swatch.append(line);
  return swatch;
}

function toggle(chart, n) {
  const shown = chart.buttons[n].getAttribute("aria-pressed") !== "true";
  chart.buttons[n].setAttribute("aria-pressed", String(shown));
  chart.drawn?.setSeries(n + 1, { show: shown });
}

// Draws the chart once it has a size, and refits it whenever that changes.
function fit(chart) {
  const width = Math.floor(chart.plot.clientWidth);
  if (!width || !chart.plot.isConnected) return;
  if (chart.drawn) chart.drawn.setSize({ width, height: HEIGHT });
  else chart.drawn = drawn(chart, width);
}

function drawn(chart, width) {
  const { spec } = chart;
  const made = new uPlot(
    {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, sync: spec.together ? { key: spec.together } : undefined },
      scales: {
        x: { time: false, range: rangeOf(spec, "x") },
        y: { distr: spec.logarithmic ? 3 : 1, range: rangeOf(spec, "y") },
      },
      axes: [
        { ...axis(spec.x, number), size: 28 },
        {
          ...axis({ label: spec.unit }, spec.form ?? number),
          ...(spec.logarithmic ? LOGARITHMIC : {}),
          size: widest,
        },
      ],
      series: [{}, ...spec.series.map((each) => seriesOf(each, spec.points))],
      hooks: {
        setCursor: [(plot) => readOut(chart, plot)],
        drawClear: [(plot) => shade(plot, spec.shaded)],
        draw: [(plot) => (spec.limits ?? []).forEach((each) => drawLimit(plot, each))],
      },
    },
    [spec.x.values, ...spec.series.map((each) => each.values)],
    chart.plot,
  );
  movedByKeys(made, spec.title);
  chart.buttons.forEach((button, n) => {
    if (button.getAttribute("aria-pressed") !== "true") made.setSeries(n + 1, { show: false });
  });
  return made;
}

function axis({ label, unit }, form) {
  return {
    label: unit ? `${label}, ${unit}` : label,
    labelSize: 18,
    labelFont: "12px system-ui, sans-serif",
    font: "12px system-ui, sans-serif",
    stroke: () => resolved("var(--muted)"),
    grid: { stroke: () => resolved("var(--line)"), width: 1 },
    ticks: { stroke: () => resolved("var(--line)"), width: 1, size: 5 },
    values: (plot, splits) => splits.map((each) => (each === null ? "" : form(each))),
  };
}

// The axis is as wide as its longest number.
function widest(plot, values) {
  return 16 + 7 * Math.max(3, ...(values ?? []).map((each) => each.length));
}

function seriesOf({ label, values, color, dash }, points) {
  // A single value is no line.
  const isLine = values.filter((each) => each !== null).length > 1;
  const stroke = () => resolved(color);
  return {
    label,
    stroke,
    width: 1.75,
    dash,
    spanGaps: true,
    points: { show: Boolean(points) || !isLine, size: 6, stroke, fill: stroke },
  };
}

function rangeOf(spec, name) {
  const limits = (spec.limits ?? []).filter((each) => each.axis === name).map((each) => each.at);
  return (plot, least, most) => {
    if (least === null || most === null) return [0, 1];
    const near = limits.filter((each) => isNear(each, most));
    if (name === "x") {
      const [first, last] = [spec.x.values[0], spec.x.values.at(-1)];
      // Around a single value, uPlot proposes a range of any width.
      const zoomed = first !== last && (least > first || most < last);
      if (zoomed) return [least, most];
      const high = Math.max(last, ...near.map((each) => each * 1.02));
      return high > first ? [Math.min(first, ...near), high] : [first - 0.5, first + 0.5];
    }
    if (spec.logarithmic) return [Math.min(least, ...near) / 1.2, Math.max(most, ...near) * 1.2];
    const high = spec.most ?? Math.max(most, ...near) * 1.06;
    return [0, high || 1];
  };
}

// At a jump of a curve, the legend shows its upper end.
function readOut(chart, plot) {
  const { spec } = chart;
  const { idx } = plot.cursor;
  const under = idx !== null && idx !== undefined;
  const index = under ? spec.x.values.lastIndexOf(spec.x.values[idx]) : null;
  chart.at.textContent = under
    ? `at ${number(spec.x.values[index])} ${spec.x.unit ?? spec.x.label}`
    : "";
  spec.series.forEach((each, n) => {
    const text = under ? (spec.form ?? number)(each.values[index]) : "";
    chart.buttons[n].lastChild.textContent = text;
  });
}

function movedByKeys(plot, title) {
  plot.over.tabIndex = 0;
  plot.over.setAttribute("role", "img");
  plot.over.setAttribute("aria-label", `${title}: arrow keys read it out, the table below has all`);
  plot.over.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const places = [...new Set(plot.data[0])];
    const from = places.indexOf(plot.data[0][plot.cursor.idx]);
    const next = from < 0 && step < 0 ? places.length - 1 : from + step;
    const index = Math.min(places.length - 1, Math.max(0, next));
    plot.setCursor({ left: plot.valToPos(places[index], "x"), top: 10 });
  });
}

// The accessible table, built when it is opened. It has the upper end of a jump.
function numbersOf({ title, x, unit, series, form = number }) {
  const details = el("details", { className: "no-print" }, el("summary", {}, "Numbers"));
  const fill = () =>
    details.append(
      table(
        [x.unit ? `${x.label}, ${x.unit}` : x.label, ...series.map((each) => each.label)],
        x.values
          .map((at, n) => [number(at), ...series.map((each) => form(each.values[n]))])
          .filter((row, n) => x.values[n] !== x.values[n + 1]),
        { caption: unit ? `${title}, ${unit}` : title },
      ),
    );
  details.addEventListener("toggle", fill, { once: true });
  return details;
}

function redrawAll() {
  for (const chart of charts) chart.drawn?.redraw(false, true);
}

// Drops charts that are no longer in the page.
function forgetCharts() {
  for (const chart of charts) {
    if (chart.plot.isConnected) continue;
    chart.drawn?.destroy();
    charts.delete(chart);
  }
}

function sizedForPrint() {
  for (const chart of charts) chart.drawn?.setSize(PRINTED);
}

function sizedForScreen() {
  charts.forEach(fit);
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
