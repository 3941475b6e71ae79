// The page: asks for new data about three times a second, shows it, and keeps the view in the address.

import { CurvePanel, PlanePanel, look, theme } from "./charts.js";
import { byId, count, el, number, percent, replace, steps, swatch } from "./dom.js";
import { Table, groupColumns, runColumns } from "./tables.js";

const TICK = 350; // milliseconds between two questions
const MOST_SHOWN = 8; // groups that are shown at first
const MOST_TASKS = 8; // tasks of a sweep's plan that are named

/** The view, as the address holds it. */
const view = {
  task: "", q: "", x: "steps", band: "std", smooth: "1", seeds: false, penalty: false, settings: false,
  /** @type {string[] | null} ids of the shown groups; null means the first ones */ groups: null,
  /** @type {[number, number] | null} */ zoom: null,
  sort: "label", down: false, theme: "", run: "",
};

/** What the server said. */
const data = {
  version: 0,
  /** @type {any} */ overview: null,
  /** @type {Map<string, any>} */ runs: new Map(),
  /** @type {any} */ curves: null,
  /** @type {any} */ penalty: null,
};

// ---------------------------------------------------------------------------------------------------- the address

function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1));
  view.task = p.get("task") ?? "";
  view.q = p.get("q") ?? "";
  view.x = p.get("x") === "time" ? "time" : "steps";
  view.band = ["std", "ci95", "range"].find((b) => b === p.get("band")) ?? "std";
  view.smooth = ["1", "5", "15", "51"].find((s) => s === p.get("smooth")) ?? "1";
  view.seeds = p.get("seeds") === "1";
  view.penalty = p.get("penalty") === "1";
  view.settings = p.get("settings") === "1";
  view.groups = p.has("groups") ? (p.get("groups") ?? "").split(",").filter(Boolean) : null;
  const zoom = (p.get("zoom") ?? "").split("~").map(Number);
  view.zoom = zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? [zoom[0], zoom[1]] : null;
  view.sort = p.get("sort") ?? "label";
  view.down = p.get("down") === "1";
  view.theme = ["light", "dark"].find((t) => t === p.get("theme")) ?? "";
  view.run = p.get("run") ?? "";
}

function writeAddress() {
  const p = new URLSearchParams();
  const set = (/** @type {string} */ key, /** @type {any} */ value, /** @type {any} */ usual) => value !== usual && p.set(key, value === true ? "1" : String(value));
  set("task", view.task, "");
  set("q", view.q, "");
  set("x", view.x, "steps");
  set("band", view.band, "std");
  set("smooth", view.smooth, "1");
  set("seeds", view.seeds, false);
  set("penalty", view.penalty, false);
  set("settings", view.settings, false);
  if (view.groups) p.set("groups", view.groups.join(","));
  if (view.zoom) p.set("zoom", view.zoom.map((v) => Number(v.toPrecision(8))).join("~"));
  set("sort", view.sort, "label");
  set("down", view.down, false);
  set("theme", view.theme, "");
  set("run", view.run, "");
  // the token, if there is one, leaves the address: a cookie holds it
  history.replaceState(null, "", `${location.pathname}#${p}`);
}

// ------------------------------------------------------------------------------------------------------ the panels

const listener = {
  /** @param {[number, number] | null} range */
  zoomed(range) {
    if (String(range) === String(view.zoom)) return;
    view.zoom = range;
    byId("unzoom").hidden = range === null;
    writeAddress();
  },
  /** @param {any} group @param {number} x */
  picked(group, x) {
    openEpisodes({ group: group.id, title: group.label }, x);
  },
  /** @param {string} id */
  run(id) {
    openRun(id);
  },
};

const ALPHA = [["rgba(0,135,95,0.10)", "α = 1"], ["rgba(224,160,0,0.12)", "α = ½"], ["rgba(190,50,40,0.12)", "α = 0"]];

/** Regions of the violation in which EPO's α has one value. @param {any[]} groups */
function alphaRegions(groups) {
  const t = groups.map((g) => g.alpha_thresholds).find((t) => Array.isArray(t) && t.length === 2);
  if (!t) return [];
  const edges = [-1e9, Number(t[0]), Number(t[1]), 1e9];
  return ALPHA.map(([colour, name], i) => ({ from: edges[i], to: edges[i + 1], colour, name }));
}

const panels = {
  main: [
    new CurvePanel({ key: "ret", title: "Return" }, listener),
    new CurvePanel({ key: "cost", title: "Cost", note: "mean of the last 100 episodes; not smoothed further", limit: true, zero: true }, listener),
  ],
  plane: new PlanePanel(listener),
  excess: new CurvePanel({ key: "excess", title: "Cumulative excess", note: "sum over the epochs of the cost above the limit", zero: true }, listener),
  penalty: [
    new CurvePanel({ key: "f", title: "Violation F̂", note: "0 is the limit; colours: α", regions: alphaRegions }, listener),
    new CurvePanel({ key: "alpha", title: "Weight α", note: "of the linear stream", step: true, zero: true }, listener),
    new CurvePanel({ key: "mu", title: "Penalty factor μ", note: "smaller is stricter", zero: true }, listener),
    new CurvePanel({ key: "psi", title: "Factor Ψ", note: "multiplies the penalty", zero: true }, listener),
    new CurvePanel({ key: "weight", title: "Weight of the cost", note: "against the reward, in the gradient", zero: true }, listener),
    new CurvePanel({ key: "lambda", title: "Multiplier λ", note: "of Lagrangian algorithms", zero: true }, listener),
    new CurvePanel({ key: "kappa", title: "Penalty factor κ", note: "of an exact penalty", zero: true }, listener),
    new CurvePanel({ key: "explained_r", title: "Reward critic", note: "share of the variance that it explains" }, listener),
    new CurvePanel({ key: "explained_c", title: "Cost critic", note: "share of the variance that it explains" }, listener),
    new CurvePanel({ key: "feasible", title: "Feasible episodes", note: "share of the last 100", zero: true }, listener),
    new CurvePanel({ key: "kl", title: "KL divergence", note: "between old and new policy", zero: true }, listener),
    new CurvePanel({ key: "fps", title: "Speed", note: "environment steps per second", zero: true }, listener),
  ],
};
byId("chart-main").append(...panels.main.map((p) => p.card));
byId("chart-safety").append(panels.plane.card, panels.excess.card);
byId("chart-penalty").append(...panels.penalty.map((p) => p.card));
for (const panel of [...panels.main, panels.excess, ...panels.penalty]) {
  const link = el("a", { className: "button", title: `Save the data of “${panel.title}” as CSV` }, "CSV");
  link.addEventListener("click", () => (link.href = curvesAddress("api/curves.csv", panel.kind.key)));
  link.href = "api/curves.csv";
  panel.tools.append(link);
}

const planeCsv = el("a", { className: "button", title: "Save the data of “Return against cost” as CSV", href: "api/runs.csv" }, "CSV");
panels.plane.tools.append(planeCsv);

const tables = {
  groups: new Table(byId("grouptable"), groupColumns(), { key: "label", down: false }, () => {}),
  /** @type {Table | null} */ runs: null,
};

// ----------------------------------------------------------------------------------------------- what is asked for

/** ETags and addresses of the last answers. @type {Map<string, {address: string, etag: string}>} */
const known = new Map();

/** Returns the answer as JSON; null if it is the same as before. @param {string} name @param {string} address */
async function ask(name, address) {
  const before = known.get(name);
  /** @type {Record<string, string>} */
  const headers = before && before.address === address ? { "If-None-Match": before.etag } : {};
  const response = await fetch(address, { headers, cache: "no-store" });
  if (response.status === 304) return null;
  if (!response.ok) throw new Error((await response.text()) || `The server answered ${response.status}.`);
  const etag = response.headers.get("etag");
  if (etag) known.set(name, { address, etag });
  return response.json();
}

function task() {
  return data.overview?.tasks.find((/** @type {any} */ t) => t.task === view.task) ?? data.overview?.tasks[0] ?? null;
}

/** Name of the shown task: that of the view, or another one if the filter hides it. */
function taskName() {
  return task()?.task ?? view.task;
}

/** Groups of the shown task, with their colours. */
function groups() {
  const all = task()?.groups ?? [];
  const ours = view.groups?.length === 0 || all.some((/** @type {any} */ g) => view.groups?.includes(g.id));
  const chosen = view.groups && ours ? new Set(view.groups) : null; // a choice in another task says nothing here
  return all.map((/** @type {any} */ g, /** @type {number} */ place) => ({
    ...g, place, ...look(place), colours: { light: look(place, "light").colour, dark: look(place, "dark").colour },
    shown: chosen ? chosen.has(g.id) : place < MOST_SHOWN, inPlane: chosen ? chosen.has(g.id) : true,
  }));
}

/** @param {string} path @param {string} quantities */
function curvesAddress(path, quantities) {
  const p = new URLSearchParams({ task: taskName(), x: view.x, band: view.band, smooth: view.smooth, seeds: String(view.seeds), y: quantities });
  if (view.q) p.set("q", view.q);
  const shown = groups().filter((/** @type {any} */ g) => g.shown).map((/** @type {any} */ g) => g.id);
  p.set("groups", shown.length > 0 ? shown.join(",") : "-");
  return `${path}?${p}`;
}

let busy = false;
let again = false;

/** Asks for what is new and shows it. */
async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const p = new URLSearchParams({ since: String(data.version) });
    const q = view.q;
    if (q) p.set("q", q);
    const overview = await ask("overview", `api/overview?${p}`);
    if (q !== view.q) known.delete("overview"); // the filter has changed since: the next round asks for everything
    else if (overview) {
      if (overview.version < data.version) data.runs.clear(); // the server was started anew
      for (const id of overview.gone) data.runs.delete(id);
      for (const run of overview.runs) data.runs.set(run.id, run);
      data.overview = overview;
      data.version = overview.version;
      if (overview.tasks.length > 0 && !overview.tasks.some((/** @type {any} */ t) => t.task === view.task)) {
        if (!view.q) view.task = overview.tasks[0].task;
      }
      showOverview();
    }
    if (task()) {
      const curves = await ask("curves", curvesAddress("api/curves", "ret,cost,excess"));
      if (curves) {
        data.curves = curves;
        showCurves();
      }
      if (byId("penalty").open) {
        const keys = panels.penalty.map((panel) => panel.kind.key).join(",");
        const penalty = await ask("penalty", curvesAddress("api/curves", keys));
        if (penalty) {
          data.penalty = penalty;
          showPenalty();
        }
      }
      if (byId("settings").open) {
        const settings = await ask("settings", `api/settings?${new URLSearchParams({ task: taskName(), q: view.q })}`);
        if (settings) showSettings(settings);
      }
    }
    byId("banner").hidden = true;
    document.documentElement.dataset.ready = String(data.version);
  } catch (error) {
    byId("banner").textContent = error instanceof TypeError ? "The dashboard does not answer. Is `epo dash` still running? The page tries again." : String(error instanceof Error ? error.message : error);
    byId("banner").hidden = false;
    byId("live").dataset.state = "lost";
  } finally {
    busy = false;
    if (again) {
      again = false;
      queueMicrotask(refresh);
    }
  }
}

/** Forgets what was asked with the old filter. */
function forget() {
  data.version = 0;
  data.runs.clear();
  known.clear();
}

/** Forgets the curves, which are of another task. Without its ETag, the same answer is sent again. */
function forgetCurves() {
  [data.curves, data.penalty] = [null, null];
  known.delete("curves");
  known.delete("penalty");
}

// ---------------------------------------------------------------------------------------------------- what is shown

function showOverview() {
  const o = data.overview;
  byId("folders").textContent = o.folders.join(", ");
  byId("folders").title = o.folders.join("\n");
  const words = ["training", "done", "stopped", "dead", "broken"].filter((s) => o.states[s]).map((s) => `${o.states[s]} ${s}`);
  const live = byId("live");
  const text = o.loading > 0 ? `reading ${count(o.loading, "run")} …` : words.join(" · ") || "no runs";
  if (live.textContent !== text) live.textContent = text;
  live.dataset.state = o.states.training ? "training" : "idle";
  document.title = o.states.training ? `▶ ${o.states.training} · epo dash` : "epo dash";

  const select = byId("task");
  const names = o.tasks.map((/** @type {any} */ t) => t.task);
  if (String([...select.options].map((option) => option.value)) !== String(names)) {
    select.replaceChildren(...names.map((/** @type {string} */ name) => el("option", { value: name }, name)));
  }
  select.value = task()?.task ?? "";

  const none = o.total === 0;
  for (const id of ["curves", "safety", "penalty", "settings"]) byId(id).hidden = none;
  byId("empty").hidden = !none;
  if (none) showEmpty();
  showGroups();
  showRuns();
  showPlane();

  const sweeps = o.sweeps.map((/** @type {any} */ s) => showSweep(s));
  byId("sweeps").replaceChildren(...(sweeps.length > 0 ? [el("h2", {}, "Sweeps"), ...sweeps] : []));
  const notes = byId("notes");
  notes.hidden = o.notes.length === 0;
  notes.replaceChildren(el("h2", {}, "Notes"), el("ul", {}, ...o.notes.map((/** @type {string} */ n) => el("li", {}, n))));
}

/** The progress of a sweep, and what it plans. @param {any} s */
function showSweep(s) {
  const begun = s.done + s.open + s.failed;
  const planned = Math.max(s.planned ?? begun, begun);
  const parts = [s.planned === null ? `${s.done} done` : `${s.done} of ${planned} done`, `${s.open} begun`];
  if (s.failed > 0) parts.push(`${s.failed} failed`);
  if (planned > begun) parts.push(`${planned - begun} to come`);
  const tasks = [...new Set(s.groups.map((/** @type {any} */ g) => g.task))];
  const plan = tasks.slice(0, MOST_TASKS).map((name) => {
    const groups = s.groups.filter((/** @type {any} */ g) => g.task === name);
    return `${name}: ${groups.map((/** @type {any} */ g) => `${g.label} ${g.runs}`).join(", ")}`;
  });
  if (tasks.length > MOST_TASKS) plan.push(`and ${count(tasks.length - MOST_TASKS, "more task")}`);
  return el("div", {}, el("b", {}, s.name), ` ${parts.join(", ")} `,
    el("progress", { max: planned, value: s.done, "aria-label": `share of the ${s.planned === null ? "begun" : "planned"} runs that are done` }),
    plan.length > 0 ? el("p", { className: "hint" }, `Planned runs. ${plan.join("; ")}.`) : null);
}

function showEmpty() {
  const o = data.overview;
  const filtered = o.all > 0;
  byId("empty").replaceChildren(
    el("h2", {}, filtered ? "No run matches the filter" : o.loading > 0 ? "Reading the runs …" : "There are no runs yet"),
    filtered ? el("p", {}, `${count(o.all, "run")} are hidden by the filter “${view.q}”.`) : el("p", {}, `No run folder was found in ${o.folders.join(", ")}. Start a run, and its curves appear here by themselves:`),
    ...(filtered ? [] : [el("pre", {}, "epo train SafetyPointGoal1-v0 --steps 1e6"), el("p", { className: "hint" }, "Runs of another folder: epo dash FOLDER")]),
  );
}

function showGroups() {
  const list = groups();
  replace(byId("groups"), list.map((/** @type {any} */ g) => {
    const box = el("input", { type: "checkbox", "data-group": g.id, onchange: () => choose(g.id, box.checked) });
    const info = g.training > 0 ? `n=${g.n}, ${g.training} live` : `n=${g.n}`;
    return el("li", { "data-key": g.id }, el("label", { title: g.variant ?? g.label }, box, swatch(g), el("span", { className: "name" }, g.label), el("small", {}, info)));
  }));
  const shown = new Set(list.filter((/** @type {any} */ g) => g.shown).map((/** @type {any} */ g) => g.id));
  for (const box of byId("groups").querySelectorAll("input")) box.checked = shown.has(box.dataset.group);
  tables.groups.show(list);
  byId("grouphint").textContent = "Means over the last 10 % of each run's steps, then over the runs";
}

/** @param {string} id @param {boolean} on */
function choose(id, on) {
  view.groups = groups().filter((/** @type {any} */ g) => (g.id === id ? on : g.shown)).map((/** @type {any} */ g) => g.id);
  changed();
}

function shownRuns() {
  const name = task()?.task;
  const labels = new Map(groups().map((/** @type {any} */ g) => [g.id, g]));
  return [...data.runs.values()].filter((r) => r.task === name || r.task === null).map((r) => ({ ...r, label: labels.get(r.group)?.label ?? "" }));
}

function showRuns() {
  tables.runs ??= new Table(byId("runtable"), runColumns(openRun), { key: view.sort, down: view.down }, () => {
    if (tables.runs) [view.sort, view.down] = [tables.runs.sort.key, tables.runs.sort.down];
    writeAddress();
  });
  const runs = shownRuns();
  tables.runs.show(runs);
  byId("runhint").textContent = `${count(runs.length, "run")} of this task; ${data.overview.total} in all`;
  byId("runscsv").href = planeCsv.href = `api/runs.csv?${new URLSearchParams({ task: taskName(), q: view.q })}`;
}

function showPlane() {
  const by = new Map();
  for (const run of shownRuns()) {
    if (run.ret !== null && run.cost !== null) by.set(run.group, [...(by.get(run.group) ?? []), run]);
  }
  const all = groups().filter((/** @type {any} */ g) => by.has(g.id));
  panels.plane.show(all.filter((/** @type {any} */ g) => g.inPlane).map((/** @type {any} */ group) => ({ group, runs: by.get(group.id) })), all.length);
}

/** Joins groups with their curves. @param {any} answer */
function join(answer) {
  const found = new Map((answer?.groups ?? []).map((/** @type {any} */ g) => [g.id, g.curves]));
  return groups().filter((/** @type {any} */ g) => g.shown && found.has(g.id)).map((/** @type {any} */ g) => ({ ...g, curves: found.get(g.id) }));
}

let restored = false;

function showCurves() {
  const shown = join(data.curves);
  const all = groups().length;
  for (const panel of [...panels.main, panels.excess]) panel.show(shown, view.x, view.band, all);
  panels.main[0].hint.textContent = view.smooth === "1" ? "" : `moving average of ${view.smooth} epochs; the thin line is not smoothed`;
  if (!restored && shown.length > 0) {
    restored = true;
    panels.main[0].zoom(view.zoom);
    byId("unzoom").hidden = view.zoom === null;
  }
}

function showPenalty() {
  const shown = join(data.penalty);
  for (const panel of panels.penalty) {
    panel.card.hidden = !shown.some((/** @type {any} */ g) => g.curves[panel.kind.key]);
    panel.show(shown, view.x, view.band, groups().length);
    if (view.zoom && !panel.zoomedOnce) {
      panel.zoomedOnce = true;
      panel.zoom(view.zoom);
    }
  }
}

/** @param {any} answer */
function showSettings(answer) {
  const rows = answer.settings.map((/** @type {any} */ s) => el("tr", {}, el("td", {}, s.key), el("td", { className: "long" }, s.values.map((/** @type {any} */ v) => `${v.value} (${v.groups.join("; ")}: ${count(v.runs, "run")})`).join(", "))));
  const table = el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "Setting"), el("th", {}, "Values"))), el("tbody", {}, ...rows));
  byId("settingstable").replaceChildren(rows.length > 0 ? table : el("p", { className: "more hint" }, "All shown runs of this task have the same settings."));
}

// --------------------------------------------------------------------------------------------------- the dialogues

/** @param {string} title @param {...(Node | string)} content */
function openPanel(title, ...content) {
  byId("paneltitle").textContent = title;
  byId("panelbody").replaceChildren(...content);
  if (!byId("panel").open) byId("panel").showModal();
}

/** Names of the sources of a replay's actions. @type {Record<string, string>} */
const ACTIONS = { recorded: "recorded policy", checkpoint: "checkpoint", policy: "same seed" };

/** Lists the episodes that ended in an epoch, or in the next one in which any did: an episode may be longer than an epoch. @param {{group?: string, run?: string, title: string}} whose @param {number} x */
async function openEpisodes(whose, x) {
  const p = new URLSearchParams(whose.run ? { run: whose.run } : { group: whose.group ?? "", q: view.q });
  const ask = async (/** @type {number} */ at) => {
    p.set(view.x === "time" ? "hours" : "steps", String(at));
    return await (await fetch(`api/episodes?${p}`)).json();
  };
  const named = (/** @type {number[]} */ e) => (e[0] === e[1] ? `epoch ${e[0]}` : `epochs ${e[0]} to ${e[1]}`);
  try {
    const first = await ask(x);
    let a = first;
    for (let later = 1; a.total === 0 && later <= 8; later++) a = await ask((x * (first.epochs[1] + 1 + later)) / (first.epochs[1] + 1));
    if (a.total === 0) a = first;
    const epochs = named(a.epochs);
    const none = a === first ? "" : `No episode ended in ${named(first.epochs)}; these are the next that did. `;
    const row = (/** @type {any} */ e) => {
      const limit = data.runs.get(e.run)?.limit ?? null;
      const replay = a.replays ? el("a", { href: `replay?${new URLSearchParams({ run: e.run, episode: String(e.episode.row) })}`, target: "_blank", rel: "noopener" }, "replay") : "–";
      const className = limit === null ? "n" : e.episode.cost <= limit ? "n good" : "n bad";
      return el("tr", {}, el("td", {}, replay), el("td", {}, ACTIONS[e.actions]), el("td", { className }, String(Number(e.episode.cost.toPrecision(6)))), el("td", { className: "n" }, number(e.episode.return)), el("td", { className: "n" }, String(e.episode.length)), el("td", { className: "n" }, String(e.seed)), el("td", { className: "n" }, String(e.episode.env)), el("td", { className: "n" }, steps(e.episode.step)), el("td", { className: "n" }, String(e.episode.row)));
    };
    const heads = ["Cost", "Return", "Length", "Run seed", "Environment", "Ended at", "Row"].map((h) => el("th", { className: "n" }, h));
    openPanel(
      `${whose.title}: episodes of ${epochs}`,
      el("p", { className: "hint" }, `${none}${count(a.total, "episode")} of ${count(a.runs, "run")}, the costliest first.${a.total > a.episodes.length ? ` The first ${a.episodes.length} are listed.` : ""}${a.replays ? "" : " This build makes no replays."}`),
      ...(a.replays ? [el("p", { className: "hint" }, "The column Actions says what a replay shows. ", el("b", {}, "recorded policy"), ": exactly the episode of training, computed again with the policies that the run recorded. ", el("b", {}, "checkpoint"), ": exactly the episode of training, computed again from a checkpoint. ", el("b", {}, "same seed"), ": the policy of the newest checkpoint plays the same layout. ", el("code", {}, "epo replay RUN --training ROW --retrain"), " repeats such an episode exactly.")] : []),
      ...a.problems.map((/** @type {string} */ problem) => el("p", { className: "warn" }, problem)),
      el("table", { id: "episodes" }, el("thead", {}, el("tr", {}, el("th", {}, "Replay"), el("th", {}, "Actions"), ...heads)), el("tbody", {}, ...a.episodes.map(row))),
    );
  } catch {
    openPanel(whose.title, el("p", {}, "The episodes cannot be read: the run may have been deleted."));
  }
}

/** Shows everything about one run. @param {string} id */
async function openRun(id) {
  const response = await fetch(`api/run?${new URLSearchParams({ run: id })}`);
  view.run = id;
  writeAddress();
  if (!response.ok) return openPanel("Run", el("p", {}, await response.text()));
  const r = await response.json();
  const facts = [
    ["State", r.state], ["Folder", r.folder], ["Steps", r.planned ? `${steps(r.steps)} of ${steps(r.planned)}` : steps(r.steps)], ["Epochs", r.epochs], ["Return", number(r.ret)], ["Cost", `${number(r.cost)} (limit ${number(r.limit)})`],
    ["Epochs above the limit", percent(r.above)], ["Hash", r.hash ?? "–"], ["Remark", r.remark],
  ].filter(([, v]) => v !== "");
  const evaluations = (r.evaluations ?? []).map((/** @type {any} */ e) => el("tr", {}, el("td", {}, String(e.policy ?? "")), el("td", { className: "n" }, String(e.episodes ?? "")), el("td", { className: "n" }, number(e.return?.mean)), el("td", { className: "n" }, number(e.cost?.mean)), el("td", { className: "n" }, percent(e.cost?.p_feasible ?? null))));
  const head = (/** @type {string[]} */ ...names) => el("thead", {}, el("tr", {}, ...names.map((n) => el("th", {}, n))));
  const rows = (/** @type {any[]} */ list) => el("tbody", {}, ...list.map(([k, v]) => el("tr", {}, el("td", {}, String(k)), el("td", { className: "long" }, String(v)))));
  openPanel(
    `${r.label || r.name}, seed ${r.seed}`,
    el("table", {}, rows(facts)),
    el("p", {}, el("button", { type: "button", onclick: () => openEpisodes({ run: id, title: `${r.label}, seed ${r.seed}` }, view.x === "time" ? (r.seconds ?? 0) / 3600 : r.steps) }, "Episodes of the last epoch"), " ", r.replays ? el("a", { className: "button", href: `replay?${new URLSearchParams({ run: id })}`, target: "_blank", rel: "noopener" }, "Replay the costliest episodes; map of costs") : ""),
    ...(evaluations.length > 0 ? [el("h3", {}, "Evaluations"), el("table", {}, head("Policy", "Episodes", "Return", "Cost", "Within the limit"), el("tbody", {}, ...evaluations))] : []),
    el("h3", {}, "Settings"),
    el("table", {}, rows(r.settings)),
  );
}

function openHelp() {
  const keys = [["/", "go to the filter"], ["t", "next task"], ["x", "steps or hours on the horizontal axis"], ["b", "next kind of band"], ["s", "single seeds on or off"], ["p", "penalty at work, open or closed"], ["0", "show the whole range"], ["d", "light or dark"], ["← →", "move the cursor in a focused chart; Enter lists the episodes"], ["Esc", "close"]];
  openPanel(
    "Help",
    el("table", {}, el("tbody", {}, ...keys.map(([k, v]) => el("tr", {}, el("td", {}, el("kbd", {}, k)), el("td", { className: "long" }, v))))),
    el("h3", {}, "Filter"),
    el("p", {}, "All words must match the folder, task, algorithm or state of a run. key=value matches a setting, such as seed=0 or state=training. A word after - must not match."),
    el("h3", {}, "Charts"),
    el("p", {}, "A line is the mean over the runs of a group, which differ only in the seed. The dashed red line is the cost limit. Hollow points exceed their limit. The address of the page restores the view."),
    el("p", {}, el("a", { href: "licences.txt", target: "_blank" }, "Licences of the libraries of this page")),
  );
}

// ------------------------------------------------------------------------------------------------- what people do

/** Applies a change of the view. */
function changed() {
  view.task = byId("task").value || view.task;
  showControls();
  writeAddress();
  if (data.overview) showOverview();
  refresh();
}

function showControls() {
  byId("x").value = view.x;
  byId("band").value = view.band;
  byId("smooth").value = view.smooth;
  byId("seeds").checked = view.seeds;
  byId("filter").value = view.q;
  byId("penalty").open = view.penalty;
  byId("settings").open = view.settings;
}

function applyTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = view.theme || (dark ? "dark" : "light");
}

function toggleTheme() {
  view.theme = theme() === "dark" ? "light" : "dark";
  applyTheme();
  writeAddress();
  redraw();
}

function redraw() {
  if (!data.overview) return;
  showOverview();
  if (data.curves) showCurves();
  if (data.penalty && byId("penalty").open) showPenalty();
}

function unzoom() {
  view.zoom = null;
  for (const panel of [...panels.main, panels.excess, ...panels.penalty]) panel.zoom(null);
  byId("unzoom").hidden = true;
  writeAddress();
}

function clearZoom() {
  if (view.zoom) unzoom();
}

/** @param {number} by */
function nextTask(by) {
  const select = byId("task");
  if (select.options.length < 2) return;
  select.selectedIndex = (select.selectedIndex + by + select.options.length) % select.options.length;
  select.dispatchEvent(new Event("change"));
}

byId("task").addEventListener("change", () => {
  clearZoom();
  view.groups = null;
  view.task = byId("task").value;
  forgetCurves();
  showCurves();
  changed();
});
for (const name of /** @type {const} */ (["x", "band", "smooth"])) {
  byId(name).addEventListener("change", () => {
    if (name === "x") clearZoom();
    view[name] = byId(name).value;
    changed();
  });
}
byId("seeds").addEventListener("change", () => {
  view.seeds = byId("seeds").checked;
  changed();
});
let typing = 0;
byId("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    view.q = byId("filter").value.trim();
    writeAddress();
    forget();
    refresh();
  }, 200);
});
for (const name of /** @type {const} */ (["penalty", "settings"])) {
  byId(name).addEventListener("toggle", () => {
    if (view[name] === byId(name).open) return;
    view[name] = byId(name).open;
    writeAddress();
    if (name === "penalty" && data.penalty) showPenalty();
    refresh();
  });
}
byId("all").addEventListener("click", () => {
  view.groups = groups().map((/** @type {any} */ g) => g.id);
  changed();
});
byId("none").addEventListener("click", () => {
  view.groups = [];
  changed();
});
byId("unzoom").addEventListener("click", unzoom);
byId("theme").addEventListener("click", toggleTheme);
byId("help").addEventListener("click", openHelp);
byId("close").addEventListener("click", () => byId("panel").close());
byId("panel").addEventListener("close", () => {
  view.run = "";
  writeAddress();
});
byId("panel").addEventListener("click", (/** @type {MouseEvent} */ event) => event.target === byId("panel") && byId("panel").close());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  applyTheme();
  redraw();
});
addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) || byId("panel").open) return;
  const bands = ["std", "ci95", "range"];
  /** @type {Record<string, () => void>} */
  const keys = {
    "/": () => byId("filter").focus(),
    t: () => nextTask(1),
    T: () => nextTask(-1),
    x: () => { clearZoom(); view.x = view.x === "steps" ? "time" : "steps"; changed(); },
    b: () => { view.band = bands[(bands.indexOf(view.band) + 1) % bands.length]; changed(); },
    s: () => { view.seeds = !view.seeds; changed(); },
    p: () => { byId("penalty").open = !byId("penalty").open; },
    0: unzoom,
    d: toggleTheme,
    "?": openHelp,
  };
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});
addEventListener("hashchange", () => {
  const [task, q] = [view.task, view.q];
  readAddress();
  if (view.q !== q || view.task !== task) {
    forget();
    forgetCurves();
  }
  if (tables.runs) tables.runs.sort = { key: view.sort, down: view.down };
  applyTheme();
  showControls();
  restoreZoom();
  redraw(); // what is known, with the new zoom, groups and colours
  restoreZoom();
  refresh();
  if (view.run) openRun(view.run);
  else if (byId("panel").open) byId("panel").close();
});

/** Lets the next drawing of the curves apply the zoom of the view. */
function restoreZoom() {
  restored = false;
  for (const panel of panels.penalty) panel.zoomedOnce = false;
}

readAddress();
if (location.search) writeAddress(); // the token leaves the address at once
applyTheme();
if (matchMedia("(max-width: 820px)").matches) byId("sidebox").open = false;
showControls();
await refresh();
if (view.run) openRun(view.run);
setInterval(() => document.hidden || refresh(), TICK);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
