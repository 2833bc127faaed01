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

let latest = null;

/** What the view that is about to be shown changes its address with, without going anywhere. It
 * does nothing once another view is shown, or the address has gone elsewhere: what a view waits for
 * may come late. */
export function arrived() {
  const address = { hash: location.hash };
  latest = address;
  return (route) => {
    if (latest !== address || location.hash !== address.hash) return;
    history.replaceState(history.state, "", hashOf(route));
    address.hash = location.hash;
  };
}
