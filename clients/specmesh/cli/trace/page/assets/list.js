// The list of traces: filters, histogram, table.

import { listed } from "page/data";
import { el } from "page/dom";
import { filters } from "page/filters";
import { counted, duration, grouped, moment, percent, shortName } from "page/format";
import { histogram } from "page/histogram";
import { bind, help } from "page/keys";
import { hashOf } from "page/route";
import { toggle } from "page/theme";

const HEADINGS = [
  ["began", ""],
  ["request", ""],
  ["outcome", ""],
  ["took", "number"],
  ["tokens", "number"],
  ["acceptance", "number"],
  ["spans", "number"],
];

/** Makes the view; `parameters` are the filters and `brush=FROM,TO` in ms, and `rename` changes its
 * address. Returns its content and a function that ends it. */
export function list(parameters, rename) {
  const form = filters((wanted) => {
    state.filters = wanted;
    state.brushed = null;
    load();
  });
  const chart = histogram((stretch) => {
    state.brushed = stretch;
    narrowed();
  });
  const body = el("tbody");
  const status = el("p", { class: "status", role: "status" });
  const state = { filters: {}, brushed: brushedFrom(parameters.brush), traces: [], rows: [] };
  let asking = new AbortController();

  for (const name of form.names) if (parameters[name]) state.filters[name] = parameters[name];
  form.show(state.filters);

  async function load() {
    asking.abort();
    asking = new AbortController();
    remember();
    status.textContent = "reading …";
    try {
      const told = await listed(state.filters, asking.signal);
      state.traces = told.traces;
      state.told = told;
      form.refuse(null);
    } catch (error) {
      if (error.name === "AbortError") return;
      form.refuse(error);
      status.textContent = "";
      return;
    }
    form.suggest(state.traces);
    chart.show(state.traces, state.brushed);
    const longest = Math.max(...state.traces.map((trace) => trace.duration_ms), 1e-9);
    state.rows = state.traces.map((trace) => row(trace, longest));
    body.replaceChildren(...state.rows);
    narrowed();
  }

  function narrowed() {
    let shown = 0;
    // Clocks that are wrong make durations negative, which no stretch of the axis has.
    const [from, to] = state.brushed ?? [-Infinity, Infinity];
    state.traces.forEach((trace, number) => {
      const within = trace.duration_ms >= from && trace.duration_ms <= to;
      state.rows[number].hidden = !within;
      shown += within;
    });
    status.textContent = summary(state, shown);
    remember();
  }

  function remember() {
    const brush = state.brushed && state.brushed.map((ms) => ms.toPrecision(4)).join(",");
    rename({ view: "list", parameters: { ...state.filters, brush } });
  }

  function step(by) {
    const links = state.rows.filter((each) => !each.hidden).map((each) => each.querySelector("a"));
    const at = links.indexOf(document.activeElement);
    links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
  }

  const keys = [
    [["j", "ArrowDown"], "next trace", () => step(1)],
    [["k", "ArrowUp"], "trace before", () => step(-1)],
    [["Enter"], "look at the trace", () => {}],
    [["/"], "to the filters; Esc leaves them", form.focus],
    [["r"], "read the list again", load],
    [
      ["Escape"],
      "drop what is brushed",
      () => {
        state.brushed = null;
        chart.show(state.traces, null);
        narrowed();
      },
    ],
    [["t"], "dark or light", toggle],
    [
      ["?"],
      "this help",
      () => help(keys, [["drag over the histogram", "list these durations alone"]]),
    ],
  ];
  const unbind = bind(keys);

  load();
  const element = el(
    "main",
    { class: "list" },
    el("h1", { class: "spoken" }, "traces"),
    form.element,
    el("section", { "aria-label": "durations" }, chart.element),
    status,
    el(
      "table",
      { class: "traces" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          HEADINGS.map(([name, kind]) => el("th", { scope: "col", class: kind || null }, name)),
        ),
      ),
      body,
    ),
  );
  return {
    element,
    title: "specmesh traces",
    help: () => keys.at(-1)[2](),
    end() {
      unbind();
      asking.abort();
    },
  };
}

function row(trace, longest) {
  const share = Math.max(trace.duration_ms / longest, 0.004);
  const bar = el("span", { class: `took ${trace.outcome}` });
  bar.style.width = `${share * 100}%`;
  const request = trace.strategy || shortName(trace.name);
  const outcome = [trace.outcome, trace.reason].filter(Boolean).join(" ");
  const href = hashOf({ view: "trace", id: trace.trace_id });
  return el(
    "tr",
    {
      class: trace.outcome,
      onclick: (event) => {
        if (!event.target.closest("a") && !getSelection().toString()) location.hash = href;
      },
    },
    el(
      "td",
      { class: "began" },
      el("a", { href }, moment(trace.start_ns)),
      el("code", {}, trace.trace_id.slice(0, 8)),
    ),
    el("td", { class: "request", title: request }, request),
    el(
      "td",
      { class: "outcome", title: outcome },
      outcome,
      trace.num_missing ? el("b", { class: "lost" }, ` incomplete: ${trace.num_missing}`) : null,
    ),
    el("td", { class: "number ms" }, bar, el("span", {}, `${grouped(trace.duration_ms)} ms`)),
    el("td", { class: "number count" }, trace.num_tokens == null ? "" : trace.num_tokens),
    el("td", { class: "number acceptance" }, percent(trace.acceptance)),
    el("td", { class: "number spans" }, trace.num_spans),
  );
}

function summary({ traces, told, brushed }, shown) {
  if (!traces.length) return told.num_stored ? "no trace is like that" : "the store is empty";
  const cut =
    traces.length === told.limit
      ? `, of the first ${told.limit.toLocaleString("en")} that match`
      : "";
  const between = brushed ? ` between ${brushed.map(duration).join(" and ")}` : "";
  return `${counted(shown, "trace")}${between}${cut}; ${told.num_stored.toLocaleString("en")} are stored`;
}

function brushedFrom(written = "") {
  const ends = written.split(",").map(Number);
  return ends.length === 2 && ends.every((ms) => ms > 0) ? ends : null;
}
