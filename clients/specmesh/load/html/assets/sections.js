"use strict";

// One run: its percentiles, the cost of speculation, errors, and the requests to inspect.
// Each function returns a section, or null if the report has no such data.

const PERCENTS = { p50: "p50", p90: "p90", p95: "p95", p99: "p99", p99_9: "p99.9" };
const METRICS = {
  ttft_ms: {
    name: "TTFT",
    meaning:
      "Time to first token: first token received − when the request was due, whether or not it was sent by then. For requests that did not fail.",
  },
  tpot_ms: {
    name: "TPOT",
    meaning:
      "Time per output token: (end to end − TTFT) / (tokens − 1). For answers with at least two tokens.",
  },
  inter_chunk_ms: {
    name: "inter-chunk",
    meaning:
      "From one chunk of an answer to its next. Speculation sends several tokens in a chunk, so this is not the time between tokens.",
  },
  inter_token_ms: {
    name: "inter-token",
    meaning: "The time between two chunks, divided by the tokens of the second. Each token counts.",
  },
  mean_inter_token_ms: {
    name: "inter-token, mean",
    meaning:
      "(last chunk − first chunk) / (tokens − 1), over all answers together. The server counts the tokens of answers, not of chunks.",
  },
  e2e_ms: {
    name: "end to end",
    meaning: "Last token received − when the request was due. For complete answers.",
  },
  tokens_per_chunk: { name: "tokens per chunk", meaning: "Number of tokens in a chunk." },
};

function latencySection(runs) {
  const rows = Object.keys(METRICS).flatMap((metric) => percentileRows(metric, runs));
  if (!rows.length) return null;
  const headings = ["milliseconds", "mean", ...Object.values(PERCENTS), "max", "count"];
  const mixed = runs.length === 1 && runs[0].variations.length;
  return section(
    "Latency",
    table(headings, rows, {
      caption: "Counted from when each request was due; dotted terms have explanations",
    }),
    mixed ? variationTable(runs[0], headings) : null,
    el("h3", {}, "How many had come by when"),
    el("div", { className: "charts" }, ...cdfCharts(runs), chunksChart(runs)),
  );
}

function percentileRows(metric, runs) {
  const { name, meaning } = METRICS[metric];
  return runs.flatMap((run) =>
    run.percentiles
      .filter((row) => row.metric === metric)
      .map((row) => {
        const whose = runs.length > 1 ? `, ${run.name}` : "";
        return [el("span", {}, term(name, meaning), whose), ...figuresOf(row)];
      }),
  );
}

function figuresOf(row) {
  const columns = ["mean", ...Object.keys(PERCENTS), "max"];
  return [...columns.map((each) => number(row[each])), row.count?.toLocaleString("en") ?? "–"];
}

function variationTable(run, headings) {
  const rows = run.variations.flatMap((variation) =>
    variation.percentiles.map((row) => [
      el(
        "span",
        {},
        `${variation.name}, `,
        term(METRICS[row.metric].name, METRICS[row.metric].meaning),
      ),
      ...figuresOf(row),
    ]),
  );
  return el("div", {}, el("h3", {}, "By variation of the mix"), table(headings, rows));
}

function speculationSection(runs) {
  const several = runs.length > 1;
  const told = runs.flatMap((run) =>
    [{ ...run, name: several ? run.name : "all" }, ...run.variations].filter(
      (each) => each.speculation,
    ),
  );
  if (!told.length) return null;
  const headings = [
    "requests",
    term("acceptance", "Accepted over verified draft tokens."),
    term("target calls a token", "Verify calls over tokens of the answers; 1 without speculation."),
    term(
      "target tokens a token",
      "Positions that the target computed, over tokens of the answers.",
    ),
    term("wasted a token", "Wasted draft tokens, over tokens of the answers."),
  ];
  const rows = told.map(({ name, speculation }) => [
    name,
    percent(speculation.acceptance),
    number(speculation.target_calls_per_token),
    number(speculation.target_tokens_per_token),
    number(speculation.wasted_per_token),
  ]);
  return section("Speculation", table(headings, rows));
}

function requestsSection(run) {
  const { counts, throughput } = run;
  const rows = [
    ["due", counts.due.toLocaleString("en"), `${number(throughput.offered_per_s)} a second`],
    [
      "answered",
      counts.answered.toLocaleString("en"),
      `${number(throughput.answered_per_s)} a second`,
    ],
    ["failed", counts.failed.toLocaleString("en"), shareOf(counts.failed, counts.due)],
    [
      "cancelled by the load",
      counts.cancelled.toLocaleString("en"),
      shareOf(counts.cancelled, counts.due),
    ],
    [
      "resumed after a break",
      counts.resumed.toLocaleString("en"),
      shareOf(counts.resumed, counts.due),
    ],
  ];
  const tokens = `${number(throughput.output_tokens_per_s)} output tokens a second`;
  const mean = throughput.mean_output_tokens;
  return section(
    "Requests",
    table(["requests", "number", ""], rows, {
      caption: mean === null ? tokens : `${tokens}, ${number(mean)} an answer`,
    }),
    ...errorTable(run),
  );
}

function shareOf(part, whole) {
  return whole ? percent(part / whole) : "–";
}

function errorTable({ errors, counts }) {
  if (!errors.length) return [];
  const rows = errors.map(([reason, count]) => {
    const bar = el("span", { className: "bar" });
    bar.style.width = `${Math.max(2, (120 * count) / counts.failed)}px`;
    return [reason, el("span", {}, bar, String(count)), shareOf(count, counts.due)];
  });
  return [el("h3", {}, "Errors by reason"), table(["reason", "requests", "of all"], rows)];
}

function tracesSection(run) {
  const slow = new Set(run.slowest.map((each) => each.trace_id));
  const others = run.failed.filter((each) => !slow.has(each.trace_id));
  const listed = [
    ...run.slowest.map((each) => ["slowest", each]),
    ...others.map((each) => ["failed", each]),
  ];
  if (!listed.length) {
    const advice =
      "No traces were kept: --trace-slowest 10 traces requests and lists the slowest and the failed ones.";
    return section("Slow and failed requests", el("p", { className: "muted" }, advice));
  }
  const rows = listed.map(([why, each]) => [
    why,
    number(each.e2e_ms),
    number(each.ttft_ms),
    each.t_s.toFixed(2),
    `${each.conversation}.${each.turn}`,
    each.reason || each.outcome,
    traceCommand(each.trace_id),
  ]);
  const left = run.num_left_out;
  const caption = left ? `${left.toLocaleString("en")} more are in the JSON of the report` : "";
  const headings = [
    "",
    "end to end, ms",
    "TTFT, ms",
    "due at, s",
    term("request", "Numbers of its conversation and turn."),
    "outcome",
    "trace",
  ];
  return section(
    "Slow and failed requests",
    table(headings, rows, { texts: [5, 6], whole: true, caption }),
  );
}

function traceCommand(id) {
  const command = `specmesh trace show ${id}`;
  const code = el("code", {}, command);
  const button = el("button", { type: "button", className: "no-print" }, "copy");
  button.addEventListener("click", () => copy(command, code, button));
  return el("span", {}, code, " ", button);
}

// If the browser doesn't let pages copy, select the text for the user.
async function copy(text, code, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "marked";
  }
}
