//! Claim: the pages agree with the program.
//!
//! - Every relative link and anchor in a Markdown file has a target.
//! - The subcommand and the flags of every `epo …` command exist.
//! - Every key and default is that of the code, and every metric is in the glossary.
//! - The policy computes the action that `docs/data/policy-check.json` records.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use epo_algos::AlgoConfig;
use epo_core::Env;
use epo_lab::record::EpochRecord;
use serde_json::Value;
use toml::Table;

/// Keys of earlier versions, which pages may mention.
const FORMER: &[&str] = &["train.batch", "algo.variant"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn epo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_epo")).args(args).output().unwrap();
    assert!(output.status.success(), "epo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// This test fails if a page that lists the algorithms leaves one out.
#[test]
fn every_algorithm_is_linked_from_the_pages_that_list_them() {
    for name in ["docs/algorithms.md", "docs/README.md", "docs/configuration.md"] {
        let text = page(name);
        for algo in AlgoConfig::all_defaults() {
            assert!(
                text.contains(&format!("({}.md", algo.name())),
                "{name} has no link to {}.md",
                algo.name()
            );
        }
    }
}

/// All Markdown files of the repository: path from its root, and text.
fn pages() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, found);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    walk(&root, &mut found);
    found.sort();
    found
        .iter()
        .map(|path| (path.strip_prefix(&root).unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A page in two parts: its lines outside code blocks, and those inside.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut prose, mut code, mut inside) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            code.push(line);
        } else {
            prose.push(line);
        }
    }
    (prose, code)
}

/// The texts in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The anchors of a page, as GitHub makes them from its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = split(text).0.into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The targets of the links and images of a line.
fn links(line: &str) -> Vec<String> {
    let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    plain.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

#[test]
fn every_link_and_anchor_has_a_target() {
    let (mut checked, mut broken) = (0, Vec::new());
    for (path, text) in pages() {
        for target in split(&text).0.into_iter().flat_map(links).filter(|t| !t.contains("://")) {
            checked += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => root().join(&path),
                file => root().join(path.parent().unwrap()).join(file),
            };
            let found = file.exists()
                && (anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor));
            if !found {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links without a target:\n{}", broken.join("\n"));
    assert!(checked > 150, "the pages were not read: {checked} links");
}

#[test]
fn every_page_is_in_the_index() {
    let index = page("docs/README.md");
    for (path, _) in pages() {
        if path.parent() == Some(Path::new("docs")) && path != Path::new("docs/README.md") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(index.contains(&format!("]({name})")), "{name} is not in docs/README.md");
        }
    }
}

/// The program's subcommands, flags, keys, defaults, algorithms and tasks.
struct Known {
    help: BTreeMap<String, String>,
    /// `run` and `train` with the defaults of the navigation tasks.
    shared: Table,
    /// The table `algo` of each algorithm.
    algos: BTreeMap<String, Table>,
    tasks: BTreeSet<String>,
}

impl Known {
    fn read() -> Self {
        let names = |json: &str, key: &str| -> BTreeSet<String> {
            let list: Value = serde_json::from_str(json).unwrap();
            list.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
        };
        let config = |algo: &str| epo(&["train", "--algo", algo, "--print-config"]).parse::<Table>().unwrap();
        let algos = names(&epo(&["algos", "--json"]), "name").into_iter();
        let algos = algos.map(|name| (name.clone(), config(&name)["algo"].as_table().unwrap().clone()));
        Self {
            help: BTreeMap::new(),
            shared: config("epo"),
            algos: algos.collect(),
            tasks: names(&epo(&["tasks", "--json"]), "id"),
        }
    }

    /// The help of a command such as `bench env`; `None` if there is no such command.
    fn help(&mut self, command: &str) -> Option<&str> {
        if !self.help.contains_key(command) {
            let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
            let output = Command::new(env!("CARGO_BIN_EXE_epo")).args(&args).output().unwrap();
            let text = if output.status.success() { output.stdout } else { Vec::new() };
            self.help.insert(command.to_owned(), String::from_utf8(text).unwrap());
        }
        Some(self.help[command].as_str()).filter(|text| !text.is_empty())
    }

    fn has_key(&self, key: &str) -> bool {
        let (table, name) = key.split_once('.').unwrap();
        match table {
            "algo" => self.algos.values().any(|params| params.contains_key(name)),
            table => self.shared[table].as_table().unwrap().contains_key(name),
        }
    }
}

/// A statement of a page that the program contradicts: its subject, and the page.
type Complaint = (String, String);

/// The words of an `epo …` command without its comment and the brackets of a synopsis.
fn words(command: &str) -> Vec<String> {
    let command = command.split(" #").next().unwrap();
    let words = command.split_whitespace().map(|w| w.trim_matches(['[', ']', '\'', '"', ',', '.', '…']));
    words.skip(1).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// The `epo …` commands of a page: lines of code blocks, and texts in backticks.
fn commands(text: &str) -> Vec<String> {
    let (prose, code) = split(text);
    let code = code.into_iter().filter_map(|line| {
        let line = line.trim().strip_prefix("cargo run --release --").map_or(line.trim(), str::trim);
        let starts = line.starts_with("epo ") || line.starts_with("train ") && !line.contains('=');
        starts.then(|| if line.starts_with("epo ") { line.to_owned() } else { format!("epo {line}") })
    });
    let inline = prose.into_iter().flat_map(quoted).filter(|text| text.starts_with("epo "));
    code.chain(inline.map(str::to_owned)).collect()
}

fn check_commands(known: &mut Known, complaints: &mut Vec<Complaint>) -> usize {
    let mut checked = 0;
    for (path, text) in pages() {
        for command in commands(&text) {
            checked += 1;
            let place = format!("{}: {command}", path.display());
            let words = words(&command);
            let mut name = words[0].clone();
            if known.help(&name).is_none() {
                complaints.push((format!("epo {name}"), place));
                continue;
            }
            let nested = known.help(&name).is_some_and(|help| help.contains("Commands:"));
            if let Some(second) = words.get(1).filter(|word| nested && !word.starts_with('-')) {
                name = format!("{name} {second}");
            }
            let Some(help) = known.help(&name).map(str::to_owned) else {
                complaints.push((format!("epo {name}"), place));
                continue;
            };
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
            let has = |flag: &str| help.match_indices(flag).any(|(at, _)| ends(&help[at + flag.len()..]));
            for (i, word) in words.iter().enumerate() {
                let flag = word.split('=').next().unwrap();
                if flag.starts_with('-') && !has(flag) {
                    complaints.push((format!("epo {name} {flag}"), place.clone()));
                }
                let algo = i > 0 && words[i - 1] == "--algo" && word.chars().all(|c| !c.is_uppercase());
                if algo && !known.algos.contains_key(word) {
                    complaints.push((format!("algorithm {word}"), place.clone()));
                }
                let task = word.starts_with("Safety") && word.contains("-v");
                if task && !known.tasks.contains(word) {
                    complaints.push((format!("task {word}"), place.clone()));
                }
            }
        }
    }
    checked
}

/// The dotted keys of the configuration in a text.
fn keys(text: &str) -> Vec<String> {
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
    let words = text.split(|c: char| !(part(c) || c.is_ascii_uppercase() || "-/".contains(c)));
    words
        .filter(|word| word.chars().all(part))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| match word.split_once('.') {
            Some((table, key)) => ["run", "train", "algo"].contains(&table) && key != "rs" && !key.is_empty(),
            None => false,
        })
        .map(str::to_owned)
        .collect()
}

fn check_keys(known: &Known, complaints: &mut Vec<Complaint>) -> usize {
    let mut checked = 0;
    for (path, text) in pages() {
        let (prose, code) = split(&text);
        for key in prose.into_iter().flat_map(quoted).chain(code).flat_map(keys) {
            checked += 1;
            if !known.has_key(&key) && !FORMER.contains(&key.as_str()) {
                complaints.push((key, path.display().to_string()));
            }
        }
    }
    checked
}

/// The rows `| `key` | `default` | …` of a page whose key is in one of the tables.
fn documented(page: &str, tables: &[&str]) -> BTreeMap<String, toml::Value> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (key, default) = (cells[1].trim_matches('`'), cells[2].trim_matches('`'));
        let (table, _) = key.split_once('.')?;
        let value = || format!("x = {default}").parse::<Table>().unwrap_or_else(|e| panic!("{line}: {e}"));
        tables.contains(&table).then(|| (key.to_owned(), value()["x"].clone()))
    })
    .collect()
}

/// Compares documented defaults with those of the program, both ways.
fn check_defaults(
    place: &str,
    got: &BTreeMap<String, toml::Value>,
    want: &Table,
    table: &str,
) -> Vec<Complaint> {
    let prefix = format!("{table}.");
    let want = want.iter().map(|(key, value)| (format!("{prefix}{key}"), value.clone()));
    let mut want: BTreeMap<String, toml::Value> = want.collect();
    // The program replaces 0 by the number of cores.
    want.entry("train.threads".to_owned()).and_modify(|value| *value = toml::Value::Integer(0));
    let got: BTreeMap<_, _> = got.iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
    let all: BTreeSet<&String> = want.keys().chain(got.keys().copied()).collect();
    let differ = all.into_iter().filter(|key| got.get(key).copied() != want.get(*key));
    differ
        .map(|key| {
            let at = format!("{place}: documented {:?}, the program has {:?}", got.get(key), want.get(key));
            (key.clone(), at)
        })
        .collect()
}

#[test]
fn commands_keys_and_defaults_are_those_of_the_program() {
    let mut known = Known::read();
    let mut complaints = Vec::new();
    let commands = check_commands(&mut known, &mut complaints);
    let keys = check_keys(&known, &mut complaints);
    let rows = documented(&without_presets(&page("docs/configuration.md")), &["run", "train"]);
    for table in ["run", "train"] {
        let want = known.shared[table].as_table().unwrap();
        complaints.extend(check_defaults("docs/configuration.md", &rows, want, table));
    }
    for (name, params) in &known.algos {
        let place = format!("docs/{name}.md");
        let rows = documented(&page(&place), &["algo"]);
        complaints.extend(check_defaults(&place, &rows, params, "algo"));
    }
    assert!(commands > 60 && keys > 150, "the pages were not read: {commands} commands, {keys} keys");
    assert!(complaints.is_empty(), "pages and program disagree:\n{}", lines(&complaints));
}

fn lines(complaints: &[Complaint]) -> String {
    complaints.iter().map(|(what, place)| format!("{what} ({place})\n")).collect()
}

fn without_presets(page: &str) -> String {
    let (before, rest) = page.split_once("## Presets").unwrap();
    let after = rest.split_once("\n## ").unwrap().1;
    format!("{before}## {after}")
}

#[test]
fn the_glossary_has_every_metric_and_no_other() {
    let page = page("docs/glossary.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let listed: Vec<&str> = rows.filter_map(|line| quoted(line).next()).collect();
    let recorded = EpochRecord::columns(epo_algos::report::ALL, true);
    let recorded: BTreeSet<&str> = recorded.iter().map(|metric| metric.key).collect();
    let distinct: BTreeSet<&str> = listed.iter().copied().collect();
    let missing: Vec<_> = recorded.difference(&distinct).collect();
    let unknown: Vec<_> = distinct.difference(&recorded).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/glossary.md: add rows for {missing:?}, remove those of {unknown:?}"
    );
    assert_eq!(listed.len(), recorded.len(), "a metric is listed twice");
}

#[test]
fn the_page_of_an_algorithm_names_the_metrics_of_its_own() {
    fn keys(config: &AlgoConfig) -> BTreeSet<&'static str> {
        config.metrics().iter().map(|metric| metric.key).collect()
    }
    // what every first-order method with a cost critic reports is explained in the glossary
    let first_order = AlgoConfig::all_defaults()
        .into_iter()
        .filter(|config| config.objective(0.99).is_some() && !config.cost_critics().is_empty());
    let common = first_order.map(|config| keys(&config)).reduce(|a, b| &a & &b).unwrap();
    assert!(common.len() > 10 && !common.contains("Penalty/Mu"), "{common:?}");
    for config in AlgoConfig::all_defaults() {
        let name = config.name();
        let page = page(&format!("docs/{name}.md"));
        for section in [
            "Equation",
            "Parameters",
            "Metrics it writes",
            "When to use it",
            "Measured results",
            "Deviations",
        ] {
            assert!(page.contains(&format!("\n## {section}\n")), "docs/{name}.md has no section {section}");
        }
        let section = page.split_once("\n## Metrics it writes\n").unwrap().1.split("\n## ").next().unwrap();
        let metric = |word: &&str| word.contains('/') && word.starts_with(char::is_uppercase);
        let named: BTreeSet<&str> = section.lines().flat_map(quoted).filter(metric).collect();
        let reported = keys(&config);
        let missing: Vec<_> = reported.difference(&common).filter(|key| !named.contains(*key)).collect();
        let wrong: Vec<_> = named.difference(&reported).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "docs/{name}.md, section \"Metrics it writes\": {missing:?} is missing, {wrong:?} is not reported"
        );
    }
}

/// This test fails if the normaliser has another clip, floor or divisor, if a weight is transposed, or if the
/// activation or a tensor changes.
#[test]
fn the_recorded_action_is_the_one_that_the_policy_takes() {
    let recorded: Value = serde_json::from_str(&page("docs/data/policy-check.json")).unwrap();
    let checkpoint = root().join(recorded["checkpoint"].as_str().unwrap());
    let dir = checkpoint.parent().unwrap().parent().unwrap();
    let run = epo_lab::runs::read_config(dir).unwrap();
    let env = epo_tasks::make(recorded["task"].as_str().unwrap()).unwrap();
    let obs = recorded["observation"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
    let obs: Vec<f64> = obs.collect();
    let (policy, normalizer, loaded) = epo_lab::evaluate::load_policy(dir, &run, env.spec()).unwrap();
    assert!(checkpoint.ends_with(format!("{:06}", loaded.number)), "the newest checkpoint is another one");
    let mut normalized = vec![0.0; obs.len()];
    normalizer.normalize(&obs, &mut normalized);
    let mut action = vec![0.0; policy.action_len()];
    policy.act_deterministic(&normalized, &mut policy.workspace(1), &mut action);
    let moments = normalizer.moments();
    let still = |i: usize| moments.m2()[i] / (moments.count() - 1) as f64 <= 1e-4 && normalized[i] != 0.0;
    assert!(normalized.contains(&5.0), "no entry reaches the clip");
    assert!((0..obs.len()).any(still), "no entry reaches the floor of the deviation");
    for (key, got) in [("normalized", &normalized), ("action", &action)] {
        let want: Vec<f64> = serde_json::from_value(recorded[key].clone()).unwrap();
        let close = |(want, got): (&f64, &f32)| (want - f64::from(*got)).abs() < 1e-6; // not every machine has FMA
        let same = want.len() == got.len() && want.iter().zip(got).all(close);
        assert!(same, "{key} in docs/data/policy-check.json should be {got:?}");
    }
}

/// This test fails if a page states another number of tasks than the registry has.
#[test]
fn the_number_of_tasks_is_that_of_the_registry() {
    let n = epo_tasks::tasks().len();
    for (name, phrase) in [
        ("README.md", format!("{n} Safety-Gymnasium tasks")),
        ("docs/README.md", format!("the {n} tasks")),
        ("docs/tasks.md", format!("The {n} tasks")),
    ] {
        assert!(page(name).contains(&phrase), "{name} does not say \"{phrase}\"");
    }
}

#[test]
fn the_citation_names_the_version_of_the_program() {
    let citation = page("CITATION.cff");
    assert!(citation.contains(concat!("\nversion: ", env!("CARGO_PKG_VERSION"), "\n")), "CITATION.cff");
    assert!(page("CHANGELOG.md").contains(concat!(env!("CARGO_PKG_VERSION"))), "CHANGELOG.md");
}

#[test]
fn the_parsers_of_this_test_work() {
    let text = "# One `x`: two's\n[a](b.md#c) `[no](x)` ![i](j.svg)\n```sh\nepo bench env --task X # c\n[no](y)\n```\n`epo eval`";
    assert_eq!(anchors(text), ["one-x-twos".to_owned()].into());
    let targets: Vec<String> = split(text).0.into_iter().flat_map(links).collect();
    assert_eq!(targets, ["b.md#c", "j.svg"]);
    assert_eq!(commands(text), ["epo bench env --task X # c", "epo eval"]);
    assert_eq!(words("epo sweep FILE [--jobs N] # run.x"), ["sweep", "FILE", "--jobs", "N"]);
    assert_eq!(
        keys("train.gamma=1, tests/train.rs, algo.mu_rate. train.rs"),
        ["train.gamma", "algo.mu_rate"]
    );
}
