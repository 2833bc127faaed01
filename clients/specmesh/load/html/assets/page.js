"use strict";

// Builds the page from the data it holds.

// Facts that differ between any two runs.
const UNREMARKABLE = new Set(["Began", "Command", "Load average"]);

const page = JSON.parse(document.getElementById("data").textContent);

function head() {
  const button = el("button", { type: "button", className: "no-print" });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const named = () => {
    const shown = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
    button.textContent = shown === "dark" ? "light" : "dark";
    return shown;
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = named() === "dark" ? "light" : "dark";
    named();
    redrawAll();
  });
  dark.addEventListener("change", () => {
    named();
    redrawAll();
  });
  named();
  return el("div", { className: "head" }, el("h1", {}, page.title), button);
}

function verdict() {
  const lines = page.verdict.map(({ tone, text }) => el("li", { className: tone }, text));
  return el("ul", { className: "verdict" }, ...lines);
}

function factsSection() {
  const several = page.names.length > 1;
  const headings = several ? ["", ...page.names] : ["", ""];
  const rows = page.facts.map(({ label, values }) => [label, ...values]);
  const made = table(headings, rows, { className: "facts" });
  if (!several) made.querySelector("thead").remove();
  page.facts.forEach(({ label, values }, n) => {
    const differs = new Set(values).size > 1 && !UNREMARKABLE.has(label);
    const row = made.querySelectorAll("tbody tr")[n];
    row.classList.toggle("differs", differs);
    // In a narrow window without columns, each value carries the name of its run.
    if (several)
      row.querySelectorAll("td").forEach((cell, k) => (cell.dataset.run = page.names[k]));
  });
  return section("What was run", made);
}

// Everything about one run.
function details(run) {
  return [
    latencySection([run]),
    requestsSection(run),
    timelineSection(run),
    speculationSection([run]),
    serversSection(run),
    generatorSection([run]),
    tracesSection(run),
  ].filter(Boolean);
}

// Shows one of several runs, chosen from a list; `choose` shows the run of that number.
function chosenRun(runs) {
  const place = el("div", {});
  const options = runs.map((run, n) => el("option", { value: String(n) }, run.name));
  const select = el("select", { id: "run" }, ...options);
  const show = (n) => {
    select.value = String(n);
    place.replaceChildren(...details(runs[n]));
    forgetCharts();
  };
  select.addEventListener("change", () => show(Number(select.value)));
  const label = el("label", { htmlFor: "run" }, "One run in full: ", select);
  const element = el("div", { className: "chosen" }, el("h2", {}, label), place);
  const choose = (n) => {
    show(n);
    element.scrollIntoView({ behavior: "smooth" });
  };
  show(0);
  return { element, choose };
}

function body() {
  const { runs, sweep, differences } = page;
  if (!runs.length) return [el("p", {}, "No run was finished.")];
  if (runs.length === 1) return details(runs[0]);
  const chosen = chosenRun(runs);
  const together = sweep
    ? [byRateSections(runs, chosen.choose)]
    : [latencySection(runs), speculationSection(runs)];
  return [differences ? differencesSection(differences) : null, ...together, chosen.element];
}

function begin() {
  document.title = `${page.title} – specmesh load`;
  const main = document.getElementById("page");
  main.replaceChildren(head(), verdict(), factsSection(), ...body().filter(Boolean));
  let theme;
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    sizedForPrint();
    redrawAll();
  });
  addEventListener("afterprint", () => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    sizedForScreen();
    redrawAll();
  });
}

begin();
