// The source of traces: the server or, in an export, the page itself.

const inlined = document.getElementById("data");

/** The trace in this document; null if a server has the traces. */
export const only = inlined ? JSON.parse(inlined.textContent) : null;

/** Fetches the traces that match `filters`. Throws an Error, with the wrong `field` if any. */
export function listed(filters, signal) {
  return asked(`api/traces?${new URLSearchParams(filters)}`, signal);
}

/** Fetches one trace by the beginning of its id, or by "last" or "slowest". */
export async function trace(id, signal) {
  return only ?? asked(`api/traces/${encodeURIComponent(id)}`, signal);
}

/** Fetches the changes that would have shortened a trace, or returns those in this document. */
export async function whatIf(id, signal) {
  return only ? only.what_if : asked(`api/traces/${encodeURIComponent(id)}/what-if`, signal);
}

async function asked(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer: is 'specmesh trace open' still running?");
  }
  const text = await response.text();
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    told = { error: `the server answered ${response.status}: ${text.slice(0, 200)}` };
  }
  if (response.ok && !told.error) return told;
  throw Object.assign(new Error(told.error ?? `status ${response.status}`), { field: told.field });
}
