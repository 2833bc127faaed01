// The page's model of a trace: spans that know their parent, children, state and tokens.

const LOST = "(lost)";
const CANCELLED = "specmesh.cancelled";
const QUEUE_MS = "specmesh.queue_ms";
const FORWARD_MS = "specmesh.forward_ms";
const TREE_NODES = "specmesh.tree.nodes";
const COMMITTED_NODES = "specmesh.committed.nodes";

/** Activities of spans by patterns of their names; the first match counts. */
const ACTIVITIES = [
  ["draft", /draft/i],
  ["verify", /verif|verdict/i],
  ["store", /commit|redis/i],
  ["assess", /assess|confidence/i],
  ["round", /round/i],
];

/** Builds the model of a response of /api/traces/ID. Times are ms since the root began. */
export function modelOf(trace) {
  const spans = trace.spans.map(spanOf);
  const byId = new Map(spans.map((span) => [span.id, span]));
  for (const span of spans) {
    span.parent = byId.get(span.parentId) ?? null;
    span.parent?.children.push(span);
  }
  const root = rootOf(spans, trace.summary);
  for (const span of spans) span.state = stateOf(span, root);
  for (const gap of trace.incomplete) {
    if (gap.loss === "server" && byId.has(gap.below)) byId.get(gap.below).lostServer = true;
  }
  const path = trace.critical_path.map((stretch) => ({
    ...stretch,
    span: byId.get(stretch.span_id),
    from: stretch.start_ms,
    to: stretch.start_ms + stretch.ms,
  }));
  for (const stretch of path) if (stretch.span) stretch.span.path.push(stretch);
  return { trace, spans, byId, root, path, extent: extentOf(spans), tokens: tokensOf(spans) };
}

function spanOf(told) {
  const number = (name) => Number(told.attributes[name] ?? 0) || 0;
  return {
    id: told.span_id,
    parentId: told.parent_span_id,
    name: told.name,
    kind: told.kind,
    node: told.node,
    from: told.start_ms,
    to: told.start_ms + told.ms,
    ms: told.ms,
    isError: told.is_error,
    attributes: told.attributes,
    activity: activityOf(told.name),
    queueMs: number(QUEUE_MS),
    forwardMs: number(FORWARD_MS),
    parent: null,
    children: [],
    state: "ok",
    lostServer: false,
    path: [],
  };
}

function activityOf(name) {
  return ACTIVITIES.find(([, pattern]) => pattern.test(name))?.[0] ?? "request";
}

function stateOf(span, root) {
  if (span.name === LOST) return "lost";
  // A root is marked whenever its client left, even if that had received all it wanted.
  if (span.attributes[CANCELLED] === true && span !== root) return "cancelled";
  return span.isError ? "failed" : "ok";
}

function rootOf(spans, summary) {
  const tops = spans.filter((span) => !span.parent);
  const fitting = tops.filter((span) => span.from === 0 && span.ms === summary.duration_ms);
  return (fitting.length ? fitting : tops).reduce((best, span) =>
    span.ms > best.ms ? span : best,
  );
}

function extentOf(spans) {
  let [from, to] = [0, 0];
  for (const span of spans) {
    from = Math.min(from, span.from);
    to = Math.max(to, span.to);
  }
  return { from, to: Math.max(to, from + 0.001) };
}

/** Returns the spans that drafted, verified and committed each token, by its number. */
function tokensOf(spans) {
  const found = new Map();
  const add = (number, role, span) => {
    if (!found.has(number)) found.set(number, { drafted: [], verified: [], committed: [] });
    found.get(number)[role].push(span);
  };
  for (const span of spans) {
    const role = span.activity === "draft" ? "drafted" : "verified";
    for (const number of listed(span, TREE_NODES)) add(number, role, span);
    for (const number of listed(span, COMMITTED_NODES)) add(number, "committed", span);
  }
  return found;
}

/** Returns the values of an attribute that is a list; other programs may write anything there. */
function listed(span, name) {
  const value = span.attributes[name];
  return Array.isArray(value) ? value : [];
}

/** Returns the numbers of the tokens that a span, or the call it serves, concerns. */
export function tokensIn(span) {
  const own = [...listed(span, TREE_NODES), ...listed(span, COMMITTED_NODES)];
  return own.length || span.kind !== "server" || !span.parent ? own : tokensIn(span.parent);
}

/** Returns the node that a call went to: its server's, or the caller's if that is unknown. */
export function servedAt(span) {
  return span.children.find((child) => child.kind === "server")?.node ?? span.node;
}
