//! Claim: the tests, functions, files and algorithms that `docs/epo.md` and `docs/algorithms.md` name exist.
//! `epo-cli/tests/docs.rs` checks the parameters and metrics of the pages.

use std::path::Path;

use epo_algos::AlgoConfig;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All sources of this crate as one text.
fn sources() -> String {
    let mut text = String::new();
    for dir in ["src", "tests"] {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).expect("a folder");
        let mut paths: Vec<_> =
            entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_file()).collect();
        paths.sort();
        text.extend(paths.iter().map(|p| std::fs::read_to_string(p).expect("a text file")));
    }
    text
}

/// Words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let rest = page.split_once(&format!("## {title}")).unwrap_or_else(|| panic!("no section {title:?}")).1;
    rest.split("\n## ").next().unwrap_or(rest)
}

#[test]
fn the_map_names_functions_and_tests_that_exist() {
    let (page, sources) = (read("../../docs/epo.md"), sources());
    let mut tests = 0;
    for row in section(&page, "Equation by equation")
        .lines()
        .filter(|l| l.starts_with("| ") && !l.starts_with("| paper"))
    {
        let cells: Vec<&str> = row.split('|').collect();
        assert_eq!(cells.len(), 6, "{row}");
        for word in quoted(cells[4]).filter(|w| w.matches('_').count() >= 2) {
            assert!(sources.contains(&format!("fn {word}()")), "no test {word}");
            tests += 1;
        }
        for word in quoted(cells[3]).filter(|w| w.contains("::") || w.contains('_') && !w.ends_with(".rs")) {
            let name = word.rsplit("::").next().unwrap_or(word);
            let found = ["(", "<"].iter().any(|after| sources.contains(&format!("fn {name}{after}")));
            assert!(found, "no function {word}");
        }
        for file in quoted(row).filter(|w| w.ends_with(".rs")) {
            let at = if file.starts_with("tests/") { file.to_owned() } else { format!("src/{file}") };
            assert!(!read(&at).is_empty());
        }
    }
    assert!(tests >= 20, "the table was not read: {tests}");
}

#[test]
fn the_algorithms_page_lists_every_algorithm() {
    let page = read("../../docs/algorithms.md");
    for config in AlgoConfig::all_defaults() {
        assert!(
            page.contains(&format!("| `{}` |", config.name())),
            "docs/algorithms.md has no row | `{}` |",
            config.name()
        );
    }
}
