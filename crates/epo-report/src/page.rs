//! The page: figures, tables and what they do not show, in one file that needs no network.

use super::plot::canvas::escape;
use super::{Band, Drawn, Group, Options, Table};
use crate::history::Note;

const STYLE: &str = ":root{color-scheme:light}\
body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;\
color:#222;background:#fff}h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #ddd}\
figure{margin:1.5rem 0}figure svg{width:100%;max-width:860px;height:auto}figure.all svg{max-width:none}figcaption{color:#555;font-size:.9rem}\
table{border-collapse:collapse;font-size:.85rem}td,th{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #ddd}\
td:first-child{white-space:nowrap}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.wide{overflow-x:auto}.caveat{background:#fff6e5;border-left:4px solid #e69f00;padding:.5rem 1rem}\
.note{color:#555;font-size:.9rem}.note code,td code{overflow-wrap:anywhere}code{font-size:.85em}\
@page{size:landscape;margin:12mm}@media print{body{margin:0;max-width:none;font-size:11pt}h2,h3{break-after:avoid}\
figure,tr,.caveat{break-inside:avoid}figure svg{max-height:165mm}.wide{overflow:visible}table{font-size:8pt}\
td,th{padding:.15rem .3rem}}";

/// Everything the page shows.
pub(super) struct Page<'a> {
    pub options: &'a Options,
    pub groups: &'a [Group],
    pub figures: &'a [Drawn],
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
        out += "<h2>Learning curves</h2>\n";
        out += &format!("<p>{}</p>\n", self.how_to_read());
        for figure in self.figures {
            let class = if figure.name == super::OVERVIEW { " class=\"all\"" } else { "" };
            out += &format!(
                "<figure{class}>{}<figcaption>{}</figcaption></figure>\n",
                figure.svg,
                escape(&figure.title)
            );
        }
        out += "<h2>Tables</h2>\n";
        out += &self.tables.iter().map(Table::to_html).collect::<String>();
        if !self.notes.is_empty() {
            out += "<h2>Notes on single folders</h2>\n<div class=\"note\">";
            out += &list(self.notes.iter().map(|n| {
                format!("{} <code>{}</code>", escape(&n.message), escape(&n.path.display().to_string()))
            }));
            out += "</div>\n";
        }
        out += "<h2>Runs</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>Task</th><th>Algorithm</th><th class=\"n\">Seed</th>\
                <th class=\"n\">Limit</th><th class=\"n\">Steps</th><th>Folder</th></tr></thead>\n";
        for group in self.groups {
            for run in &group.runs {
                out += &format!(
                    "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                     <td><code>{}</code></td></tr>\n",
                    escape(&group.task),
                    escape(&group.label),
                    run.seed,
                    run.limit,
                    run.points.last().map_or(0.0, |p| p.steps),
                    escape(&run.path.display().to_string())
                );
            }
        }
        out += &format!(
            "</table></div>\n<p class=\"note\">Made by epo {}.</p>\n</body></html>\n",
            env!("CARGO_PKG_VERSION")
        );
        out
    }

    fn how_to_read(&self) -> String {
        let band = match self.options.band {
            Band::Std => "plus and minus one standard deviation over the seeds",
            Band::Ci95 => "the 95 % interval of the mean over the seeds (Student’s t)",
        };
        let smoothing = match (self.options.smooth_return, self.options.smooth_cost) {
            (0 | 1, 0 | 1) => "Nothing is smoothed".to_owned(),
            (r, 0 | 1) => format!("Returns are a moving mean over {r} epochs, costs are not smoothed"),
            (r, c) => format!(
                "Returns are a moving mean over {r} epochs, costs over {c}: peaks of the cost are hidden"
            ),
        };
        format!(
            "Line: mean over the seeds. Band: {band}. Dashed: the limit. {smoothing}, beyond the mean over the last \
             finished episodes that a run records."
        )
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("<ul>{}</ul>", items.map(|i| format!("<li>{i}</li>")).collect::<String>())
}
