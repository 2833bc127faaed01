// The identity of a trace, and what limits its accuracy.

import { el } from "page/dom";
import { counted, duration, moment, percent, shortName } from "page/format";

/** Makes the heading. */
export function heading(trace) {
  const { summary } = trace;
  const facts = [
    summary.reason,
    duration(summary.duration_ms),
    summary.strategy,
    summary.model,
    summary.num_tokens == null ? "" : counted(summary.num_tokens, "token"),
    summary.acceptance == null ? "" : `acceptance ${percent(summary.acceptance)}`,
    counted(summary.num_spans, "span"),
  ];
  return el(
    "header",
    { class: "heading" },
    el(
      "h1",
      {},
      shortName(summary.name),
      " ",
      el("span", { class: `badge ${summary.outcome}` }, summary.outcome),
    ),
    el("p", {}, facts.filter(Boolean).join(" · ")),
    el(
      "p",
      { class: "hint" },
      `${moment(summary.start_ns)} · trace `,
      el("code", {}, summary.trace_id),
      ...summary.sessions.map((session) => [" · session ", el("code", {}, session)]),
    ),
    ...notices(trace),
  );
}

function notices({ failure, incomplete, clocks }) {
  const counts = new Map();
  for (const { what } of incomplete) counts.set(what, (counts.get(what) ?? 0) + 1);
  const lost = [...counts].map(([what, count]) =>
    el(
      "p",
      { class: "notice lost" },
      "incomplete: ",
      count === 1 ? what : what.replace("1 span", `${count} spans`),
    ),
  );
  const failed = failure ? [el("p", { class: "notice lost" }, `failed: ${failure}`)] : [];
  return [
    ...failed,
    ...lost,
    ...clocks.map((clock) =>
      el(
        "p",
        { class: "notice clock" },
        `clock of ${clock.node} corrected by ${correction(clock)}`,
      ),
    ),
  ];
}

/** Describes the offset that was added to a node's times. */
export function correction({ offset_ms, uncertainty_ms, contradictory }) {
  const sign = offset_ms < 0 ? "−" : "+";
  const doubt = contradictory ? ", calls contradict each other" : "";
  const error = uncertainty_ms === null ? " or more" : ` ± ${duration(uncertainty_ms)}`;
  return `${sign}${duration(Math.abs(offset_ms))}${error}${doubt}`;
}
