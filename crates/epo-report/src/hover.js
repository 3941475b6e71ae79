// Shows the values of all lines of a panel at the step under the pointer. The numbers are in the attribute `data-curves`
// of a figure; `page.rs` writes them. It works in the page and in the dialog that zoom.js opens.
"use strict";
{
  /** @typedef {{ name: string, colour: string, thin: boolean, steps: number[], values: (number | null)[] }} Line */
  /** @typedef {{ quantity: string, area: number[], x: number[], y: number[], lines: Line[] }} Panel */

  const NEAR = 8; // distance in units of the figure at which the line of a single seed is named
  const SVG = "http://www.w3.org/2000/svg";

  /** @type {Panel[][]} */
  const figures = [];
  for (const figure of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("figure[data-curves]"))) {
    const svg = figure.querySelector("svg");
    if (!svg) continue;
    svg.dataset.figure = String(figures.length); // the copy of zoom.js has it too
    figures.push(JSON.parse(figure.dataset.curves ?? "[]"));
    // the browser's own box would cover ours; screen readers get the names another way
    for (const title of svg.querySelectorAll("path > title")) {
      title.parentElement?.setAttribute("aria-label", title.textContent ?? "");
      title.remove();
    }
  }

  const box = document.createElement("div");
  box.id = "values";
  box.setAttribute("role", "status");
  const cursor = document.createElementNS(SVG, "g");
  cursor.setAttribute("pointer-events", "none");

  function hide() {
    box.remove();
    cursor.remove();
  }

  /** The index of the recorded step nearest to `step`; -1 if the line does not reach it. @param {Line} line */
  function nearest(line, /** @type {number} */ step) {
    const { steps } = line;
    const last = steps.length - 1;
    if (last < 0) return -1;
    const gap = last > 0 ? (steps[last] - steps[0]) / last : Math.abs(steps[0]);
    if (step < steps[0] - gap / 2 || step > steps[last] + gap / 2) return -1;
    let [low, high] = [0, last];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= step) low = middle; else high = middle;
    }
    return Math.abs(steps[high] - step) < Math.abs(steps[low] - step) ? high : low;
  }

  const text = (/** @type {number} */ v) => v.toLocaleString("en", { maximumSignificantDigits: 5 }).replace("-", "−");

  /** Draws a vertical line at `x` and a disc on each shown line. @param {SVGSVGElement} svg @param {Panel} panel */
  function draw(svg, panel, /** @type {number} */ x, /** @type {{ y: number, colour: string }[]} */ discs) {
    const rule = document.createElementNS(SVG, "path");
    rule.setAttribute("d", `M${x} ${panel.area[1]}V${panel.area[3]}`);
    rule.setAttribute("stroke", "#555555");
    const circles = discs.map(({ y, colour }) => {
      const circle = document.createElementNS(SVG, "circle");
      for (const [name, value] of Object.entries({ cx: x, cy: y, r: 3.5, fill: colour })) {
        circle.setAttribute(name, String(value));
      }
      return circle;
    });
    cursor.replaceChildren(rule, ...circles);
    svg.append(cursor);
  }

  /** Fills the box and puts it beside the pointer. @param {SVGSVGElement} svg @param {PointerEvent} event */
  function write(svg, event, /** @type {string} */ heading, /** @type {[string, string, string][]} */ rows) {
    const title = document.createElement("strong");
    title.textContent = heading;
    const table = document.createElement("table");
    for (const [colour, name, value] of rows) {
      const row = table.insertRow();
      const mark = row.insertCell();
      mark.textContent = "■";
      mark.setAttribute("fill", colour); // the style sheet has other colours in dark mode
      mark.style.color = colour;
      row.insertCell().textContent = name;
      const cell = row.insertCell();
      cell.className = "n";
      cell.textContent = value;
    }
    box.replaceChildren(title, table);
    (svg.closest("dialog") ?? document.body).append(box);
    const { width, height } = box.getBoundingClientRect();
    const beside = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    box.style.left = `${Math.max(4, beside)}px`;
    box.style.top = `${Math.max(4, Math.min(event.clientY - height / 2, innerHeight - height - 4))}px`;
  }

  /** Shows the values at the pointer; hides them if it is on no panel. @param {PointerEvent} event */
  function show(event) {
    const target = event.target instanceof Element ? event.target : null;
    const svg = /** @type {SVGSVGElement | null | undefined} */ (
      target?.closest("svg") ?? target?.closest("dialog")?.querySelector("svg"));
    const panels = figures[Number(svg?.dataset.figure ?? NaN)];
    const matrix = svg?.getScreenCTM();
    if (!svg || !panels || !matrix) return hide();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const panel = panels.find(({ area: [left, top, right, bottom] }) => x >= left && x <= right && y >= top && y <= bottom);
    if (!panel) return hide();

    const [left, top, right, bottom] = panel.area;
    const place = (/** @type {number} */ v, /** @type {number[]} */ [from, to]) => (v - from) / (to - from);
    const pointed = panel.x[0] + (x - left) / (right - left) * (panel.x[1] - panel.x[0]);
    const steps = panel.lines.map(line => line.steps[nearest(line, pointed)]).filter(step => step !== undefined);
    if (steps.length === 0) return hide();
    const step = steps.reduce((best, s) => Math.abs(s - pointed) < Math.abs(best - pointed) ? s : best);

    const shown = panel.lines.flatMap(line => {
      const value = line.values[nearest(line, step)] ?? null;
      if (value === null) return [];
      const height = bottom - place(value, panel.y) * (bottom - top);
      return [{ ...line, value, height, distance: Math.abs(height - y) }];
    });
    // of the lines of single seeds only the one at the pointer
    const thin = shown.filter(line => line.thin && line.distance < NEAR).sort((a, b) => a.distance - b.distance)[0];
    const rows = shown.filter(line => !line.thin || line === thin);
    draw(svg, panel, left + place(step, panel.x) * (right - left), rows.map(r => ({ y: r.height, colour: r.colour })));
    write(svg, event, `${panel.quantity} at ${Math.round(step).toLocaleString("en")} steps`,
      rows.map(({ colour, name, value }) => [colour, name, text(value)]));
  }

  addEventListener("pointermove", show);
  addEventListener("pointerdown", show); // a finger does not move first
  addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
  addEventListener("click", hide, { capture: true }); // before zoom.js copies the figure
  addEventListener("scroll", hide, { capture: true, passive: true });
}
