"use strict";

// Distributions of latencies and chunks.

function cdfCharts(runs) {
  return Object.keys(runs[0].cdfs)
    .map((metric) => cdfChart(metric, runs))
    .filter((chart) => chart !== null);
}

function cdfChart(metric, runs) {
  const curves = runs.flatMap((run) =>
    run.cdfs[metric].map((curve) => ({
      ...curve,
      name: [runs.length > 1 ? run.name : "", curve.name].filter(Boolean).join(", "),
    })),
  );
  if (!curves.length) return null;
  const { name } = METRICS[metric];
  const { times, shares } = onOneAxis(curves);
  return lineChart({
    title: name,
    note: "share of requests up to a time",
    unit: "share",
    form: (share) => percent(share, share > 0.99 && share < 1 ? 2 : 0),
    most: 1,
    x: { label: name, unit: "ms", values: times },
    series: curves.map((curve, n) => ({
      label: curve.name || name,
      values: shares[n],
      color: seriesColor(n),
    })),
    limits: objectivesOf(runs, metric, "x"),
  });
}

// The distinct objectives of a metric.
function objectivesOf(runs, metric, axis) {
  const key = metric.replace("_ms", "");
  const bounds = runs.map((run) => run.goodput?.objectives_ms[key]).filter((each) => each);
  return [...new Set(bounds)]
    .sort((a, b) => a - b)
    .map((at) => ({ axis, at, label: `objective ${number(at)} ms` }));
}

// Puts curves of shares, each with its own times, on the times of all. Each time occurs twice,
// with the share below it and up to it, because a curve is a step up at each of its times.
function onOneAxis(curves) {
  const own = new Set(curves.flatMap((curve) => curve.ms));
  const times = [...own].sort((a, b) => a - b).flatMap((each) => [each, each]);
  const shares = curves.map((curve) =>
    times.map((time, n) => shareAt(curve, n % 2 ? (each) => each <= time : (each) => each < time)),
  );
  return { times, shares };
}

// Returns the share at the last time that is `within`.
function shareAt({ ms, share }, within) {
  return share[ms.findLastIndex(within)] ?? 0;
}

function chunksChart(runs) {
  const telling = runs.filter((run) => run.tokens_per_chunk.size.length);
  const most = Math.max(0, ...telling.flatMap((run) => run.tokens_per_chunk.size));
  if (most < 2) return null;
  const sizes = Array.from({ length: most }, (_, n) => n + 1);
  return lineChart({
    title: "tokens per chunk",
    note: "share of chunks of so many tokens",
    unit: "share",
    form: (share) => percent(share, 1),
    points: true,
    x: { label: "tokens in a chunk", values: sizes },
    series: telling.map((run, n) => ({
      label: runs.length > 1 ? run.name : "chunks",
      values: chunkShares(run.tokens_per_chunk, sizes),
      color: seriesColor(n),
    })),
  });
}

function chunkShares({ size, count }, sizes) {
  const total = count.reduce((sum, each) => sum + each, 0);
  const known = new Map(size.map((each, n) => [each, count[n] / total]));
  return sizes.map((each) => known.get(each) ?? 0);
}
