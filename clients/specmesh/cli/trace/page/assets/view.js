// The visible interval of a trace: {from, to} in ms, always inside the whole.

const LEAST_MS = 0.001;

/** Returns `view`, moved and shortened to fit into `whole`. */
export function fitted({ from, to }, whole) {
  const length = Math.min(Math.max(to - from, LEAST_MS), whole.to - whole.from);
  const start = Math.min(Math.max(from, whole.from), whole.to - length);
  return { from: start, to: start + length };
}

/** Returns `view` with `factor` times its length; the time `at` keeps its place. */
export function zoomed(view, whole, factor, at = (view.from + view.to) / 2) {
  const length = Math.min(
    Math.max((view.to - view.from) * factor, LEAST_MS),
    whole.to - whole.from,
  );
  const share = (at - view.from) / (view.to - view.from);
  const from = at - share * length;
  return fitted({ from, to: from + length }, whole);
}

/** Returns `view`, moved later by a share of its length. */
export function panned(view, whole, share) {
  const by = (view.to - view.from) * share;
  return fitted({ from: view.from + by, to: view.to + by }, whole);
}

/** Returns `view`, or the nearest one that shows a whole span or, if it is too long, its start. */
export function including(view, whole, { from, to }) {
  const length = view.to - view.from;
  if (from >= view.from && to <= view.to) return view;
  if (to - from > length && from < view.to && to > view.from) return view;
  const start = from < view.from || to - from > length ? from - length * 0.1 : to - length * 0.9;
  return fitted({ from: start, to: start + length }, whole);
}

/** Returns whether the whole trace is visible. */
export function isWhole(view, whole) {
  return view.from <= whole.from && view.to >= whole.to;
}
