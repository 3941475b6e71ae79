// The tables below the charts.

import { count, el, interval, number, percent, replace, steps, swatch } from "./dom.js";

/**
 * @typedef {{key: string, title: string, hint?: string, numeric?: boolean, value: (row: any) => any, cell?: (row: any) => Node | string, className?: (row: any) => string}} Column
 */

/** A table that can be sorted by every column. Of many rows, only the first are shown until more are asked for. */
export class Table {
  /**
   * @param {HTMLElement} place
   * @param {Column[]} columns
   * @param {{key: string, down: boolean}} sort
   * @param {() => void} changed
   */
  constructor(place, columns, sort, changed) {
    this.columns = columns;
    this.sort = sort;
    this.changed = changed;
    this.most = 50;
    /** @type {any[]} */
    this.rows = [];
    this.body = el("tbody");
    this.more = el("button", { type: "button", className: "more", hidden: true, onclick: () => this.showMore() });
    this.heads = columns.map((column) => {
      const button = el("button", { type: "button", title: column.hint ?? "", onclick: () => this.sortBy(column.key) }, column.title);
      return el("th", { scope: "col", className: column.numeric ? "n" : "" }, button);
    });
    place.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...this.heads)), this.body), this.more);
  }

  showMore() {
    this.most += 500;
    this.render();
  }

  /** @param {string} key */
  sortBy(key) {
    const numeric = this.columns.find((c) => c.key === key)?.numeric ?? false;
    this.sort = this.sort.key === key ? { key, down: !this.sort.down } : { key, down: numeric };
    this.changed();
    this.render();
  }

  /** @param {any[]} rows */
  show(rows) {
    this.rows = rows;
    this.render();
  }

  render() {
    const column = this.columns.find((c) => c.key === this.sort.key) ?? this.columns[0];
    const sign = this.sort.down ? -1 : 1;
    const sorted = this.rows.map((row) => /** @type {[any, any]} */ ([column.value(row), row])).sort((a, b) => compare(a[0], b[0], sign)).map(([, row]) => row);
    this.heads.forEach((head, i) => {
      if (this.columns[i].key === column.key) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const line = (/** @type {any} */ row) => el("tr", { "data-key": row.id }, ...this.columns.map((c) => el("td", { className: `${c.numeric ? "n" : ""} ${c.className?.(row) ?? ""}`.trim() }, c.cell ? c.cell(row) : show(c.value(row)))));
    replace(this.body, sorted.slice(0, this.most).map(line));
    this.more.hidden = sorted.length <= this.most;
    this.more.textContent = `Show more: ${count(sorted.length - this.most, "run")} not shown`;
  }
}

/** @param {any} v */
function show(v) {
  return v === null || v === undefined ? "–" : typeof v === "number" ? number(v) : String(v);
}

/**
 * Compares two cells; a missing value is always last.
 * @param {any} a
 * @param {any} b
 * @param {number} sign
 */
export function compare(a, b, sign) {
  const missing = (/** @type {any} */ v) => v === null || v === undefined || v === "";
  if (missing(a) || missing(b)) return missing(a) === missing(b) ? 0 : missing(a) ? 1 : -1;
  return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b));
}

/** @param {any} row */
function feasibility(row) {
  return row.feasible === null || row.feasible === undefined ? "" : row.feasible ? "good" : "bad";
}

/**
 * Columns of the table of runs.
 * @param {(id: string) => void} open
 * @returns {Column[]}
 */
export function runColumns(open) {
  return [
    { key: "state", title: "State", hint: "training; done; stopped: saved, can be resumed; dead: ended without saving its last epochs; broken: cannot be read", value: (r) => r.state, cell: (r) => el("span", { className: `state ${r.state}`, title: r.remark }, r.state) },
    { key: "label", title: "Algorithm", value: (r) => r.label, cell: (r) => el("button", { type: "button", className: "link", "data-run": r.id, title: "Settings and evaluations of the run", onclick: () => open(r.id) }, r.label || r.name) },
    { key: "seed", title: "Seed", numeric: true, value: (r) => r.seed, cell: (r) => String(r.seed ?? "–") },
    { key: "progress", title: "Steps", numeric: true, value: (r) => r.steps, cell: (r) => (r.planned && r.steps < r.planned ? el("span", { title: `${steps(r.steps)} of ${steps(r.planned)} steps` }, el("progress", { max: r.planned, value: r.steps, "aria-label": "share of the planned steps" }), ` ${steps(r.steps)}`) : steps(r.steps)) },
    { key: "ret", title: "Return", hint: "mean over the last 10 % of the steps", numeric: true, value: (r) => r.ret },
    { key: "cost", title: "Cost", hint: "mean over the last 10 % of the steps; green is within the limit", numeric: true, value: (r) => r.cost, className: feasibility },
    { key: "above", title: "Above limit", hint: "share of the epochs whose cost is above the limit", numeric: true, value: (r) => r.above, cell: (r) => percent(r.above) },
    { key: "excess", title: "Excess", hint: "sum over the epochs of the cost above the limit", numeric: true, value: (r) => r.excess },
    { key: "stays_from", title: "Stays from", hint: "first epoch from which on no epoch is above the limit", numeric: true, value: (r) => r.stays_from, cell: (r) => (r.stays_from === null ? "–" : String(r.stays_from)) },
    { key: "fps", title: "Steps/s", numeric: true, value: (r) => r.fps, cell: (r) => steps(r.fps) },
    { key: "hash", title: "Hash", hint: "first digits of the hash of the newest checkpoint", value: (r) => r.hash, cell: (r) => el("code", { title: r.hash ?? "" }, (r.hash ?? "–").slice(0, 8)) },
    { key: "name", title: "Folder", value: (r) => r.name, cell: (r) => el("span", { className: "soft folder", title: [r.name, r.remark].filter(Boolean).join("\n") }, r.name.split("/").pop()) },
  ];
}

/** @returns {Column[]} */
export function groupColumns() {
  const mean = (/** @type {any} */ v) => (v ? v.mean : null);
  return [
    { key: "label", title: "Group", value: (g) => g.place, cell: (g) => el("span", { title: g.variant ?? "" }, swatch(g), ` ${g.label}`) },
    { key: "n", title: "Runs", numeric: true, value: (g) => g.n, cell: (g) => (g.training > 0 ? `${g.n} (${g.training} training)` : String(g.n)) },
    { key: "ret", title: "Return [95 %]", hint: "mean over the runs with its 95 % interval", numeric: true, value: (g) => mean(g.ret), cell: (g) => interval(g.ret) },
    { key: "cost", title: "Cost [95 %]", hint: "mean over the runs with its 95 % interval", numeric: true, value: (g) => mean(g.cost), cell: (g) => interval(g.cost), className: (g) => (g.cost && g.limit !== null ? (g.cost.mean <= g.limit ? "good" : "bad") : "") },
    { key: "limit", title: "Limit", numeric: true, value: (g) => g.limit, cell: (g) => (g.limit === null ? "–" : number(g.limit).replace(/\.00$/, "")) },
    { key: "feasible", title: "P(feasible) [95 %]", hint: "share of the runs whose final cost is within the limit, with Wilson's interval", numeric: true, value: (g) => mean(g.feasible), cell: (g) => interval(g.feasible, (v) => v.toFixed(2)) },
    { key: "above", title: "Epochs above", hint: "share of the epochs whose cost is above the limit, mean over the runs", numeric: true, value: (g) => mean(g.above), cell: (g) => percent(mean(g.above)) },
    { key: "excess", title: "Excess", hint: "sum over the epochs of the cost above the limit, mean over the runs", numeric: true, value: (g) => mean(g.excess) },
    { key: "stays", title: "Stays from", hint: "median over the runs that stay within the limit, and their number", numeric: true, value: (g) => g.stays.median, cell: (g) => (g.stays.median === null ? "–" : `${g.stays.median} (${g.stays.n} of ${g.n})`) },
  ];
}
