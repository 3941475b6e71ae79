// Small helpers: elements, numbers, downloads. Text from run folders is only ever set as text, never as HTML.

/**
 * Returns a new element.
 * @param {string} tag
 * @param {Record<string, any>} [properties] properties of the element; names with a hyphen are attributes
 * @param {...(Node | string | null | undefined)} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, String(value));
    else /** @type {any} */ (element)[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => child ?? ""));
  return element;
}

/**
 * Makes `children` the children of `place`. What is equal stays in the document, so neither the keyboard focus nor a click
 * that has begun is lost. Children are matched by `data-key`.
 * @param {HTMLElement} place
 * @param {HTMLElement[]} children
 */
export function replace(place, children) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const inside = focused !== null && focused !== place && place.contains(focused);
  const old = new Map([...place.children].map((child) => [/** @type {HTMLElement} */ (child).dataset.key, child]));
  children.forEach((child, i) => {
    const before = old.get(child.dataset.key);
    const node = before ? merged(before, child) : child;
    if (place.children[i] !== node) place.insertBefore(node, place.children[i] ?? null);
  });
  while (place.children.length > children.length) place.lastElementChild?.remove();
  if (!inside || focused === document.activeElement) return;
  const next = focused.isConnected ? focused : /** @type {HTMLElement | null} */ (place.closest("[tabindex]"));
  next?.focus({ preventScroll: true });
}

/**
 * Returns `old`, changed to look like `fresh`, or `fresh` itself if the two differ in more than texts and attributes.
 * @param {Node} old
 * @param {Node} fresh
 * @returns {Node}
 */
function merged(old, fresh) {
  if (old.isEqualNode(fresh)) return old;
  if (!(old instanceof HTMLElement && fresh instanceof HTMLElement) || old.tagName !== fresh.tagName) return fresh;
  // a style cannot be copied as an attribute: the content security policy forbids it
  if (old.childNodes.length !== fresh.childNodes.length || old.style.cssText !== fresh.style.cssText) return fresh;
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const name of fresh.getAttributeNames()) if (name !== "style") old.setAttribute(name, fresh.getAttribute(name) ?? "");
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  before.forEach((child, i) => {
    const node = merged(child, after[i]);
    if (node !== child) child.replaceWith(node);
  });
  return old;
}

/**
 * Returns the element with an id of index.html.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no element ${id}`);
  return found;
}

/**
 * Returns a number as text: three or four significant digits.
 * @param {number | null | undefined} v
 */
export function number(v) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a !== 0 && (a < 1e-3 || a >= 1e6)) return v.toExponential(1);
  const decimals = a >= 1000 ? 0 : a >= 100 ? 1 : a >= 1 || a === 0 ? 2 : 3;
  const text = v.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/**
 * Returns a number of steps as text, such as 1.2 M.
 * @param {number | null | undefined} v
 */
export function steps(v) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  for (const [unit, name] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (Math.abs(v) >= unit) return `${trim((v / unit).toFixed(2))} ${name}`;
  }
  return trim(v.toFixed(2));
}

/** @param {string} text */
function trim(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/**
 * Returns a proportion as a percentage.
 * @param {number | null | undefined} v
 */
export function percent(v) {
  return v === null || v === undefined ? "–" : `${trim((100 * v).toFixed(1))} %`;
}

/**
 * Returns an estimate with its 95 % interval.
 * @param {{mean: number, lo: number | null, hi: number | null} | null} v
 * @param {(v: number) => string} [show]
 */
export function interval(v, show = number) {
  if (!v) return "–";
  return v.lo === null || v.hi === null ? show(v.mean) : `${show(v.mean)} [${show(v.lo)}, ${show(v.hi)}]`;
}

/**
 * Returns "1 run" or "3 runs".
 * @param {number} n
 * @param {string} word
 */
export function count(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

/**
 * Returns a piece of the line of a group, as it is drawn in charts.
 * @param {{colour: string, dash: string}} group
 */
export function swatch(group) {
  const mark = el("span", { className: "swatch", "data-dash": group.dash });
  mark.style.borderTopColor = group.colour;
  return mark;
}

/**
 * Lets the browser save a text as a file.
 * @param {string} name
 * @param {string} text
 * @param {string} kind
 */
export function save(name, text, kind) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
