// DOM elements from plain values. Texts of a trace become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element; `properties` beginning with "on" are listeners, the others attributes (true:
 * present and empty; false, null and undefined: absent). Null children are omitted. */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Makes an SVG element in the same way. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Returns a debounced listener, which runs once `ms` have passed without another call. */
export function settled(ms, listener) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => listener(...values), ms);
  };
}

/** Returns a function that schedules `paint` once for the next frame, however often it is called. */
export function painter(paint) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  };
}
