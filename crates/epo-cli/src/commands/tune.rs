//! `epo tune`

use std::path::{Path, PathBuf};

use anyhow::Context;
use epo_lab::engine::slurm::forget_cancel;
use epo_lab::engine::{EngineError, Plan};
use epo_lab::sweep::{Places, RunOutcome, StatusReader};
use epo_lab::tune::{
    Found, Importance, Range, Round, SearchMethod, Trial, TrialResult, TuneError, TuneFile, follow,
    importance, search,
};
use epo_report::history::read_run;
use epo_report::search::{SearchParameter, SearchReport, SearchResult, SearchTrial};
use serde::Serialize;
use serde_json::json;

use super::sweep::{Screen, SweepOptions, read_file};
use crate::exit::{Code, Exit};
use crate::output;

/// Arguments of `epo tune`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Search file (TOML) with the tables `base`, `tune` and `space`
    file: PathBuf,
    /// Folder of the search; the same command continues it [default: runs/ followed by the name of the file]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    how: SweepOptions,
    /// List the trials of the first generation, then stop
    #[arg(long)]
    dry_run: bool,
}

/// The result of a search. `epo tune --json` prints it in serialised form.
#[derive(Debug, Serialize)]
struct Summary {
    out: PathBuf,
    method: SearchMethod,
    finished: bool,
    /// Number of the best trial; `None` if no trial reached the end.
    best: Option<usize>,
    trials: Vec<TrialEntry>,
    importance: Vec<ImportanceEntry>,
    /// Path of the HTML page.
    page: PathBuf,
    /// Configuration of the best trial, for `epo train --config`.
    config: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct ImportanceEntry {
    parameter: String,
    share: f64,
}

#[derive(Debug, Serialize)]
struct TrialEntry {
    number: usize,
    parameters: toml::Table,
    /// `finished`, `stopped`, `failed` or `pending`.
    state: &'static str,
    rungs: Vec<RungEntry>,
    runs: Vec<RunEntry>,
    message: Option<String>,
}

#[derive(Debug, Serialize)]
struct RungEntry {
    steps: u64,
    #[serde(rename = "return")]
    ret: f64,
    cost: f64,
    feasible: bool,
    /// Mean return if the cost is within the limit, otherwise minus the excess.
    score: f64,
}

#[derive(Debug, Serialize)]
struct RunEntry {
    id: String,
    seed: u64,
    /// Run folder; `None` if the run has not started.
    folder: Option<PathBuf>,
    /// Hash of the newest checkpoint.
    hash: Option<String>,
}

/// Runs the search that the file describes, and writes the result.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let text = read_file(&args.file)?;
    let file = TuneFile::parse(&text).map_err(|why| usage(&args.file, &why))?;
    if args.dry_run {
        return list(&file, args.how.json);
    }
    let stem = args.file.file_stem().unwrap_or("tune".as_ref());
    let out = args.out.unwrap_or_else(|| Path::new("runs").join(stem));
    args.how.check_search()?;
    let name = stem.to_string_lossy().into_owned();
    let all = Plan { dir: out.clone(), name, runs: Vec::new(), size: 0 };
    if args.how.cancels(&all, file.engines())? {
        return Ok(Code::Done);
    }
    if args.how.asks_for_status() {
        return status(&file, &out, &args.how);
    }
    forget_cancel(&out)?; // once: a later round must not forget a `--cancel` of the search
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let mut execute = |plan: &Plan, round: &Round| {
        let mut engine = args.how.engine(plan.runs.len(), file.engines()).map_err(engine_error)?;
        if !args.how.quiet {
            tell!("{}", describe(round, file.trials));
        }
        let mut screen = Screen::new(args.how.quiet);
        let outcomes = engine.execute(plan, &stop, &mut |overview| screen.show(overview));
        screen.clear();
        outcomes
    };
    let quiet = args.how.quiet;
    let mut watch = |_: &Round, trials: &[Trial]| {
        let best = trials.iter().max_by(|a, b| a.compare(b));
        if let (false, Some(line)) = (quiet, best.and_then(best_line)) {
            tell!("  {line}");
        }
    };
    let found = search(&file, &out, &mut execute, &mut watch).map_err(failed)?;
    let summary = write(&file, &out, &found)?;
    if !found.finished {
        tell!("the search is not finished; run the same command again to continue");
    }
    output::print(&match args.how.json {
        true => serde_json::to_string_pretty(&summary)?,
        false => self::text(&file, &found, &summary),
    })?;
    Ok(match (found.finished, found.best()) {
        (false, _) => Code::Interrupted,
        (true, Some(_)) => Code::Done,
        (true, None) => Code::Failed,
    })
}

/// Prints the state of the runs of the round that a search is at.
fn status(file: &TuneFile, out: &Path, how: &SweepOptions) -> anyhow::Result<Code> {
    let mut last: Option<Plan> = None;
    let mut read = |plan: &Plan, round: &Round| {
        last = Some(plan.clone());
        let outcomes = || -> Result<Vec<RunOutcome>, EngineError> {
            let mut reader = StatusReader::open(&plan.dir, &plan.runs)?;
            (0..plan.runs.len()).try_for_each(|index| reader.outcome(index).map(drop))?;
            Ok(reader.finish()?)
        };
        let found = outcomes()?;
        if !found.iter().any(|outcome| matches!(outcome, RunOutcome::Pending)) {
            return Ok(found);
        }
        if !how.quiet {
            tell!("{}", describe(round, file.trials));
        }
        how.print_status(plan, file.engines()).map_err(engine_error)?;
        outcomes()
    };
    let found = follow(file, out, &mut read).map_err(failed)?;
    if found.finished {
        let best = found.best().and_then(best_line).unwrap_or_else(|| "no trial reached its end".to_owned());
        tell!("the search has ended; {best}");
        if let (true, Some(plan)) = (how.json, last) {
            how.print_status(&plan, file.engines())?; // the last round
        }
    }
    Ok(Code::Done)
}

/// Prints the trials of the first generation.
fn list(file: &TuneFile, as_json: bool) -> anyhow::Result<Code> {
    let sampler = epo_lab::tune::Sampler::new(file);
    let size = sampler.generation(0).min(file.trials);
    let points = (0..size).map(|number| sampler.point(number, &[]));
    let values: Vec<toml::Table> = points.map(|point| parameters(file, &file.values(&point))).collect();
    if as_json {
        output::print(&serde_json::to_string_pretty(&json!({ "trials": values }))?)?;
        return Ok(Code::Done);
    }
    let line = |(i, values): (usize, &toml::Table)| {
        let parts: Vec<String> = values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{i:>4}  {}", parts.join("  "))
    };
    output::print(&values.iter().enumerate().map(line).collect::<Vec<_>>().join("\n"))?;
    if size < file.trials {
        tell!("the other {} trials depend on the results of these", file.trials - size);
    }
    Ok(Code::Done)
}

fn parameters(file: &TuneFile, values: &[toml::Value]) -> toml::Table {
    file.parameters.iter().map(|p| p.key.clone()).zip(values.iter().cloned()).collect()
}

/// Writes the page, the configuration of the best trial and `trials.json`, and returns the summary.
fn write(file: &TuneFile, out: &Path, found: &Found) -> anyhow::Result<Summary> {
    let choices: Vec<Option<usize>> = file.parameters.iter().map(|p| p.choices()).collect();
    let important = importance(&found.trials, &choices);
    let best = found.best();
    let config = best.map(|trial| (out.join("best.toml"), file.config(trial)));
    if let Some((path, text)) = &config {
        epo_lab::runs::write_whole(path, text.as_bytes())?;
    }
    let page = page(file, found, &important, config.as_ref().map_or("", |(_, text)| text), out)?;
    let places = Places::find(out).context("the folder of the search cannot be read")?;
    let share = |i: &Importance| ImportanceEntry {
        parameter: file.parameters[i.parameter].key.clone(),
        share: i.share,
    };
    let summary = Summary {
        out: out.to_owned(),
        method: file.method,
        finished: found.finished,
        best: best.map(|trial| trial.number),
        trials: found.trials.iter().map(|trial| TrialEntry::new(file, trial, &places)).collect(),
        importance: important.iter().map(share).collect(),
        page,
        config: config.map(|(path, _)| path),
    };
    epo_lab::runs::write_whole(&out.join("trials.json"), &serde_json::to_vec_pretty(&summary)?)?;
    Ok(summary)
}

fn page(
    file: &TuneFile,
    found: &Found,
    important: &[Importance],
    best_config: &str,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    // the most important parameter first; in the order of the file if that is not known
    let mut order: Vec<usize> = important.iter().map(|i| i.parameter).collect();
    order.extend((0..file.parameters.len()).filter(|i| !important.iter().any(|known| known.parameter == *i)));
    let parameter = |&i: &usize| {
        let parameter = &file.parameters[i];
        let importance = important.iter().find(|known| known.parameter == i).map(|known| known.share);
        let key = parameter.key.clone();
        match &parameter.range {
            Range::Number { low, high, log, .. } => {
                SearchParameter { key, range: (*low, *high), log: *log, choices: None, importance }
            }
            Range::Choice(values) => SearchParameter {
                key,
                range: (0.0, values.len() as f64 - 1.0),
                log: false,
                choices: Some(values.iter().map(ToString::to_string).collect()),
                importance,
            },
        }
    };
    let place = |trial: &Trial, i: usize| match file.parameters[i].choices() {
        Some(n) => (trial.point[i] * n as f64).floor(),
        None => trial.values[i].as_float().or(trial.values[i].as_integer().map(|v| v as f64)).unwrap_or(0.0),
    };
    let trial = |trial: &&Trial| SearchTrial {
        number: trial.number,
        places: order.iter().map(|&i| place(trial, i)).collect(),
        values: order.iter().map(|&i| trial.values[i].to_string()).collect(),
        results: trial
            .results
            .iter()
            .map(|r| SearchResult { steps: r.steps, ret: r.mean.ret, cost: r.mean.cost })
            .collect(),
        state: state_text(file, trial),
    };
    let mut ranked: Vec<&Trial> = found.trials.iter().collect();
    ranked.sort_by(|a, b| b.compare(a));
    let limit = found.trials.iter().find_map(|t| t.results.first()).map_or(0.0, |r| r.mean.limit);
    let method = match file.method {
        SearchMethod::Random => "random points",
        SearchMethod::Sobol => "points of a Sobol sequence",
        SearchMethod::Tpe => "points of the tree-structured Parzen estimator",
    };
    let report = SearchReport {
        title: "Search for parameters".to_owned(),
        about: format!(
            "{} with {} each, {method}.",
            output::count(found.trials.len(), "trial"),
            output::count(file.seeds.len(), "seed")
        ),
        limit,
        parameters: order.iter().map(parameter).collect(),
        trials: ranked.iter().map(trial).collect(),
        has_best: found.best().is_some(),
        best_config: best_config.to_owned(),
    };
    report.write(&out.join("report")).context("the page of the search cannot be written")
}

impl TrialEntry {
    fn new(file: &TuneFile, trial: &Trial, places: &Places) -> Self {
        let rung = |r: &TrialResult| RungEntry {
            steps: r.steps,
            ret: r.mean.ret,
            cost: r.mean.cost,
            feasible: r.mean.feasible(),
            score: r.score(),
        };
        let run = |run: &epo_lab::sweep::PlannedRun| {
            let folder = places.run_folder(&run.id);
            let hash = folder.as_ref().and_then(|dir| read_run(dir, None).ok()).and_then(|(run, _)| run.hash);
            RunEntry { id: run.id.clone(), seed: run.seed, folder, hash }
        };
        Self {
            number: trial.number,
            parameters: parameters(file, &trial.values),
            state: state(file, trial),
            rungs: trial.results.iter().map(rung).collect(),
            runs: trial.runs.iter().map(run).collect(),
            message: trial.failure.clone(),
        }
    }
}

fn state(file: &TuneFile, trial: &Trial) -> &'static str {
    match (&trial.failure, trial.results.len()) {
        (Some(_), _) => "failed",
        (None, n) if n > file.rungs.len() => "finished",
        (None, 0) => "pending",
        _ => "stopped",
    }
}

fn state_text(file: &TuneFile, trial: &Trial) -> String {
    match (state(file, trial), trial.results.last()) {
        ("stopped", Some(result)) => format!("stopped at {} steps", result.steps),
        (state, _) => state.to_owned(),
    }
}

fn describe(round: &Round, trials: usize) -> String {
    let Round { first, size, alive, rung, rungs, steps } = *round;
    let (last, rung) = (first + size - 1, rung + 1);
    format!("trials {first} to {last} of {trials}: {alive} go to rung {rung} of {rungs}, at {steps} steps")
}

fn best_line(trial: &Trial) -> Option<String> {
    let result = trial.results.last()?;
    let within = if result.mean.feasible() { "within" } else { "above" };
    Some(format!(
        "best trial: {}, return {:.2}, cost {:.2} ({within} the limit), at {} steps",
        trial.number, result.mean.ret, result.mean.cost, result.steps
    ))
}

fn text(file: &TuneFile, found: &Found, summary: &Summary) -> String {
    let mut ranked: Vec<&Trial> = found.trials.iter().collect();
    ranked.sort_by(|a, b| b.compare(a));
    let mut header = vec!["Trial".to_owned()];
    header.extend(file.parameters.iter().map(|p| p.key.clone()));
    header.extend(["Return", "Cost", "State"].map(str::to_owned));
    let mut rows = vec![header];
    for trial in ranked {
        let mut row = vec![trial.number.to_string()];
        row.extend(trial.values.iter().map(ToString::to_string));
        let number = |of: fn(&TrialResult) -> f64| {
            trial.results.last().map_or_else(String::new, |result| format!("{:.2}", of(result)))
        };
        row.extend([number(|r| r.mean.ret), number(|r| r.mean.cost), state_text(file, trial)]);
        rows.push(row);
    }
    let mut lines = output::table(&rows, 0);
    for entry in &summary.importance {
        lines.push(format!("{} explains {:.0} % of the differences", entry.parameter, 100.0 * entry.share));
    }
    for trial in &found.trials {
        if let Some(failure) = &trial.failure {
            lines.push(format!("trial {} failed: {failure}", trial.number));
        }
    }
    if let Some(result) = found.best().and_then(|best| best.results.last()).filter(|r| !r.mean.feasible()) {
        lines.push(format!(
            "no trial is within the limit of {}; the best one exceeds it by {:.2}",
            result.mean.limit,
            result.mean.cost - result.mean.limit
        ));
    }
    lines.push(format!("page: {}", summary.page.display()));
    if let Some(config) = &summary.config {
        lines.push(format!("best configuration: {}", config.display()));
    }
    lines.join("\n")
}

fn usage(path: &Path, why: &str) -> anyhow::Error {
    anyhow::Error::new(Exit(Code::Usage)).context(format!("{}: {why}", path.display()))
}

fn engine_error(error: anyhow::Error) -> EngineError {
    match error.downcast::<EngineError>() {
        Ok(error) => error,
        Err(error) => EngineError::Usage(crate::exit::message(&error)),
    }
}

fn failed(error: TuneError) -> anyhow::Error {
    match error {
        TuneError::File(why) => anyhow::Error::new(Exit(Code::Usage)).context(why),
        TuneError::Run { .. } => {
            let why = error.to_string();
            anyhow::Error::new(Exit(Code::Corrupt)).context(why)
        }
        TuneError::Engine(error) => error.into(),
        other => other.into(),
    }
}
