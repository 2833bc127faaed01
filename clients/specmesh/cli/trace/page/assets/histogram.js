// A histogram of the listed durations, by outcome, on a logarithmic axis that can be brushed.

import { brush } from "page/brush";
import { el, svg } from "page/dom";
import { duration, roughly } from "page/format";

const NUM_BINS = 48;
const OUTCOMES = ["ok", "cancelled", "failed"];
const WIDTH = 960;
const HEIGHT = 90;

/** Maps some durations in ms to shares of the axis from 0 to 1, and back. */
export function axisOf(durations) {
  const positive = durations.filter((ms) => ms > 0);
  const low = Math.log(positive.length ? Math.min(...positive) / 1.05 : 0.1);
  const high = Math.log(positive.length ? Math.max(...positive) * 1.05 : 10);
  return {
    share: (ms) => Math.min(Math.max((Math.log(Math.max(ms, 1e-9)) - low) / (high - low), 0), 1),
    ms: (share) => Math.exp(low + share * (high - low)),
  };
}

/** Counts the traces of each outcome in each bin. */
export function bins(traces, axis) {
  const found = Array.from({ length: NUM_BINS }, () => ({ ok: 0, cancelled: 0, failed: 0 }));
  for (const trace of traces) {
    const bin = Math.min(Math.floor(axis.share(trace.duration_ms) * NUM_BINS), NUM_BINS - 1);
    found[bin][trace.outcome] += 1;
  }
  return found;
}

/** Makes the chart; `onChange` gets the brushed durations, [from, to] in ms, or null. */
export function histogram(onChange) {
  let axis = axisOf([]);
  const chart = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const labels = el("div", { class: "axis", "aria-hidden": "true" });
  const over = brush({
    label: "durations to list",
    told: (share) => duration(axis.ms(share)),
    onChange: (stretch) => onChange(stretch && stretch.map(axis.ms)),
  });

  function show(traces, brushed) {
    axis = axisOf(traces.map((trace) => trace.duration_ms));
    const found = bins(traces, axis);
    const most = Math.max(1, ...found.map((bin) => OUTCOMES.reduce((sum, o) => sum + bin[o], 0)));
    const wide = WIDTH / NUM_BINS;
    const bars = found.flatMap((bin, number) => {
      let below = HEIGHT;
      return OUTCOMES.filter((outcome) => bin[outcome]).map((outcome) => {
        const height = (bin[outcome] / most) * (HEIGHT - 4);
        below -= height;
        return svg("rect", {
          class: `bar ${outcome}`,
          x: number * wide + 0.5,
          y: below,
          width: wide - 1,
          height,
        });
      });
    });
    chart.replaceChildren(...bars);
    labels.replaceChildren(
      ...[0, 0.25, 0.5, 0.75, 1].map((share) =>
        el("span", {}, traces.length ? roughly(axis.ms(share)) : ""),
      ),
    );
    over.show(brushed && brushed.map(axis.share));
  }

  const element = el(
    "div",
    { class: "histogram" },
    el("div", { class: "chart" }, chart, over.element),
    labels,
  );
  return { element, show };
}
