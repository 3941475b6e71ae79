//! A table that is written as Markdown, CSV, LaTeX, HTML and JSON.
//!
//! CSV and JSON contain unrounded numbers, and one value per column. The other formats round.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::plot::escape;
use crate::stats::{self, Interval};

/// Kind of the values in a column. It determines the columns of the CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    Number,
    /// Mean and standard deviation.
    Spread,
    /// Estimate and 95 % interval.
    Interval,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    Number(f64),
    Spread(f64, Option<f64>),
    Interval(Interval),
    Missing,
}

impl Cell {
    /// Returns a cell with the mean and standard deviation of some values.
    pub(crate) fn spread(values: &[f64]) -> Self {
        if values.is_empty() {
            Self::Missing
        } else {
            Self::Spread(stats::mean(values), stats::std_dev(values))
        }
    }

    pub(crate) fn interval(value: Option<Interval>) -> Self {
        value.map_or(Self::Missing, Self::Interval)
    }

    fn text(&self, plus_minus: &str) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(v) if v.fract() == 0.0 => format!("{v:.0}"),
            Self::Number(v) => number(*v),
            Self::Spread(mean, Some(sd)) => format!("{} {plus_minus} {}", number(*mean), number(*sd)),
            Self::Spread(mean, None) => number(*mean),
            Self::Interval(i) => format!("{} [{}, {}]", number(i.point), number(i.lo), number(i.hi)),
            Self::Missing => "–".into(),
        }
    }

    /// Returns the parts of a cell, one for each name in [`keys`] of its column. A missing part is `None`.
    fn parts(&self, width: usize) -> Vec<Option<Part<'_>>> {
        let mut parts = match self {
            Self::Text(text) => vec![Some(Part::Text(text))],
            Self::Number(v) => vec![Some(Part::Number(*v))],
            Self::Spread(mean, sd) => vec![Some(Part::Number(*mean)), sd.map(Part::Number)],
            Self::Interval(i) => [i.point, i.lo, i.hi].map(|v| Some(Part::Number(v))).to_vec(),
            Self::Missing => Vec::new(),
        };
        parts.resize(width, None);
        parts
    }
}

/// Value of a CSV column or of a JSON key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part<'a> {
    Text(&'a str),
    Number(f64),
}

impl Part<'_> {
    fn csv(self) -> String {
        match self {
            Self::Text(text) => csv_text(text),
            Self::Number(v) => v.to_string(),
        }
    }

    /// Returns the JSON value; `null` for NaN and infinite numbers.
    fn json(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(v) => v.into(),
        }
    }
}

/// Returns a text as a cell of a CSV file. An apostrophe precedes a text that a spreadsheet would read as a formula.
pub fn csv_text(text: &str) -> String {
    let text = match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// Returns a text that is safe inside a Markdown table: it makes no HTML, no link and no new cell.
pub(crate) fn markdown_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '&' => out += "&amp;",
            '|' | '`' | '\\' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            _ => out.push(c),
        }
    }
    // [text](address) would be a link
    out.replace("](", "]\\(")
}

/// Returns the names of the parts of a column: `Return 95 %` becomes `return_95`, `return_95_lo`, `return_95_hi`.
fn keys((name, kind): &(String, ColumnKind)) -> Vec<String> {
    let words = name.to_lowercase();
    let words: Vec<&str> = words.split([' ', ',', '%', '(', ')']).filter(|w| !w.is_empty()).collect();
    let base = words.join("_");
    match kind {
        ColumnKind::Text | ColumnKind::Number => vec![base],
        ColumnKind::Spread => vec![format!("{base}_mean"), format!("{base}_sd")],
        ColumnKind::Interval => vec![base.clone(), format!("{base}_lo"), format!("{base}_hi")],
    }
}

/// Returns a number as text: two decimals for small numbers, none for large ones.
pub(crate) fn number(v: f64) -> String {
    let decimals = match v.abs() {
        a if a >= 1000.0 => 0,
        a if a >= 100.0 => 1,
        _ => 2,
    };
    let text = format!("{v:.decimals$}");
    if text.trim_start_matches(['-', '0', '.']).is_empty() {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// File name without extension.
    pub name: &'static str,
    pub title: String,
    /// Explanation of the table for the reader.
    pub caption: String,
    pub columns: Vec<(String, ColumnKind)>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = format!("### {}\n\n{}\n\n", self.title, self.caption);
        out += &line(self.columns.iter().map(|c| markdown_text(&c.0)).collect());
        out += &line(
            self.columns
                .iter()
                .map(|c| if c.1 == ColumnKind::Text { "---" } else { "---:" }.into())
                .collect(),
        );
        for row in &self.rows {
            out += &line(row.iter().map(|cell| markdown_text(&cell.text("±"))).collect());
        }
        out
    }

    pub(crate) fn to_csv(&self) -> String {
        let header = self.columns.iter().flat_map(keys);
        let mut out = header.collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let cells = self.parts(row).map(|(_, part)| part.map_or_else(String::new, Part::csv));
            out += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        out
    }

    /// Returns `{"name", "title", "columns", "rows"}`. Each row is an object with the CSV columns as keys.
    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Vec<Cell>| -> Map<String, Value> {
            self.parts(row).map(|(key, part)| (key, part.map_or(Value::Null, Part::json))).collect()
        };
        json!({
            "name": self.name,
            "title": self.title,
            "columns": self.columns.iter().flat_map(keys).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    /// Returns all keys of a row with their values.
    fn parts<'a>(&'a self, row: &'a [Cell]) -> impl Iterator<Item = (String, Option<Part<'a>>)> {
        self.columns.iter().map(keys).zip(row).flat_map(|(keys, cell)| {
            let parts = cell.parts(keys.len());
            keys.into_iter().zip(parts)
        })
    }

    pub(crate) fn to_latex(&self) -> String {
        let align: String =
            self.columns.iter().map(|c| if c.1 == ColumnKind::Text { 'l' } else { 'r' }).collect();
        let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
        let mut out = format!("% {}\n\\begin{{tabular}}{{{align}}}\n\\toprule\n", self.title);
        out += &line(self.columns.iter().map(|c| latex(&c.0)).collect());
        out += "\\midrule\n";
        for row in &self.rows {
            out += &line(row.iter().map(|cell| latex(&cell.text("±"))).collect());
        }
        out + "\\bottomrule\n\\end{tabular}\n"
    }

    pub(crate) fn to_html(&self) -> String {
        let mut out = format!(
            "<h3>{}</h3>\n<p>{}</p>\n<div class=\"wide\"><table>\n<thead><tr>",
            escape(&self.title),
            escape(&self.caption)
        );
        for (name, kind) in &self.columns {
            let class = if *kind == ColumnKind::Text { "" } else { " class=\"n\"" };
            let _ = write!(out, "<th{class}>{}</th>", escape(name)); // writing to a string cannot fail
        }
        out += "</tr></thead>\n"; // repeated on every printed page
        for row in &self.rows {
            out += "<tr>";
            for (cell, column) in row.iter().zip(&self.columns) {
                let class = if column.1 == ColumnKind::Text { "" } else { " class=\"n\"" };
                let _ = write!(out, "<td{class}>{}</td>", escape(&cell.text("±")));
            }
            out += "</tr>\n";
        }
        out + "</table></div>\n"
    }
}

fn latex(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            '\\' => out += "\\textbackslash{}",
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '±' => out += "$\\pm$",
            '–' => out += "--",
            '−' => out += "$-$",
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let i = Interval { point: 0.5, lo: 0.25, hi: 1.0 };
        Table {
            name: "t",
            title: "A & B".into(),
            caption: "How.".into(),
            columns: vec![
                ("Task".into(), ColumnKind::Text),
                ("Return".into(), ColumnKind::Spread),
                ("P".into(), ColumnKind::Interval),
                ("Runs".into(), ColumnKind::Number),
            ],
            rows: vec![
                vec![
                    Cell::Text("a_1,<b>".into()),
                    Cell::Spread(1234.5678, Some(0.004)),
                    Cell::Interval(i),
                    Cell::Number(3.0),
                ],
                vec![Cell::Text("x|y".into()), Cell::Spread(-0.001, None), Cell::Missing, Cell::Missing],
            ],
        }
    }

    #[test]
    fn csv_keeps_every_digit() {
        let want = "task,return_mean,return_sd,p,p_lo,p_hi,runs\n\
                    \"a_1,<b>\",1234.5678,0.004,0.5,0.25,1,3\nx|y,-0.001,,,,,\n";
        assert_eq!(table().to_csv(), want);
    }

    /// This test fails if a name becomes a formula in a spreadsheet or HTML in Markdown, or breaks its row.
    #[test]
    fn names_are_escaped_for_spreadsheets_and_markdown() {
        for (text, csv) in [
            ("=1+1", "'=1+1"),
            ("@x", "'@x"),
            ("=A(\"b\",1)", "\"'=A(\"\"b\"\",1)\""),
            ("EPO, pmn = 1", "\"EPO, pmn = 1\""),
        ] {
            assert_eq!(csv_text(text), csv);
        }
        let hostile = markdown_text("<script>x</script> a|b [c](d)\n| e");
        assert_eq!(hostile, "&lt;script>x&lt;/script> a\\|b [c]\\(d) \\| e");
        assert_eq!(markdown_text("0.50 [0.25, 1.00]"), "0.50 [0.25, 1.00]");
    }

    #[test]
    fn json_has_the_columns_of_the_csv_as_keys() {
        let json = table().to_json();
        assert_eq!(json["columns"], json!(["task", "return_mean", "return_sd", "p", "p_lo", "p_hi", "runs"]));
        let first = json!({"task": "a_1,<b>", "return_mean": 1234.5678, "return_sd": 0.004, "p": 0.5, "p_lo": 0.25,
            "p_hi": 1.0, "runs": 3.0});
        assert_eq!(json["rows"][0], first);
        assert_eq!(json["rows"][1]["return_sd"], Value::Null, "one run has no standard deviation");
        assert_eq!(
            keys(&("Epochs above, %".into(), ColumnKind::Spread)),
            ["epochs_above_mean", "epochs_above_sd"]
        );
        assert_eq!(keys(&("PPOLag (OmniSafe)".into(), ColumnKind::Number)), ["ppolag_omnisafe"]);
    }

    #[test]
    fn markdown_and_latex_and_html_escape_and_round() {
        let markdown = table().to_markdown();
        assert!(markdown.contains("| a_1,&lt;b> | 1235 ± 0.00 | 0.50 [0.25, 1.00] | 3 |"), "{markdown}");
        assert!(markdown.contains("| x\\|y | 0.00 | – | – |"), "{markdown}");
        let latex = table().to_latex();
        assert!(latex.contains("a\\_1,<b> & 1235 $\\pm$ 0.00 & 0.50 [0.25, 1.00] & 3 \\\\"), "{latex}");
        let html = table().to_html();
        assert!(html.contains("<h3>A &amp; B</h3>") && html.contains("<td>a_1,&lt;b&gt;</td>"), "{html}");
    }
}
