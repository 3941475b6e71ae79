//! The HTML page: figures, tables and caveats in one file that needs no network.

use std::fmt::Write as _;

use crate::evaluation::{Policy, of_policy};
use crate::figures::{Drawn, Figures};
use crate::files::printable;
use crate::groups::Group;
use crate::history::{Note, Run, VERSION_KEY};
use crate::plot::escape;
use crate::table::{Table, number};
use crate::{Achieved, Options};

/// Style sheet. Dark mode replaces colours that are hard to see on black; the files in `figures/` do not change.
const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--soft:#555;--line:#ddd;--paper:#fff;--warn:#fff6e5}\
body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;\
color:var(--ink);background:var(--paper)}h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}\
figure{margin:1.5rem 0}figure svg{width:100%;max-width:860px;height:auto}figure.narrow svg{max-width:430px}\
figcaption{color:var(--soft);font-size:.9rem}\
table{border-collapse:collapse;font-size:.85rem}td,th{padding:.25rem .6rem;text-align:left;border-bottom:1px solid var(--line)}\
td:first-child{white-space:nowrap}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.wide{overflow-x:auto}.caveat{background:var(--warn);border-left:4px solid #e69f00;padding:.5rem 1rem}\
.note{color:var(--soft);font-size:.9rem}.note code,td code{overflow-wrap:anywhere}code{font-size:.85em}\
@media (prefers-color-scheme:dark){:root{--ink:#ddd;--soft:#aaa;--line:#3a3d44;--paper:#16181d;--warn:#33290f}\
figure svg>rect{fill:#16181d}figure [fill=\"#222222\"]{fill:#ddd}figure [stroke=\"#222222\"]{stroke:#ddd}\
figure [stroke=\"#e4e4e4\"]{stroke:#2c2f36}figure [stroke=\"#555555\"]{stroke:#999}\
figure [stroke=\"#000000\"]{stroke:#fff}figure [fill=\"#000000\"]{fill:#fff}\
figure [stroke=\"#0072b2\"]{stroke:#3d7eff}figure [fill=\"#0072b2\"]{fill:#3d7eff}}\
@page{size:landscape;margin:12mm}@media print{body{margin:0;max-width:none;font-size:11pt}h2,h3{break-after:avoid}\
figure,tr,.caveat{break-inside:avoid}figure svg{max-height:165mm}.wide{overflow:visible}table{font-size:8pt}\
td,th{padding:.15rem .3rem}}";

/// Maximum number of notes that the page lists.
const MOST_NOTES: usize = 200;
/// Maximum number of runs that the page lists.
const MOST_RUNS: usize = 2000;

/// Contents of the page.
pub(super) struct Page<'a> {
    pub options: &'a Options,
    pub groups: &'a [Group],
    pub figures: &'a Figures,
    pub tables: &'a [Table],
    pub caveats: &'a [String],
    pub notes: &'a [Note],
}

impl Page<'_> {
    pub(super) fn render(&self) -> String {
        let title = escape(&self.options.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style></head>\n\
             <body>\n<h1>{title}</h1>\n"
        );
        if !self.caveats.is_empty() {
            out += "<div class=\"caveat\"><strong>What these runs do not show</strong>";
            out += &list(self.caveats.iter().map(|c| escape(c)));
            out += "</div>\n";
        }
        self.write_figures(&mut out);
        out += "<h2>Tables</h2>\n";
        out.extend(self.tables.iter().map(Table::to_html));
        self.write_notes(&mut out);
        self.write_runs(&mut out);
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(out, "<p class=\"note\">Made by epo {version}.</p>\n</body></html>"); // a string: cannot fail
        out
    }

    fn write_figures(&self, out: &mut String) {
        let figure = |drawn: &Drawn| {
            let class = if drawn.name.starts_with("plane/") { " class=\"narrow\"" } else { "" };
            let (title, caption) = (escape(&drawn.title), escape(&drawn.caption));
            format!("<figure{class}>{}<figcaption>{title}. {caption}</figcaption></figure>\n", drawn.svg)
        };
        *out += "<h2>Figures</h2>\n";
        *out += &format!("<p>{}</p>\n", escape(&self.how_to_read()));
        for drawn in self.figures.tasks.iter().flatten() {
            *out += &figure(drawn);
        }
    }

    fn how_to_read(&self) -> String {
        let smoothing = match (self.options.smooth_return, self.options.smooth_cost) {
            (1, 1) => "Nothing is smoothed".to_owned(),
            (r, 1) => format!("Returns are a moving mean over {r} epochs, costs are not smoothed"),
            (1, c) => format!(
                "Costs are a moving mean over {c} epochs, which hides their peaks; returns are not smoothed"
            ),
            (r, c) => {
                format!("Returns are a moving mean over {r} epochs, costs over {c}, which hides their peaks")
            }
        };
        let mut text = format!(
            "{smoothing}, beyond the mean over the last finished episodes that a run records. Dashed: the limit. Names \
             appear while the pointer is on a line or a mark."
        );
        if self.figures.together.is_some() {
            text += " figures/overview.svg and .png show all tasks in one figure.";
        }
        for left_out in &self.figures.left_out {
            text += &format!(" {left_out}");
        }
        text
    }

    fn write_notes(&self, out: &mut String) {
        if self.notes.is_empty() {
            return;
        }
        *out += "<h2>Notes on single folders</h2>\n<div class=\"note\">";
        *out += &list(self.notes.iter().take(MOST_NOTES).map(|n| {
            let path = n.path.to_string_lossy();
            format!("{} <code>{}</code>", escape(&n.message), escape(&printable(&path)))
        }));
        let more = self.notes.len().saturating_sub(MOST_NOTES);
        if more > 0 {
            *out += &format!("<p>{more} more notes are in the output of <code>epo report --json</code>.</p>");
        }
        *out += "</div>\n";
    }

    fn write_runs(&self, out: &mut String) {
        *out += "<h2>Runs</h2>\n<p>Return and cost at the end of training, and of the evaluations of the final policy. \
                 Hash: that of the newest checkpoint, first 12 digits. Begun: the date in the name of the folder; last \
                 written: that of progress.csv; both in UTC.</p>\n<div class=\"wide\"><table>\n<thead><tr><th>Task</th>\
                 <th>Algorithm</th><th class=\"n\">Seed</th><th class=\"n\">Limit</th><th class=\"n\">Steps</th>\
                 <th class=\"n\">Return, training</th><th class=\"n\">Cost, training</th>";
        let runs = || self.groups.iter().flat_map(|g| g.runs.iter().map(move |run| (g, run)));
        let present = |p: &Policy| runs().any(|(_, run)| of_policy(&run.evaluations, *p).is_some());
        let policies: Vec<Policy> = Policy::ALL.into_iter().filter(present).collect();
        for policy in &policies {
            let name = policy.name();
            *out += &format!("<th class=\"n\">Return, {name}</th><th class=\"n\">Cost, {name}</th>");
        }
        *out +=
            "<th>Begun</th><th>Last written</th><th>Version</th><th>Hash</th><th>Folder</th></tr></thead>\n";
        for (group, run) in runs().take(MOST_RUNS) {
            *out += &self.run_row(group, run, &policies);
        }
        *out += "</table></div>\n";
        let more = runs().count().saturating_sub(MOST_RUNS);
        if more > 0 {
            *out += &format!("<p class=\"note\">{more} more runs are not listed.</p>\n");
        }
    }

    fn run_row(&self, group: &Group, run: &Run, policies: &[Policy]) -> String {
        let cell = |text: &str| format!("<td>{}</td>", escape(text));
        let figure =
            |value: Option<f64>| format!("<td class=\"n\">{}</td>", value.map_or("–".into(), number));
        let count = |value: f64| format!("<td class=\"n\">{value}</td>");
        let mut row = format!("<tr>{}{}", cell(&group.task), cell(&group.label));
        row += &format!("<td class=\"n\">{}</td>{}{}", run.seed, count(run.limit), count(run.steps()));
        let end = Achieved::of(run, self.options.final_share);
        row += &(figure(Some(end.ret)) + &figure(Some(end.cost)));
        for policy in policies {
            let played = of_policy(&run.evaluations, *policy);
            row += &(figure(played.map(|e| e.ret)) + &figure(played.map(|e| e.cost)));
        }
        let hash: String = run.hash.iter().flat_map(|hash| hash.chars().take(12)).collect();
        let version = run.config.get(VERSION_KEY).map_or("", String::as_str);
        for text in [run.begun.as_deref().unwrap_or("–"), run.written.as_deref().unwrap_or("–"), version]
        {
            row += &cell(text);
        }
        let folder = run.path.to_string_lossy();
        row + &format!(
            "<td><code>{}</code></td><td><code>{}</code></td></tr>\n",
            escape(&hash),
            escape(&printable(&folder))
        )
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("<ul>{}</ul>", items.map(|i| format!("<li>{i}</li>")).collect::<String>())
}
