"use strict";

// The parts of the page: elements, tables, terms with their explanation, and number formats.
// Text is inserted as text nodes only, so that none of it can become markup.

function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("aria-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

// Rows are arrays of texts, numbers or elements; the first cell of each is its heading. A column
// named in `texts` is set left and may wrap unless `whole`, the others right.
function table(headings, rows, { caption, texts = [], whole = false, className = "" } = {}) {
  const align = (column) => (!texts.includes(column) ? "" : whole ? "text" : "text wrap");
  const head = headings.map((each, n) => el("th", { scope: "col", className: align(n) }, each));
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      ...row.map((each, n) =>
        n ? el("td", { className: align(n) }, each) : el("th", { scope: "row" }, each),
      ),
    ),
  );
  return el(
    "div",
    { className: "scroll", tabIndex: 0, role: "group", "aria-label": caption || "table" },
    el(
      "table",
      { className },
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, ...head)),
      el("tbody", {}, ...body),
    ),
  );
}

// A term with a tooltip that explains it.
function term(text, explanation) {
  return explained(el("span", { className: "term" }, text), explanation);
}

// Makes the element show its explanation when it is pointed at, tapped or focused.
function explained(made, explanation) {
  made.tabIndex = 0;
  const hint = document.getElementById("hint");
  const show = () => {
    hint.textContent = explanation;
    hint.hidden = false;
    const at = made.getBoundingClientRect();
    const left = Math.min(at.left, window.innerWidth - hint.offsetWidth - 8);
    const below = at.bottom + 6;
    const fits = below + hint.offsetHeight < window.innerHeight;
    hint.style.left = `${Math.max(8, left)}px`;
    hint.style.top = `${fits ? below : at.top - hint.offsetHeight - 6}px`;
    made.setAttribute("aria-describedby", "hint");
  };
  const hide = () => {
    hint.hidden = true;
    made.removeAttribute("aria-describedby");
  };
  for (const event of ["mouseenter", "focus", "click"]) made.addEventListener(event, show);
  for (const event of ["mouseleave", "blur"]) made.addEventListener(event, hide);
  return made;
}

// Three significant digits, and all digits before the point.
function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function percent(share, digits = 1) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(digits)} %`;
}
