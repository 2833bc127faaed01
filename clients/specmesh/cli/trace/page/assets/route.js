// Addresses: "#/?outcome=failed" is a list, "#/trace/ID?from=1&to=2" an interval of a trace.

/** Parses the route in a hash. */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  const named = /^\/trace\/([^/]+)$/.exec(path);
  if (named) return { view: "trace", id: decodeURIComponent(named[1]), parameters };
  return { view: "list", parameters };
}

/** Returns the hash of a route, without empty parameters. */
export function hashOf({ view, id, parameters = {} }) {
  const told = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(told).toString();
  const path = view === "trace" ? `#/trace/${encodeURIComponent(id)}` : "#/";
  return query ? `${path}?${query}` : path;
}

let latest = null;

/** Returns a function with which the next view changes its address without navigating. It does
 * nothing once another view is shown or the address has changed, since a view's data may arrive
 * late. */
export function arrived() {
  const address = { hash: location.hash };
  latest = address;
  return (route) => {
    if (latest !== address || location.hash !== address.hash) return;
    history.replaceState(history.state, "", hashOf(route));
    address.hash = location.hash;
  };
}
