//! A table that is written as Markdown, CSV, LaTeX and HTML.
//!
//! CSV holds every number in full and splits a cell with a spread or an interval into columns; the others round.

use std::fmt::Write as _;

use super::canvas::escape;
use crate::stats::{self, Interval};

/// What a column holds; it decides the columns of the CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    /// Mean and standard deviation of some values.
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

    fn csv(&self, kind: Kind) -> Vec<String> {
        let width = match kind {
            Kind::Text | Kind::Number => 1,
            Kind::Spread => 2,
            Kind::Interval => 3,
        };
        let mut cells = match self {
            Self::Text(text) if text.contains([',', '"', '\n']) => {
                vec![format!("\"{}\"", text.replace('"', "\"\""))]
            }
            Self::Text(text) => vec![text.clone()],
            Self::Number(v) => vec![v.to_string()],
            Self::Spread(mean, sd) => vec![mean.to_string(), sd.map_or(String::new(), |s| s.to_string())],
            Self::Interval(i) => vec![i.point.to_string(), i.lo.to_string(), i.hi.to_string()],
            Self::Missing => Vec::new(),
        };
        cells.resize(width, String::new());
        cells
    }
}

/// Two decimals for small numbers, none for large ones.
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
    /// File name without ending.
    pub name: &'static str,
    pub title: String,
    /// How to read it.
    pub caption: String,
    pub columns: Vec<(String, Kind)>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = format!("### {}\n\n{}\n\n", self.title, self.caption);
        out += &line(self.columns.iter().map(|c| c.0.replace('|', "\\|")).collect());
        out += &line(
            self.columns.iter().map(|c| if c.1 == Kind::Text { "---" } else { "---:" }.into()).collect(),
        );
        for row in &self.rows {
            out += &line(row.iter().map(|cell| cell.text("±").replace('|', "\\|")).collect());
        }
        out
    }

    pub(crate) fn to_csv(&self) -> String {
        let header = self.columns.iter().flat_map(|(name, kind)| {
            let base = name.to_lowercase().replace([' ', ',', '%'], "_");
            match kind {
                Kind::Text | Kind::Number => vec![base],
                Kind::Spread => vec![format!("{base}_mean"), format!("{base}_sd")],
                Kind::Interval => vec![base.clone(), format!("{base}_lo"), format!("{base}_hi")],
            }
        });
        let mut out = header.collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let cells = row.iter().zip(&self.columns).flat_map(|(cell, column)| cell.csv(column.1));
            out += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        out
    }

    pub(crate) fn to_latex(&self) -> String {
        let align: String = self.columns.iter().map(|c| if c.1 == Kind::Text { 'l' } else { 'r' }).collect();
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
            "<h3>{}</h3>\n<p>{}</p>\n<div class=\"wide\"><table>\n<tr>",
            escape(&self.title),
            escape(&self.caption)
        );
        for (name, kind) in &self.columns {
            let class = if *kind == Kind::Text { "" } else { " class=\"n\"" };
            let _ = write!(out, "<th{class}>{}</th>", escape(name)); // writing to a string cannot fail
        }
        out += "</tr>\n";
        for row in &self.rows {
            out += "<tr>";
            for (cell, column) in row.iter().zip(&self.columns) {
                let class = if column.1 == Kind::Text { "" } else { " class=\"n\"" };
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
                ("Task".into(), Kind::Text),
                ("Return".into(), Kind::Spread),
                ("P".into(), Kind::Interval),
                ("Runs".into(), Kind::Number),
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

    #[test]
    fn markdown_and_latex_and_html_escape_and_round() {
        let markdown = table().to_markdown();
        assert!(markdown.contains("| a_1,<b> | 1235 ± 0.00 | 0.50 [0.25, 1.00] | 3 |"), "{markdown}");
        assert!(markdown.contains("| x\\|y | 0.00 | – | – |"), "{markdown}");
        let latex = table().to_latex();
        assert!(latex.contains("a\\_1,<b> & 1235 $\\pm$ 0.00 & 0.50 [0.25, 1.00] & 3 \\\\"), "{latex}");
        let html = table().to_html();
        assert!(html.contains("<h3>A &amp; B</h3>") && html.contains("<td>a_1,&lt;b&gt;</td>"), "{html}");
    }
}
