"use strict";

// Sweeps and searches: how latency and throughput change with the rate.

const SHOWN_PERCENTS = ["p50", "p95", "p99"];

function byRateSections(runs, choose) {
  const groups = [...new Set(runs.map((run) => run.group))];
  const rates = [...new Set(runs.map((run) => run.rate))].sort((a, b) => a - b);
  const metrics = ["ttft_ms", "tpot_ms", "e2e_ms"].filter((metric) =>
    runs.some((run) => percentilesOf(run, metric)),
  );
  const charts = [
    ...metrics.map((metric) => latencyByRate(runs, groups, rates, metric)),
    throughputByRate(runs, groups, rates),
    tokensByRate(runs, groups, rates),
  ];
  return section(
    "By rate",
    el("div", { className: "charts" }, ...charts),
    el("h3", {}, "All runs"),
    runsTable(runs, choose),
  );
}

function percentilesOf(run, metric) {
  return run.percentiles.find((row) => row.metric === metric);
}

function rateChart(runs, rates, rest) {
  return lineChart({
    x: { label: "rate", unit: "conversations/s", values: rates },
    points: true,
    ...rest,
  });
}

// Returns `value` of the run at each rate; null where there is no run.
function byRate(runs, group, rates, value) {
  const own = new Map(runs.filter((run) => run.group === group).map((run) => [run.rate, run]));
  return rates.map((rate) => (own.has(rate) ? (value(own.get(rate)) ?? null) : null));
}

function latencyByRate(runs, groups, rates, metric) {
  const series = groups.flatMap((group, n) =>
    SHOWN_PERCENTS.map((name) => ({
      label: [group, name].filter(Boolean).join(" "),
      values: byRate(runs, group, rates, (run) => percentilesOf(run, metric)?.[name]),
      color: seriesColor(n),
      dash: DASHES[name],
    })),
  );
  return rateChart(runs, rates, {
    title: METRICS[metric].name,
    unit: "ms",
    logarithmic: true,
    series,
    limits: objectivesOf(runs, metric, "y"),
  });
}

function throughputByRate(runs, groups, rates) {
  const judged = runs.some((run) => run.goodput);
  const series = groups.flatMap((group, n) => [
    {
      label: [group, "answered"].filter(Boolean).join(" "),
      values: byRate(runs, group, rates, (run) => run.throughput.answered_per_s),
      color: seriesColor(n),
      dash: judged ? DASHES.p99 : [],
    },
    ...(judged
      ? [
          {
            label: [group, "within the objectives"].filter(Boolean).join(" "),
            values: byRate(runs, group, rates, (run) => run.goodput?.per_s),
            color: seriesColor(n),
          },
        ]
      : []),
  ]);
  return rateChart(runs, rates, {
    title: judged ? "Goodput" : "Answers",
    unit: "answers/s",
    series,
  });
}

function tokensByRate(runs, groups, rates) {
  const series = groups.map((group, n) => ({
    label: group || "output tokens",
    values: byRate(runs, group, rates, (run) => run.throughput.output_tokens_per_s),
    color: seriesColor(n),
  }));
  return rateChart(runs, rates, { title: "Throughput", unit: "tokens/s", series });
}

function runsTable(runs, choose) {
  const headings = [
    "run",
    "offered/s",
    "answered/s",
    "tokens/s",
    "TTFT p50",
    "p99",
    "TPOT p50",
    "end to end p50",
    "p99",
    "goodput",
    "kept up",
  ];
  const figure = (run, metric, name) => number(percentilesOf(run, metric)?.[name]);
  const rows = runs.map((run, n) => [
    chooser(run, () => choose(n)),
    number(run.throughput.offered_per_s),
    number(run.throughput.answered_per_s),
    number(run.throughput.output_tokens_per_s),
    figure(run, "ttft_ms", "p50"),
    figure(run, "ttft_ms", "p99"),
    figure(run, "tpot_ms", "p50"),
    figure(run, "e2e_ms", "p50"),
    figure(run, "e2e_ms", "p99"),
    run.goodput ? percent(run.goodput.share) : "–",
    keptUp(run),
  ]);
  return table(headings, rows, { texts: [10], caption: "Times in milliseconds" });
}

function keptUp(run) {
  if (run.saturated) return `no: ${run.saturated}`;
  if (run.meets === null) return "yes";
  return run.meets ? "yes, meets the objectives" : "yes, misses the objectives";
}

function chooser(run, chosen) {
  const button = el("button", { type: "button", title: "show this run in full" }, run.name);
  button.addEventListener("click", chosen);
  return button;
}
