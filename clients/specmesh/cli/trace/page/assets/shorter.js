// The changes that would have shortened the answer, simulated on request, which takes a while.

import { whatIf } from "page/data";
import { el } from "page/dom";
import { duration, percent } from "page/format";
import { panel } from "page/tables";

const TITLE = "what would have shortened it";
const MIN_GAIN = 0.01;
const NUM_SHOWN = 8;

/** Makes the section for a trace's id; it fills itself when the simulation is done. */
export function shorter(id) {
  const element = el("div", { "aria-live": "polite" }, hint("is being simulated …"));
  const asking = new AbortController();
  whatIf(id, asking.signal).then(
    (found) => element.replaceChildren(told(found)),
    (error) => error.name !== "AbortError" && element.replaceChildren(hint(error.message)),
  );
  return { element, end: () => asking.abort() };
}

function hint(text) {
  return el("p", { class: "hint" }, `${TITLE}: ${text}`);
}

function told(found) {
  if (found.unknown) return hint(found.unknown);
  const error = `${found.simulation_error < 0 ? "−" : "+"}${(Math.abs(found.simulation_error) * 100).toFixed(1)} %`;
  const rows = found.predictions
    .filter((each) => each.gain > MIN_GAIN)
    .slice(0, NUM_SHOWN)
    .map((each) => [each.with, duration(each.ms), percent(each.gain)]);
  const times = `${duration(found.simulated_ms)} there, ${duration(found.measured_ms)} were measured`;
  return panel(
    TITLE,
    ["with", "it takes", "saves"],
    rows.length ? rows : [["nothing that was tried", "", ""]],
    `this request simulated again, with one thing changed; unchanged it takes ${times}: ${error}${shortage(found)}`,
  );
}

/** Describes the changes that there was no time to simulate. */
function shortage(found) {
  if (found.left_out.length) return `. No time was left to simulate: ${found.left_out.join(", ")}`;
  if (found.num_runs === found.num_planned_runs) return "";
  return `. There was time to simulate each ${found.num_runs} instead of ${found.num_planned_runs} times`;
}
