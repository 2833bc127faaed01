// The waterfall: a canvas that scrolls, zooms and pans, and reports the span under the pointer.

import { palette } from "page/colors";
import { el, painter } from "page/dom";
import { LANE, layoutOf, spanAt } from "page/layout";
import { ABOVE, AXIS, paint } from "page/paint";
import { onChange as onTheme } from "page/theme";
import { isWhole, panned, zoomed } from "page/view";

const WHEEL = 0.0022;
const LINE_PX = 18;
const SLACK_PX = 3;
const CLICK_PX = 5;

/** Makes the element. `on`: {view(view), select(span), hover(span, event), open(span)}; `labels` has
 * the heading of each node. */
export function waterfall(model, labels, on) {
  const layout = layoutOf(model);
  const canvas = el("canvas", { "aria-hidden": "true" });
  const spacer = el("div");
  const element = el(
    "div",
    {
      class: "lanes",
      tabindex: 0,
      role: "application",
      "aria-label": "waterfall of spans; j and k go through them, question mark tells all keys",
    },
    canvas,
    spacer,
  );
  const context = canvas.getContext("2d", { alpha: false });
  const scene = {
    model,
    layout,
    labels,
    view: model.extent,
    width: 1,
    height: 1,
    scroll: 0,
    selected: null,
    hovered: null,
    marked: new Set(),
    pointer: null,
  };
  let colors = null;
  const draw = painter(() => {
    colors ??= palette(context);
    scene.scroll = element.scrollTop;
    paint(context, colors, scene);
  });

  function resize() {
    const ratio = devicePixelRatio || 1;
    scene.width = element.clientWidth;
    scene.height = element.clientHeight;
    canvas.width = Math.round(scene.width * ratio);
    canvas.height = Math.round(scene.height * ratio);
    canvas.style.width = `${scene.width}px`;
    canvas.style.height = `${scene.height}px`;
    spacer.style.height = `${Math.max(ABOVE + layout.height - scene.height, 0)}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }

  const msPerPx = () => (scene.view.to - scene.view.from) / scene.width;
  const moment = (event) =>
    scene.view.from + (event.clientX - canvas.getBoundingClientRect().left) * msPerPx();

  function under(event) {
    const y = event.clientY - canvas.getBoundingClientRect().top;
    const [at, slack] = [moment(event), SLACK_PX * msPerPx()];
    if (y >= AXIS && y < ABOVE) {
      return model.path.find((each) => each.from <= at + slack && each.to >= at - slack)?.span;
    }
    return y < ABOVE ? undefined : spanAt(layout, at, y - ABOVE + element.scrollTop, slack);
  }

  element.addEventListener(
    "wheel",
    (event) => {
      const [x, y] = [event.deltaX, event.deltaY].map((by) =>
        event.deltaMode ? by * LINE_PX : by,
      );
      if (event.shiftKey || Math.abs(x) > Math.abs(y)) {
        event.preventDefault();
        on.view(panned(scene.view, model.extent, (x || y) / scene.width));
      } else if (event.ctrlKey || y < 0 || !isWhole(scene.view, model.extent)) {
        event.preventDefault();
        on.view(
          zoomed(
            scene.view,
            model.extent,
            Math.exp(y * WHEEL * (event.ctrlKey ? 3 : 1)),
            moment(event),
          ),
        );
      } // otherwise the page itself scrolls
    },
    { passive: false },
  );

  const pointers = new Map();
  let gesture = null;

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.offsetX > element.clientWidth) return;
    pointers.set(event.pointerId, event);
    gesture = {
      moved: pointers.size > 1,
      view: scene.view,
      scroll: element.scrollTop,
      began: [...pointers.values()],
    };
    if (event.pointerType !== "touch") element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (pointers.has(event.pointerId)) {
      pointers.set(event.pointerId, event);
      dragged(event);
    }
    hover(event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    element.addEventListener(name, (event) => {
      const clicked = pointers.delete(event.pointerId) && !gesture.moved && name === "pointerup";
      if (clicked) on.select(under(event) ?? null);
      if (pointers.size) gesture = { ...gesture, view: scene.view, began: [...pointers.values()] };
    });
  }
  element.addEventListener("pointerleave", () => hover(null));
  element.addEventListener("dblclick", (event) => on.open(under(event) ?? null));
  element.addEventListener("scroll", draw, { passive: true });

  function dragged(event) {
    const now = [...pointers.values()];
    const middle = (events) => events.reduce((sum, each) => sum + each.clientX, 0) / events.length;
    const by = middle(now) - middle(gesture.began);
    const down = event.clientY - gesture.began[0].clientY;
    if (!gesture.moved && Math.hypot(by, down) < CLICK_PX) return;
    gesture.moved = true;
    let view = gesture.view;
    if (now.length > 1) {
      const apart = (events) => Math.max(Math.abs(events[0].clientX - events[1].clientX), 20);
      const left = canvas.getBoundingClientRect().left;
      const at = view.from + ((middle(gesture.began) - left) * (view.to - view.from)) / scene.width;
      view = zoomed(view, model.extent, apart(gesture.began) / apart(now), at);
    }
    if (event.pointerType === "mouse") element.scrollTop = gesture.scroll - down;
    on.view(panned(view, model.extent, -by / scene.width));
  }

  function hover(event) {
    const away = !event || event.pointerType === "touch";
    scene.pointer = away ? null : moment(event);
    scene.hovered = away || (gesture?.moved && pointers.size) ? null : (under(event) ?? null);
    element.classList.toggle("over", Boolean(scene.hovered));
    on.hover(scene.hovered, event);
    draw();
  }

  const observer = new ResizeObserver(resize);
  observer.observe(element);
  const untheme = onTheme(() => {
    colors = null;
    draw();
  });
  element.style.setProperty("--content", `${ABOVE + layout.height}px`);

  return {
    element,
    layout,
    show(changes) {
      Object.assign(scene, changes);
      draw();
    },
    /** Scrolls until a span is visible. */
    reveal(span) {
      const above = span.top - element.scrollTop;
      const room = element.clientHeight - ABOVE;
      if (above < 0) element.scrollTop = span.top - LANE;
      else if (above + LANE > room) element.scrollTop = span.top - room + 2 * LANE;
    },
    end() {
      observer.disconnect();
      untheme();
    },
  };
}
