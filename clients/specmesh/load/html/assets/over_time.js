"use strict";

// A run second by second, and the load of the servers.

function timelineSection(run) {
  const { timeline } = run;
  if (!timeline.t_s.length) return null;
  const steps = timeline.every_s > 1 ? `; steps of ${timeline.every_s} s` : "";
  const charts = [
    timeChart(run, "Requests and errors", "a second", "requests/s", [
      ["due", timeline.due, 0],
      ["answered", timeline.answered, 2],
      ["failed", timeline.failed, 4],
    ]),
    timeChart(run, "Under way", "at the end of each second", "requests", [
      ["under way", timeline.under_way, 0],
    ]),
    timeChart(run, "Output tokens", "per second, counted when their answer ends", "tokens/s", [
      ["tokens", timeline.output_tokens, 2],
    ]),
    timeChart(run, "Latency", "of the requests due in each second", "ms", [
      ["TTFT p50", timeline.ttft_p50_ms, 0],
      ["TTFT p99", timeline.ttft_p99_ms, 0, DASHES.p99],
      ["end to end p50", timeline.e2e_p50_ms, 1],
    ]),
  ];
  const caption = `Shaded: what was measured${steps}. Drag to zoom, double click to go back.`;
  return section(
    "Over time",
    el("p", { className: "muted" }, caption),
    el("div", { className: "charts" }, ...charts),
  );
}

function timeChart(run, title, note, unit, lines, times = run.timeline.t_s) {
  return lineChart({
    title,
    note,
    unit,
    x: { label: "since the start", unit: "s", values: times },
    series: lines.map(([label, values, color, dash]) => ({
      label,
      values,
      color: seriesColor(color),
      dash,
    })),
    shaded: run.measured,
    together: "time",
  });
}

function serversSection(run) {
  if (!run.servers.length) {
    const advice = "No server was scraped; --metrics HOST:PORT,... adds CPU time and queues.";
    return section("Servers", el("p", { className: "muted" }, advice));
  }
  const headings = [
    "role",
    "address",
    term("cores", "CPU time over measured time."),
    term("in forwards", "Share of the measured time in which a forward ran."),
    term("queue, ms", "Mean time of calls from arrival to their first forward."),
    term("deepest queue", "Maximum number of calls that waited for a forward."),
    term("most waiting", "Maximum number of answers that waited to begin."),
  ];
  const rows = run.servers.map((each) => [
    each.role,
    each.address,
    number(each.cpu_cores),
    percent(each.forward_share, 0),
    number(each.queue_mean_ms),
    number(each.max_queue_depth),
    number(each.max_waiting),
  ]);
  return section(
    "Servers",
    table(headings, rows, {
      texts: [1],
      whole: true,
      caption: "In the measured time, by their own metrics",
    }),
    el("div", { className: "charts servers" }, ...serverCharts(run)),
  );
}

function serverCharts(run) {
  const kinds = [
    ["Processor", "cores", "cpu_cores"],
    ["Time in forwards", "share", "forward_share"],
    ["Queue", "calls", "queue_depth"],
    ["Waiting to begin", "answers", "waiting"],
  ];
  return kinds.map(([title, unit, key]) => serverChart(run, title, unit, key)).filter(Boolean);
}

function serverChart(run, title, unit, key) {
  const telling = run.servers.filter((each) => each.samples[key]);
  if (!telling.length) return null;
  const times = [...new Set(telling.flatMap((each) => each.samples.t_s))].sort((a, b) => a - b);
  const lines = telling.map((each) => [
    `${each.role} ${each.address.split(":").at(-1)}`,
    at(each.samples.t_s, each.samples[key], times),
    run.servers.indexOf(each),
  ]);
  return timeChart(run, title, "by process", unit, lines, times);
}

// Puts values at some times on the times of all; null where there is none.
function at(own, values, times) {
  const known = new Map(own.map((each, n) => [each, values[n]]));
  return times.map((each) => known.get(each) ?? null);
}

function generatorSection(runs) {
  const several = runs.length > 1;
  const rows = runs.flatMap((run) =>
    run.generator.processes.map((each, n) => [
      several ? `${run.name}, process ${n + 1}` : `process ${n + 1}`,
      each.requests.toLocaleString("en"),
      number(each.lag_p99_ms),
      percent(each.cpu_share, 0),
    ]),
  );
  const headings = [
    "",
    "requests",
    term("lag p99, ms", "Time from when a request was due until it was sent, for 99 in 100."),
    term("of a core", "CPU time over measured time; Python uses at most one core."),
  ];
  return section("Generator", table(headings, rows));
}
