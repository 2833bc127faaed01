// Elements from plain values. Texts become text nodes, never markup, whatever is in a trace.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `properties` beginning with "on" are listeners, the others attributes (true: set
 * and empty; false, null and undefined: left out). Children that are null are left out. */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG. */
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

/** A listener that runs once `ms` have passed without another call. */
export function settled(ms, listener) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => listener(...values), ms);
  };
}

/** A function that has `paint` run once before the next frame, however often it is called. */
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
