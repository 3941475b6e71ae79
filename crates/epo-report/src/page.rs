//! The HTML page: figures, tables and caveats in one file that needs no network.
//!
//! The page has two scripts: `zoom.js` enlarges a figure, and `hover.js` shows the values of curves at the pointer. Its
//! Content-Security-Policy allows these scripts by their hashes and refuses everything else. Without scripts the page
//! shows the same figures and tables.

use crate::evaluation::{EvaluatedPolicy, of_policy};
use crate::figures::{DrawnFigure, Figures};
use crate::files::printable;
use crate::groups::Group;
use crate::history::{Note, Run, VERSION_KEY};
use crate::plot::{escape, without_style};
use crate::table::{Table, number};
use crate::{Options, RunResults};

/// Style sheet. Dark mode replaces colours that are hard to see on black; the files in `figures/` do not change.
const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--soft:#555;--line:#ddd;--paper:#fff;--warn:#fff6e5}\
body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;\
color:var(--ink);background:var(--paper)}h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}\
figure{margin:1.5rem 0}figure svg{width:100%;max-width:860px;height:auto}figure.narrow svg{max-width:430px}\
figcaption{color:var(--soft);font-size:.9rem}body>figure svg{cursor:zoom-in}button{font:inherit;font-size:.85rem}\
dialog{width:96vw;height:94vh;max-width:none;max-height:none;box-sizing:border-box;padding:.5rem;\
color:var(--ink);background:var(--paper);border:1px solid var(--line)}dialog figure{margin:.5rem 0 0;\
height:calc(100% - 2.5rem);cursor:grab;touch-action:none}dialog figure svg{width:100%;height:100%;max-width:none}dialog svg *{vector-effect:non-scaling-stroke}\
#values{position:fixed;z-index:1;pointer-events:none;max-width:92vw;padding:.3rem .6rem;font-size:.8rem;\
color:var(--ink);background:var(--paper);border:1px solid var(--soft);border-radius:4px}#values td{border:0;padding:0 .3rem}\
table{border-collapse:collapse;font-size:.85rem}td,th{padding:.25rem .6rem;text-align:left;border-bottom:1px solid var(--line)}\
td:first-child{white-space:nowrap}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.wide{overflow-x:auto}.caveat{background:var(--warn);border-left:4px solid #e69f00;padding:.5rem 1rem}\
.note{color:var(--soft);font-size:.9rem}.note code,td code{overflow-wrap:anywhere}code{font-size:.85em}\
@media (prefers-color-scheme:dark){:root{--ink:#ddd;--soft:#aaa;--line:#3a3d44;--paper:#16181d;--warn:#33290f}\
figure svg>rect{fill:#16181d}figure [fill=\"#222222\"]{fill:#ddd}figure [stroke=\"#222222\"]{stroke:#ddd}\
figure [stroke=\"#e4e4e4\"]{stroke:#2c2f36}figure [stroke=\"#555555\"]{stroke:#999}\
figure [stroke=\"#000000\"]{stroke:#fff}figure [fill=\"#000000\"]{fill:#fff}\
figure [stroke=\"#0072b2\"]{stroke:#3d7eff}figure [fill=\"#0072b2\"]{fill:#3d7eff}\
#values [fill=\"#0072b2\"]{color:#3d7eff!important}#values [fill=\"#000000\"]{color:#fff!important}}\
@page{size:landscape;margin:12mm}@media print{button,#zoom-help{display:none}body{margin:0;max-width:none;font-size:11pt}h2,h3{break-after:avoid}\
figure,tr,.caveat{break-inside:avoid}figure svg{max-height:165mm}.wide{overflow:visible}table{font-size:8pt}\
td,th{padding:.15rem .3rem}}";

/// The scripts, each with its SHA-256 in Base64. A test compares them and prints the right value.
const SCRIPTS: [(&str, &str); 2] = [
    (include_str!("zoom.js"), "0QZ0h8SkCBJnxuqpaPkk1vXZC1iX5mirNk+KNk5x7VM="),
    (include_str!("hover.js"), "M7vwa7zFUiNlg+yG94BDsFT26uTdF5npzlzzErXGpzE="),
];

/// Maximum number of notes that the page lists.
const MOST_NOTES: usize = 200;
/// Explanation of the zoom. The script shows it, so that it does not appear where scripts are off.
const ZOOM_HELP: &str = "<p id=\"zoom-help\" hidden>Click a figure to enlarge it. There the wheel or the keys + and − \
zoom, dragging or the arrow keys move the view, a double click or the key 0 shows the whole figure, and Escape closes \
it.</p>\n";
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
        let mut out = head(&self.options.title);
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
        out + &foot()
    }

    fn write_figures(&self, out: &mut String) {
        let figure = |drawn: &DrawnFigure| {
            let class = if drawn.name.starts_with("plane/") { " class=\"narrow\"" } else { "" };
            let (title, caption) = (escape(&drawn.title), escape(&drawn.caption));
            let values =
                serde_json::to_string(&drawn.values).expect("numbers and texts can be written as JSON");
            let curves = match drawn.values.is_empty() {
                true => String::new(),
                false => format!(" data-curves=\"{}\"", escape(&values)),
            };
            format!(
                "<figure{class}{curves}>{}<figcaption>{title}. {caption}</figcaption></figure>\n",
                without_style(&drawn.svg)
            )
        };
        *out += "<h2>Figures</h2>\n";
        *out += &format!("<p>{}</p>\n", escape(&self.how_to_read()));
        *out += ZOOM_HELP;
        for drawn in self.figures.tasks.iter().flatten() {
            *out += &figure(drawn);
        }
    }

    fn how_to_read(&self) -> String {
        let smoothing = match (self.options.smooth_return, self.options.smooth_cost) {
            (1, 1) => "These values are not smoothed further".to_owned(),
            (r, 1) => format!("Returns are a moving mean over {r} epochs. Costs are not smoothed"),
            (1, c) => format!(
                "Costs are a moving mean over {c} epochs, which hides peaks. Returns are not smoothed"
            ),
            (r, c) => {
                format!("Returns are a moving mean over {r} epochs, costs over {c} epochs, which hides peaks")
            }
        };
        let mut text = format!(
            "A run records means over its last finished episodes. {smoothing}. The dashed line is the cost limit. \
             While the pointer is on a figure, the values of its lines at that step, or the name of a mark, appear."
        );
        if self.figures.together.is_some() {
            text += " The files figures/overview.svg and figures/overview.png show all tasks in one figure.";
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
        *out += "<h2>Runs</h2>\n<p>Return and cost are given at the end of training and for the evaluations of the final \
                 policy. The hash is that of the newest checkpoint, first 12 digits. A run began at the date in the name \
                 of its folder and was last written at the date of progress.csv. Dates are in UTC.</p>\n<div class=\"wide\"><table>\n<thead><tr><th>Task</th>\
                 <th>Algorithm</th><th class=\"n\">Seed</th><th class=\"n\">Limit</th><th class=\"n\">Steps</th>\
                 <th class=\"n\">Return, training</th><th class=\"n\">Cost, training</th>";
        let runs = || self.groups.iter().flat_map(|g| g.runs.iter().map(move |run| (g, run)));
        let present = |p: &EvaluatedPolicy| runs().any(|(_, run)| of_policy(&run.evaluations, *p).is_some());
        let policies: Vec<EvaluatedPolicy> = EvaluatedPolicy::ALL.into_iter().filter(present).collect();
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

    fn run_row(&self, group: &Group, run: &Run, policies: &[EvaluatedPolicy]) -> String {
        let cell = |text: &str| format!("<td>{}</td>", escape(text));
        let figure =
            |value: Option<f64>| format!("<td class=\"n\">{}</td>", value.map_or("–".into(), number));
        let count = |value: f64| format!("<td class=\"n\">{value}</td>");
        let mut row = format!("<tr>{}{}", cell(&group.task), cell(&group.label));
        row += &format!("<td class=\"n\">{}</td>{}{}", run.seed, count(run.limit), count(run.steps()));
        let end = RunResults::of(run, self.options.final_share);
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

/// Returns the beginning of a page, up to its heading.
pub(crate) fn head(title: &str) -> String {
    let title = escape(title);
    let hashes = SCRIPTS.map(|(_, hash)| format!("'sha256-{hash}'")).join(" ");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style></head>\n\
         <body>\n<h1>{title}</h1>\n"
    )
}

/// Returns the end of a page.
pub(crate) fn foot() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let scripts = SCRIPTS.map(|(script, _)| format!("<script>{script}</script>\n")).concat();
    format!("<p class=\"note\">Made by epo {version}.</p>\n{scripts}</body></html>\n")
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("<ul>{}</ul>", items.map(|i| format!("<li>{i}</li>")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    /// This test fails if a script changes and its hash does not: a browser would then refuse to run it.
    #[test]
    fn the_page_allows_its_scripts_by_hash() {
        for (script, hash) in SCRIPTS {
            assert_eq!(STANDARD.encode(Sha256::digest(script)), hash, "{}", script.lines().next().unwrap());
        }
    }
}
