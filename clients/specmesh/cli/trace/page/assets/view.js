// The stretch of a trace that is looked at: {from, to} in ms, always inside the whole.

const LEAST_MS = 0.001;

/** `view`, moved and shortened to fit into `whole`. */
export function fitted({ from, to }, whole) {
  const length = Math.min(Math.max(to - from, LEAST_MS), whole.to - whole.from);
  const start = Math.min(Math.max(from, whole.from), whole.to - length);
  return { from: start, to: start + length };
}

/** `view` shown `factor` times as long; what is at `at` stays where it is. */
export function zoomed(view, whole, factor, at = (view.from + view.to) / 2) {
  const length = Math.min(
    Math.max((view.to - view.from) * factor, LEAST_MS),
    whole.to - whole.from,
  );
  const share = (at - view.from) / (view.to - view.from);
  const from = at - share * length;
  return fitted({ from, to: from + length }, whole);
}

/** `view`, later by a share of its length. */
export function panned(view, whole, share) {
  const by = (view.to - view.from) * share;
  return fitted({ from: view.from + by, to: view.to + by }, whole);
}

/** `view`, or the nearest that shows all of a span, if that is short enough, else its beginning. */
export function including(view, whole, { from, to }) {
  const length = view.to - view.from;
  if (from >= view.from && to <= view.to) return view;
  if (to - from > length && from < view.to && to > view.from) return view;
  const start = from < view.from || to - from > length ? from - length * 0.1 : to - length * 0.9;
  return fitted({ from: start, to: start + length }, whole);
}

/** Whether nothing is left out. */
export function isWhole(view, whole) {
  return view.from <= whole.from && view.to >= whole.to;
}
