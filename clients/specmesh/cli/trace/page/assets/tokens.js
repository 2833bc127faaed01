// The token tree of an answer: the answer in rows, and each wasted branch below the position where it
// leaves the answer.

import { el } from "page/dom";
import { duration } from "page/format";
import { servedAt } from "page/model";

/** Each fate's mark, which is used if texts were not recorded, and its meaning. */
const FATES = {
  accepted: ["●", "drafted, and what the target says"],
  recovered: ["◆", "the target's own, in place of a rejected one"],
  bonus: ["○", "the target's own, after drafts that were all accepted"],
  unchecked: ["◇", "drafted, and kept without asking the target"],
  rejected: ["✕", "drafted; the target said otherwise"],
  cancelled: ["·", "drafted after a wrong token, never judged"],
  unused: ["–", "drafted beyond the end of the answer"],
};

/** Most tokens of a row: the browser lays out only the rows that are in view. */
const ROW_TOKENS = 200;

/** Makes the section; null if the trace has no token numbers. `on`: {hover(spans, lines, event),
 * select(span)}. */
export function tokens(model, on) {
  const told = model.trace.tokens;
  if (!told) return null;
  const byNumber = new Map();
  const tree = el("div", {
    class: "tokens",
    onpointerover: hover,
    onpointerleave: () => on.hover([], null),
    onclick: click,
  });
  for (const row of rowsOf(told)) {
    for (const piece of pieces(row)) tree.append(drawn(piece, byNumber));
  }
  const { counts } = told;
  const legend = Object.entries(FATES)
    .filter(([fate]) => counts[fate])
    .map(([fate, [sign, what]]) =>
      el(
        "li",
        { title: what },
        el("span", { class: `token ${fate}` }, sign),
        ` ${counts[fate]} ${fate}`,
      ),
    );
  const element = el(
    "section",
    { class: "panel", "aria-label": "tokens" },
    el("h2", {}, "tokens"),
    el(
      "p",
      {},
      `${counts.committed} committed, ${counts.drafted} drafted, ${counts.wasted} wasted`,
    ),
    el("ul", { class: "legend" }, legend),
    tree,
  );
  let marked = [];

  function tokenOf(event) {
    return byNumber.get(Number(event.target.closest("[data-number]")?.dataset.number));
  }

  function hover(event) {
    const found = tokenOf(event);
    if (!found) return on.hover([], null);
    const spans = model.tokens.get(found.token.number) ?? {
      drafted: [],
      verified: [],
      committed: [],
    };
    return on.hover(Object.values(spans).flat(), lines(found.token, spans), event);
  }

  function click(event) {
    const found = tokenOf(event);
    const spans = found && model.tokens.get(found.token.number);
    const span = spans && [...spans.drafted, ...spans.verified, ...spans.committed][0];
    if (span) on.select(span);
  }

  return {
    element,
    /** Highlights the tokens with these numbers. */
    mark(numbers) {
      for (const each of marked) each.classList.remove("marked");
      marked = numbers.map((number) => byNumber.get(number)?.element).filter(Boolean);
      for (const each of marked) each.classList.add("marked");
    },
  };
}

function lines(token, { drafted, verified, committed }) {
  const at = (verb, spans) =>
    spans.map(
      (span) => `${verb} by ${servedAt(span)}, ${duration(span.from)} to ${duration(span.to)}`,
    );
  return [
    token.text == null ? `token ${token.number}` : JSON.stringify(token.text),
    `${token.fate}: ${FATES[token.fate][1]}`,
    ...at("drafted", drafted),
    ...at("verified", verified),
    ...committed.map((span) => `committed at ${duration(span.to)}`),
  ];
}

/** Yields rows of the answer, {first, tokens}, and branches, {first: null, tokens}. */
function* rowsOf({ committed, wasted }) {
  const below = new Map();
  for (const token of wasted) {
    if (!below.has(token.parent)) below.set(token.parent, []);
    below.get(token.parent).push(token);
  }
  let row = { first: 1, tokens: [] };
  let number = 0;
  for (const [index, token] of committed.entries()) {
    const branches = chains(below, number);
    if (branches.length) {
      if (row.tokens.length) yield row;
      row = { first: index + 1, tokens: [] };
      for (const chain of branches) yield { first: null, tokens: chain };
    }
    row.tokens.push(token);
    number = token.number;
  }
  if (row.tokens.length) yield row;
  for (const chain of chains(below, number)) yield { first: null, tokens: chain };
}

/** Returns the wasted tokens below one as chains; a new chain begins at each fork. */
function chains(below, number) {
  const found = [];
  const heads = [...(below.get(number) ?? [])];
  while (heads.length) {
    const chain = [heads.shift()];
    for (
      let next = below.get(chain.at(-1).number);
      next?.length;
      next = below.get(chain.at(-1).number)
    ) {
      chain.push(next[0]);
      heads.push(...next.slice(1));
    }
    found.push(chain);
  }
  return found;
}

/** Yields a row in pieces of at most ROW_TOKENS. */
function* pieces({ first, tokens: row }) {
  for (let from = 0; from < row.length; from += ROW_TOKENS) {
    const start = first == null ? (from ? "" : "└") : first + from;
    yield { isBranch: first == null, start, tokens: row.slice(from, from + ROW_TOKENS) };
  }
}

function drawn({ isBranch, start, tokens: row }, byNumber) {
  const elements = row.map((token) => {
    const [sign] = FATES[token.fate];
    const text = token.text == null ? sign : visible(token.text);
    const element = el("span", { class: `token ${token.fate}`, "data-number": token.number }, text);
    byNumber.set(token.number, { token, element });
    return element;
  });
  const position = el("span", { class: "position" }, start);
  return el("div", { class: isBranch ? "branch" : "row" }, position, el("span", {}, elements));
}

function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}
