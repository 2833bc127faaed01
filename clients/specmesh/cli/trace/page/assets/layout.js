// The layout of spans: nodes below each other, in lanes of spans that do not overlap.

export const LANE = 18;
export const HEADER = 20;
const GAP = 8;

/** Returns the groups and their total height; each span gets `group`, `lane` and `top`. */
export function layoutOf(model) {
  const byNode = new Map();
  for (const span of model.spans) {
    if (!byNode.has(span.node)) byNode.set(span.node, []);
    byNode.get(span.node).push(span);
  }
  const began = (spans) => spans.reduce((least, span) => Math.min(least, span.from), Infinity);
  const nodes = [...byNode].sort(
    ([a, left], [b, right]) =>
      (b === model.root.node) - (a === model.root.node) ||
      began(left) - began(right) ||
      (a < b ? -1 : 1),
  );
  let top = 0;
  const groups = nodes.map(([node, spans]) => {
    const lanes = packed(spans);
    const group = { node, lanes, top, height: HEADER + lanes.length * LANE + GAP };
    lanes.forEach((lane, number) => {
      for (const span of lane) {
        span.group = group;
        span.top = top + HEADER + number * LANE;
      }
    });
    top += group.height;
    return group;
  });
  return { groups, height: top };
}

/** Assigns lanes: children lie below their parents, as high as there is room. */
function packed(spans) {
  const lanes = [];
  const ends = [];
  for (const span of [...spans].sort(
    (a, b) => a.from - b.from || b.to - a.to || depth(a) - depth(b),
  )) {
    let lane = span.parent?.node === span.node ? (span.parent.lane ?? -1) + 1 : 0;
    while (lane < lanes.length && ends[lane] > span.from) lane += 1;
    for (let next = lanes.length; next <= lane; next += 1) {
      lanes.push([]);
      ends.push(-Infinity);
    }
    span.lane = lane;
    lanes[lane].push(span);
    ends[lane] = span.to;
  }
  return lanes;
}

function depth(span) {
  let found = 0;
  for (let above = span.parent; above; above = above.parent) found += 1;
  return found;
}

/** Returns the index of the first span in a lane that ends after `at`. */
export function firstAfter(lane, at) {
  let [low, high] = [0, lane.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle].to < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the span at a time (within `slack` ms) and a height, or undefined. */
export function spanAt(layout, at, y, slack) {
  const group = layout.groups.find((each) => y >= each.top && y < each.top + each.height);
  const lane = group?.lanes[Math.floor((y - group.top - HEADER) / LANE)];
  if (!lane || y < group.top + HEADER) return undefined;
  const near = [];
  for (
    let n = firstAfter(lane, at - slack);
    n < lane.length && lane[n].from <= at + slack;
    n += 1
  ) {
    near.push(lane[n]);
  }
  const distance = (span) => Math.max(span.from - at, at - span.to, 0);
  return near.sort((a, b) => distance(a) - distance(b))[0];
}
