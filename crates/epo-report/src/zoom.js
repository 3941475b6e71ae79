// Opens a figure of the report in a dialog. The wheel and the keys + and - zoom, dragging and the arrow keys move the
// view, a double click and the key 0 show the whole figure, and Escape closes the dialog.
"use strict";
{
  const LARGEST_ZOOM = 40;
  const dialog = document.createElement("dialog");
  const frame = document.createElement("figure");
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.append(close, frame);
  document.body.append(dialog);

  /** @typedef {{ x: number, y: number }} Point */
  /** @type {SVGSVGElement} */ let svg; // the copy
  let whole = new DOMRect(); // its whole view box
  let view = new DOMRect(); // the visible part
  /** @type {Point | null} */ let held = null; // the point that is dragged

  /** @param {number} x @param {number} low @param {number} high */
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
  /** The point of the figure at the pointer. @param {MouseEvent} event */
  const point = event => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM()?.inverse());
  const centre = () => ({ x: view.x + view.width / 2, y: view.y + view.height / 2 });

  /** Shows the part of the figure that begins at (x, y). @param {number} x @param {number} y @param {number} width */
  function show(x, y, width) {
    width = clamp(width, whole.width / LARGEST_ZOOM, whole.width);
    const height = width * whole.height / whole.width;
    x = clamp(x, whole.x, whole.x + whole.width - width);
    y = clamp(y, whole.y, whole.y + whole.height - height);
    view = new DOMRect(x, y, width, height);
    svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  }

  /** Zooms by a factor and keeps the point p at its place. @param {Point} p @param {number} factor */
  function zoom(p, factor) {
    const width = clamp(view.width / factor, whole.width / LARGEST_ZOOM, whole.width);
    const ratio = width / view.width;
    show(p.x - (p.x - view.x) * ratio, p.y - (p.y - view.y) * ratio, width);
  }

  /** Moves the view by tenths of its size. @param {number} right @param {number} down */
  const move = (right, down) => show(view.x + right * view.width / 10, view.y + down * view.height / 10, view.width);
  const reset = () => show(whole.x, whole.y, whole.width);

  /** @param {SVGSVGElement} original */
  function open(original) {
    svg = /** @type {SVGSVGElement} */ (original.cloneNode(true));
    frame.replaceChildren(svg);
    const { x, y, width, height } = original.viewBox.baseVal;
    whole = new DOMRect(x, y, width, height);
    reset();
    dialog.showModal();
  }

  frame.addEventListener("wheel", event => {
    event.preventDefault();
    zoom(point(event), event.deltaY < 0 ? 1.25 : 0.8);
  }, { passive: false });
  frame.addEventListener("pointerdown", event => {
    held = point(event);
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", event => {
    if (!held) return;
    const p = point(event);
    show(view.x + held.x - p.x, view.y + held.y - p.y, view.width);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => { held = null; });
  frame.addEventListener("dblclick", reset);
  /** @type {Record<string, () => void>} */
  const keys = {
    "+": () => zoom(centre(), 1.25), "=": () => zoom(centre(), 1.25), "-": () => zoom(centre(), 0.8), "0": reset,
    ArrowLeft: () => move(-1, 0), ArrowRight: () => move(1, 0), ArrowUp: () => move(0, -1), ArrowDown: () => move(0, 1),
  };
  dialog.addEventListener("keydown", event => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });

  for (const figure of document.querySelectorAll("body > figure")) {
    const original = figure.querySelector("svg");
    if (!original) continue;
    const button = document.createElement("button");
    button.textContent = "Enlarge";
    button.addEventListener("click", () => open(original));
    original.addEventListener("click", () => open(original));
    figure.querySelector("figcaption")?.append(" ", button);
  }
  document.getElementById("zoom-help")?.removeAttribute("hidden");
}
