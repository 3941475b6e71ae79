// The charts, drawn by Apache ECharts.

import { echarts } from "./echarts/index.js";
import { el, number, save, steps, swatch } from "./dom.js";

/**
 * @typedef {{run: string, seed: number, x: number[], y: number[]}} SeedLine
 * @typedef {{x: number[], mean: (number|null)[], lo: (number|null)[], hi: (number|null)[], n: number[], raw?: (number|null)[], seeds?: SeedLine[]}} Curve
 * @typedef {{id: string, label: string, colour: string, colours: {light: string, dark: string}, dash: string, symbol: string, limit: number|null, curves: Record<string, Curve>}} Shown
 * @typedef {{from: number, to: number, colour: string, name: string}} Region
 * @typedef {{key: string, title: string, note?: string, limit?: boolean, zero?: boolean, step?: boolean, regions?: (groups: any[]) => Region[]}} Kind
 */

const GROUP = "curves";
const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"; // single quotes: it becomes an attribute of an SVG

/** Colours that people with colour blindness can tell apart (after Okabe and Ito), for a light and a dark page. */
const PALETTE = {
  light: ["#0067a8", "#d1500b", "#00875f", "#b8558f", "#b07600", "#3d93c9", "#6b4c9a", "#5f6670"],
  dark: ["#5aaef0", "#ff9057", "#3ccfa0", "#ea9ccb", "#f2bd4b", "#9ad4f7", "#b79be6", "#b9c1cc"],
};
const DASHES = ["solid", "dashed", "dotted"];
const SYMBOLS = ["circle", "triangle", "diamond"];
const MOST_IN_TIP = 14; // groups that a tooltip names
/** @type {Record<string, string>} */
const BANDS = { std: "± standard deviation", ci95: "95 % interval of the mean", range: "smallest to largest" };

/** @returns {"light" | "dark"} */
export function theme() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/**
 * Returns the colour, the line and the symbol of the n-th group of a task.
 * @param {number} place
 * @param {"light" | "dark"} [name]
 */
export function look(place, name = theme()) {
  const colours = PALETTE[name];
  const round = Math.floor(place / colours.length) % DASHES.length;
  return { colour: colours[place % colours.length], dash: DASHES[round], symbol: SYMBOLS[round] };
}

/** @param {"light" | "dark"} name */
function inks(name) {
  return name === "dark"
    ? { text: "#e4e9f0", soft: "#9aa7b8", line: "#2d3641", limit: "#ff8a80", card: "#1a2029", veil: "rgba(255,110,100,0.07)" }
    : { text: "#1c2430", soft: "#5a6676", line: "#e3e7ec", limit: "#b3261e", card: "#ffffff", veil: "rgba(179,38,30,0.05)" };
}

/** @type {Panel | null} */
let hovered = null;

/** One chart with its heading and its tools. */
export class Panel {
  /**
   * @param {string} title
   * @param {string} note
   */
  constructor(title, note) {
    this.title = title;
    this.plot = el("div", { className: "chart", tabIndex: 0, role: "img", "aria-label": title });
    this.tools = el("span", { className: "tools" });
    this.tools.append(el("button", { type: "button", title: `Save “${title}” as SVG`, onclick: () => this.saveSvg() }, "SVG"));
    this.hint = el("span", { className: "hint" }, note);
    this.part = el("span", { className: "part" });
    this.card = el("div", { className: "card" }, el("div", { className: "head" }, el("h2", {}, title), this.part, this.hint, this.tools), this.plot);
    this.plot.addEventListener("mouseenter", () => (hovered = this));
    this.plot.addEventListener("mouseleave", () => (hovered = null));
    /** @type {any} */
    this.chart = null;
    /** @type {(name: "light" | "dark") => any} */
    this.option = () => ({});
    new ResizeObserver(() => this.chart?.resize()).observe(this.plot);
  }

  start() {
    if (this.chart) return;
    this.chart = echarts.init(this.plot, null, { renderer: "canvas" });
    this.onstart();
  }

  onstart() {}

  /** Draws the chart if it is on the page. */
  draw() {
    if (!this.plot.isConnected || this.plot.clientWidth === 0) return;
    this.start();
    this.chart.setOption(this.option(theme()), { replaceMerge: ["series"], lazyUpdate: false });
    if (!this.plot.dataset.drawn) performance.mark("drawn");
    this.plot.dataset.drawn = String(Number(this.plot.dataset.drawn ?? 0) + 1);
  }

  /** Title of an exported figure. */
  caption() {
    return this.title;
  }

  /** Saves the chart as an SVG file: light, with a title and a legend below the plot. */
  saveSvg() {
    const width = Math.max(560, this.plot.clientWidth);
    const option = this.option("light");
    const names = option.legend?.data ?? [];
    const legend = legendRows(names, width - 2 * 8) * LEGEND_ROW;
    const height = Math.max(360, this.plot.clientHeight) + legend;
    const paper = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
    const zoom = this.chart?.getOption()?.dataZoom?.map((/** @type {any} */ z) => ({ startValue: z.startValue, endValue: z.endValue, type: "inside", filterMode: "weakFilter" }));
    paper.setOption({
      ...option,
      backgroundColor: "#ffffff",
      toolbox: undefined,
      dataZoom: option.dataZoom === undefined && this.zooms ? zoom : undefined,
      title: { text: this.caption(), left: 8, top: 4, textStyle: { fontSize: 13, fontFamily: FONT } },
      legend: { show: true, left: 8, bottom: 4, width: width - 2 * 8, padding: 0, type: "plain", itemGap: LEGEND_GAP, itemHeight: LEGEND_ROW - LEGEND_GAP, itemWidth: LEGEND_LINE, itemStyle: this.zooms ? { opacity: 0 } : undefined, data: names, formatter: clipped, textStyle: { fontFamily: FONT, fontSize: 12 } },
      grid: { ...option.grid, top: 34, bottom: 38 + legend },
    });
    save(`${this.title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.svg`, paper.renderToSVGString(), "image/svg+xml");
    paper.dispose();
  }

  get zooms() {
    return false;
  }
}

const LEGEND_ROW = 24; // height of a row of a legend, with the gap below it
const LEGEND_GAP = 10;
const LEGEND_LINE = 32; // long enough to show a dash

/** Returns a name that fits into a legend. @param {string} name */
function clipped(name) {
  return name.length > 70 ? `${name.slice(0, 69)}…` : name;
}

/**
 * Returns the number of rows that a legend needs.
 * @param {string[]} names
 * @param {number} width
 */
export function legendRows(names, width) {
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  pen.font = `12px ${FONT}`;
  let [rows, used] = [names.length > 0 ? 1 : 0, 0];
  for (const name of names) {
    const item = LEGEND_LINE + 5 + pen.measureText(clipped(name)).width * 1.05 + LEGEND_GAP; // line, gap, text, gap
    if (used > 0 && used + item > width) [rows, used] = [rows + 1, 0];
    used += item;
  }
  return rows;
}

/** Means and bands of one quantity over steps or time. */
export class CurvePanel extends Panel {
  /**
   * @param {Kind} kind
   * @param {{zoomed: (range: [number, number] | null) => void, picked: (group: Shown, x: number) => void}} listener
   */
  constructor(kind, listener) {
    super(kind.title, kind.note ?? "");
    this.kind = kind;
    this.listener = listener;
    /** @type {Shown[]} */
    this.groups = [];
    this.x = "steps";
    this.band = "std";
    this.cursor = -1;
    this.selecting = false;
    this.zoomedOnce = false;
    this.option = (/** @type {"light" | "dark"} */ name) => this.make(name);
    this.plot.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
  }

  get zooms() {
    return true;
  }

  onstart() {
    this.chart.group = GROUP;
    echarts.connect(GROUP);
    this.chart.on("datazoom", (/** @type {any} */ event) => {
      const zoom = event.batch?.[0] ?? event;
      this.listener.zoomed(zoom.startValue === undefined ? null : [zoom.startValue, zoom.endValue]);
    });
    const surface = this.chart.getZr();
    surface.on("click", (/** @type {any} */ event) => this.pick([event.offsetX, event.offsetY]));
    surface.on("dblclick", () => this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: 0, end: 100 }));
  }

  /**
   * @param {Shown[]} groups
   * @param {string} x
   * @param {string} band
   * @param {number} all number of groups that could be shown
   */
  show(groups, x, band, all) {
    this.groups = groups.filter((g) => g.curves[this.kind.key]);
    [this.x, this.band] = [x, band];
    this.part.textContent = groups.length < all ? `${groups.length} of ${all} groups shown` : "";
    const ends = this.groups.map((g) => `${g.label} ${number(last(g.curves[this.kind.key].mean))}`);
    this.plot.setAttribute("aria-label", `${this.kind.title}. Latest values: ${ends.join(", ")}`);
    this.draw();
    if (this.chart && !this.selecting) {
      this.selecting = true;
      this.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
    }
  }

  caption() {
    const n = this.groups.map((g) => largest(g.curves[this.kind.key].n));
    const [least, most] = [-largest(n.map((v) => -v)), largest(n)];
    const runs = n.length === 0 ? "" : least === most ? ` of n = ${most}` : ` of n = ${least} to ${most}`;
    return `${this.title}: mean${runs} ${most === 1 ? "run" : "runs"}${most > 1 ? `, band: ${BANDS[this.band]}` : ""}`;
  }

  /** @param {[number, number] | null} range */
  zoom(range) {
    if (!this.chart) return;
    const part = range ? { startValue: range[0], endValue: range[1] } : { start: 0, end: 100 };
    this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, ...part });
  }

  /** @param {[number, number]} pixel */
  pick(pixel) {
    if (!this.chart.containPixel("grid", pixel)) return;
    const [x, y] = this.chart.convertFromPixel("grid", pixel);
    let [best, distance] = [/** @type {Shown | null} */ (null), Infinity];
    for (const group of this.groups) {
      const curve = group.curves[this.kind.key];
      const value = curve.mean[nearest(curve.x, x)];
      const d = value === null ? Infinity : Math.abs(value - y);
      if (d < distance) [best, distance] = [group, d];
    }
    if (best) this.listener.picked(best, x);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const group = this.groups[0];
    if (!group) return;
    const curve = group.curves[this.kind.key];
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (move !== undefined) {
      const from = this.cursor < 0 ? curve.x.length : this.cursor;
      this.cursor = Math.min(curve.x.length - 1, Math.max(0, from + move));
      hovered = this;
      const x = this.chart.convertToPixel({ xAxisIndex: 0 }, curve.x[this.cursor]);
      this.chart.dispatchAction({ type: "showTip", x, y: this.plot.clientHeight / 2 });
      event.preventDefault();
    } else if (event.key === "Enter" && this.cursor >= 0) {
      this.listener.picked(group, curve.x[this.cursor]);
    } else if (event.key === "Escape" && this.cursor >= 0) {
      this.cursor = -1;
      this.chart.dispatchAction({ type: "hideTip" });
    }
  }

  /** @param {number} x */
  tip(x) {
    if (hovered !== this || this.groups.length === 0) return "";
    const where = this.x === "time" ? `${number(x)} h` : `${steps(x)} steps`;
    const box = el("div", { className: "tip" }, el("b", {}, where));
    const here = this.groups.filter((group) => x <= (last(group.curves[this.kind.key].x) ?? 0) * 1.001);
    for (const group of here.slice(0, MOST_IN_TIP)) {
      const curve = group.curves[this.kind.key];
      const i = nearest(curve.x, x);
      const [lo, hi] = [curve.lo[i], curve.hi[i]];
      const band = lo === null || hi === null ? "" : ` [${number(lo)}, ${number(hi)}]`;
      const text = `${number(curve.mean[i])}${band} n=${curve.n[i]}`;
      box.append(el("div", { className: "row" }, swatch(group), el("span", {}, group.label), el("span", {}, text)));
    }
    if (here.length > MOST_IN_TIP) box.append(el("div", { className: "soft" }, `and ${here.length - MOST_IN_TIP} more`));
    return box;
  }

  /** @param {"light" | "dark"} name */
  make(name) {
    const ink = inks(name);
    const key = this.kind.key;
    const series = [];
    const limits = this.kind.limit ? [...new Set(this.groups.map((g) => g.limit).filter((v) => v !== null))] : [];
    for (const group of this.groups) {
      const curve = group.curves[key];
      const colour = group.colours[name];
      if (curve.n.some((n) => n > 1)) {
        series.push(band(group.id, curve, colour));
        // invisible lines along the band let the vertical axis fit what is zoomed in
        for (const end of /** @type {const} */ (["lo", "hi"])) series.push({ id: `${group.id} ${end}`, type: "line", data: pairs(curve.x, curve[end]), showSymbol: false, silent: true, lineStyle: { opacity: 0 }, itemStyle: { opacity: 0 }, emphasis: { disabled: true }, symbol: "none" });
      }
      for (const seed of curve.seeds ?? []) {
        series.push({ id: `${group.id} ${seed.run}`, name: group.label, type: "line", data: pairs(seed.x, seed.y), showSymbol: false, silent: true, z: 2, lineStyle: { width: 0.9, color: colour, opacity: 0.5 }, itemStyle: { color: colour }, step: this.kind.step ? "end" : undefined });
      }
      if (curve.raw) {
        series.push({ id: `${group.id} raw`, name: group.label, type: "line", data: pairs(curve.x, curve.raw), showSymbol: false, silent: true, z: 2, lineStyle: { width: 1, color: colour, opacity: 0.35 }, itemStyle: { color: colour } });
      }
      const alone = curve.x.length === 1;
      series.push({ id: group.id, name: group.label, type: "line", data: pairs(curve.x, curve.mean), showSymbol: alone, symbolSize: 7, z: 4, lineStyle: { width: 2, color: colour, type: group.dash }, itemStyle: { color: colour }, step: this.kind.step ? "end" : undefined, emphasis: { disabled: true } });
    }
    const values = this.groups.flatMap((g) => [...g.curves[key].hi, ...g.curves[key].mean]).filter((v) => v !== null);
    const low = this.groups.flatMap((g) => [...g.curves[key].lo, ...g.curves[key].mean]).filter((v) => v !== null);
    const [top, bottom] = [largest(values), -largest(low.map((v) => -v))];
    const regions = (this.kind.regions?.(this.groups) ?? []).filter((r) => r.from <= top && r.to >= bottom);
    if (limits.length > 0 || regions.length > 0) {
      series.push({
        id: "limit", type: "line", data: [], silent: true, z: 3,
        markLine: { symbol: "none", silent: true, animation: false, lineStyle: { color: ink.limit, width: 1.5, type: "dashed" }, label: { position: "insideStartTop", formatter: (/** @type {any} */ p) => `limit ${short(p.value)}`, color: ink.limit, fontSize: 11 }, data: limits.map((v) => ({ yAxis: v })) },
        markArea: { silent: true, data: limits.length === 1 ? [[{ yAxis: limits[0], itemStyle: { color: ink.veil } }, { yAxis: 1e12 }]] : regions.map((r) => [{ yAxis: r.from, itemStyle: { color: r.colour }, name: r.name, label: { position: "insideTopLeft", color: ink.soft, fontSize: 10 } }, { yAxis: r.to }]) },
      });
    }
    const flat = values.length > 0 && top - bottom <= 1e-6 * Math.abs(top);
    const room = 0.5 * Math.abs(top) || 1; // a constant is drawn in the middle
    return {
      ...base(ink),
      grid: { left: 8, right: 14, top: 14, bottom: 30, containLabel: true },
      legend: { show: false, data: this.groups.map((g) => g.label) },
      xAxis: { ...axis(ink), type: "value", min: 0, max: "dataMax", name: this.x === "time" ? "hours of training" : "environment steps", nameLocation: "middle", nameGap: 26, axisLabel: { color: ink.soft, fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: (/** @type {number} */ v) => (this.x === "time" ? number(v) : steps(v)) }, splitLine: { show: false } },
      yAxis: { ...axis(ink), ...(flat ? { axisLabel: { ...axis(ink).axisLabel, showMinLabel: false, showMaxLabel: false } } : {}), type: "value", scale: !this.kind.zero, min: flat ? top - room : this.kind.limit && limits.length > 0 ? (/** @type {any} */ e) => Math.min(e.min, 0) : undefined, max: flat ? top + room : limits.length > 0 ? (/** @type {any} */ e) => (e.max > Math.max(...limits) * 1.08 ? null : Math.max(...limits) * 1.2) : undefined },
      tooltip: { trigger: "axis", confine: true, transitionDuration: 0, backgroundColor: ink.card, borderColor: ink.line, textStyle: { color: ink.text }, axisPointer: { type: "line", lineStyle: { color: ink.soft, type: "solid", opacity: 0.6 } }, formatter: (/** @type {any} */ p) => this.tip((Array.isArray(p) ? p[0] : p).axisValue) },
      toolbox: { show: true, itemSize: 0, left: -99, feature: { dataZoom: { yAxisIndex: "none", filterMode: "weakFilter", brushStyle: { color: "rgba(80,130,200,0.2)" } } } },
      series,
    };
  }
}

/** Return against cost: one point per run, the limit, and the Pareto front of what is shown. */
export class PlanePanel extends Panel {
  /** @param {{run: (id: string) => void}} listener */
  constructor(listener) {
    super("Return against cost", "One point per run: means over the last 10 % of its steps");
    this.listener = listener;
    /** @type {{group: Shown, runs: any[]}[]} */
    this.data = [];
    this.option = (/** @type {"light" | "dark"} */ name) => this.make(name);
  }

  onstart() {
    this.chart.on("click", (/** @type {any} */ event) => event.data?.run && this.listener.run(event.data.run.id));
  }

  caption() {
    const n = this.data.reduce((sum, d) => sum + d.runs.length, 0);
    return `${this.title}: one point per run, n = ${n} ${n === 1 ? "run" : "runs"}`;
  }

  /** @param {{group: Shown, runs: any[]}[]} data @param {number} all number of groups that could be shown */
  show(data, all) {
    this.data = data;
    this.part.textContent = data.length < all ? `${data.length} of ${all} groups shown` : "";
    const front = pareto(data.flatMap((d) => d.runs));
    this.plot.setAttribute("aria-label", `Return against cost of ${data.reduce((n, d) => n + d.runs.length, 0)} runs, ${front.length} of them on the Pareto front`);
    this.draw();
  }

  /** @param {"light" | "dark"} name */
  make(name) {
    const ink = inks(name);
    const all = this.data.flatMap((d) => d.runs);
    const limits = [...new Set(all.map((r) => r.limit).filter((v) => v !== null))];
    const front = pareto(all).map((r) => [r.cost, r.ret]);
    /** @type {any[]} */
    const series = this.data.map(({ group, runs }) => ({
      id: group.id, name: group.label, type: "scatter", symbol: group.symbol, symbolSize: all.length > 500 ? 6 : 9, z: 4,
      itemStyle: { color: group.colours[name], opacity: 0.8, borderColor: ink.card, borderWidth: 0.7 },
      data: runs.map((run) => ({ value: [run.cost, run.ret], run, itemStyle: run.feasible === false ? { borderColor: group.colours[name], borderWidth: 1.8, color: "transparent" } : undefined })),
    }));
    series.push({ id: "front", name: "Pareto front", type: "line", step: "end", data: front, showSymbol: false, silent: true, z: 2, lineStyle: { color: ink.soft, width: 1.3, type: "dotted" }, itemStyle: { color: ink.soft }, markLine: { symbol: "none", silent: true, animation: false, lineStyle: { color: ink.limit, width: 1.5, type: "dashed" }, label: { position: "insideEndTop", formatter: (/** @type {any} */ p) => `limit ${short(p.value)}`, color: ink.limit, fontSize: 11 }, data: limits.map((v) => ({ xAxis: v })) } });
    return {
      ...base(ink),
      grid: { left: 26, right: 20, top: 14, bottom: 30, containLabel: true },
      legend: { show: false, data: [...this.data.map((d) => d.group.label), "Pareto front"] },
      xAxis: { ...axis(ink), type: "value", name: "cost", nameLocation: "middle", nameGap: 26, min: 0, max: (/** @type {any} */ e) => (limits.length > 0 && e.max < Math.max(...limits) * 1.1 ? Math.max(...limits) * 1.2 : null) },
      yAxis: { ...axis(ink), type: "value", scale: true, name: "return", nameLocation: "middle", nameGap: 34 },
      tooltip: { trigger: "item", confine: true, backgroundColor: ink.card, borderColor: ink.line, textStyle: { color: ink.text }, formatter: (/** @type {any} */ p) => this.tip(p) },
      series,
    };
  }

  /** @param {any} p */
  tip(p) {
    const run = p.data?.run;
    if (!run) return "";
    const text = `return ${number(run.ret)}, cost ${number(run.cost)}`;
    return el("div", { className: "tip" }, el("b", {}, `${p.seriesName}, seed ${run.seed}`), el("div", {}, text), el("div", { className: "soft" }, run.state));
  }
}

/**
 * Returns the runs that no other run beats in return and cost at once, by increasing cost.
 * @param {any[]} runs
 */
export function pareto(runs) {
  const sorted = runs.filter((r) => r.ret !== null && r.cost !== null).sort((a, b) => a.cost - b.cost || b.ret - a.ret);
  let best = -Infinity;
  return sorted.filter((r) => r.ret > best && ((best = r.ret), true));
}

/** @param {any} ink */
function base(ink) {
  return { animation: false, backgroundColor: "transparent", textStyle: { fontFamily: FONT, color: ink.text } };
}

/** @param {any} ink */
function axis(ink) {
  return { nameTextStyle: { color: ink.soft, fontSize: 11 }, axisLabel: { color: ink.soft, fontSize: 11, hideOverlap: true, formatter: (/** @type {number} */ v) => short(v) }, axisLine: { show: true, lineStyle: { color: ink.line } }, axisTick: { show: false }, splitLine: { lineStyle: { color: ink.line, opacity: 0.7 } } };
}

/** @param {number} v */
function short(v) {
  return Math.abs(v) >= 10_000 ? steps(v) : String(Number(v.toPrecision(6)));
}

/**
 * @param {number[]} x
 * @param {(number | null)[]} y
 */
function pairs(x, y) {
  return x.map((at, i) => [at, y[i]]);
}

/** @param {number[]} values */
function largest(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}

/** @param {(number | null)[]} values */
function last(values) {
  return values[values.length - 1];
}

/**
 * Returns the index of the position that is nearest to `at` in a sorted list.
 * @param {number[]} x
 * @param {number} at
 */
export function nearest(x, at) {
  let [lo, hi] = [0, x.length - 1];
  while (hi - lo > 1) {
    const mid = (lo + hi) >> 1;
    if (x[mid] < at) lo = mid;
    else hi = mid;
  }
  return Math.abs(x[lo] - at) <= Math.abs(x[hi] - at) ? lo : hi;
}

/**
 * Returns a series that fills the area between the ends of the band. It has one item, so that a zoom keeps it whole.
 * @param {string} id
 * @param {Curve} curve
 * @param {string} colour
 */
function band(id, curve, colour) {
  const known = curve.x.map((_, i) => i).filter((i) => curve.lo[i] !== null && curve.hi[i] !== null);
  const item = [curve.x[known[0]], curve.x[known[known.length - 1]]];
  return {
    id: `${id} band`, type: "custom", silent: true, clip: true, z: 1, encode: { x: [0, 1], y: [] }, data: known.length > 1 ? [item] : [], itemStyle: { color: colour }, tooltip: { show: false },
    renderItem: (/** @type {any} */ _params, /** @type {any} */ api) => {
      const top = known.map((i) => api.coord([curve.x[i], curve.hi[i]]));
      const bottom = known.map((i) => api.coord([curve.x[i], curve.lo[i]])).reverse();
      return { type: "polygon", shape: { points: [...top, ...bottom] }, style: { fill: colour, opacity: 0.16 }, silent: true };
    },
  };
}
