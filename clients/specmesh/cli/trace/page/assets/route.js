// What the address names: "#/?outcome=failed" is a list, "#/trace/ID?from=1&to=2" a stretch of one.

/** The route of a hash. */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  const named = /^\/trace\/([^/]+)$/.exec(path);
  if (named) return { view: "trace", id: decodeURIComponent(named[1]), parameters };
  return { view: "list", parameters };
}

/** The hash of a route; parameters that are empty are left out. */
export function hashOf({ view, id, parameters = {} }) {
  const told = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(told).toString();
  const path = view === "trace" ? `#/trace/${encodeURIComponent(id)}` : "#/";
  return query ? `${path}?${query}` : path;
}

/** Change the address without going anywhere. */
export function renamed(route) {
  history.replaceState(history.state, "", hashOf(route));
}
