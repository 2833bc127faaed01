// Formats of numbers and times.

/** Formats milliseconds with three significant digits, in s from 10 s on. */
export function duration(ms) {
  const size = Math.abs(ms);
  if (size >= 10_000) return `${(ms / 1000).toFixed(size < 100_000 ? 2 : 1)} s`;
  return `${milliseconds(ms)} ms`;
}

/** Formats milliseconds without a unit. */
export function milliseconds(ms) {
  const size = Math.abs(ms);
  return ms.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size === 0 ? 0 : 3);
}

/** Formats milliseconds with separated thousands, for columns. */
export function grouped(ms) {
  return ms >= 1000 ? Math.round(ms).toLocaleString("en") : milliseconds(ms);
}

/** Formats milliseconds with two significant digits, for axes. */
export function roughly(ms) {
  const rounded = Number(ms.toPrecision(2));
  return rounded >= 1000 ? `${rounded / 1000} s` : `${rounded} ms`;
}

/** Formats a share from 0 to 1. */
export function percent(share) {
  return share == null ? "" : `${Math.round(share * 100)} %`;
}

/** Formats a time in nanoseconds since 1970, in the local time zone. */
export function moment(ns) {
  const date = new Date(Number(ns) / 1e6);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Returns a span's name without the package of its service. */
export function shortName(name) {
  const slash = name.lastIndexOf("/");
  if (slash < 0) return name;
  return name.slice(name.lastIndexOf(".", slash) + 1);
}

/** Formats a count with its noun: "1 span", "2 spans". */
export function counted(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

/** Returns round ticks for an axis, about `about` of them between two values. */
export function ticks(from, to, about) {
  const rough = (to - from) / Math.max(about, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((each) => each * power >= rough) ?? 10);
  const found = [];
  for (let at = Math.ceil(from / step); at * step <= to; at += 1) found.push(at * step);
  return found;
}

/** Formats a tick's label with enough digits that neighbours differ. */
export function tickLabel(ms, step) {
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return step >= 1000 ? `${(ms / 1000).toFixed(0)} s` : `${ms.toFixed(Math.min(digits, 6))} ms`;
}
