//! One run as the page shows it: its identity, its rows and its state, kept up to date as the files grow.

use std::time::{Duration, Instant, SystemTime};

use epo_report::history::{Identity, Source};
use epo_report::printable;
use epo_report::state::{Activity, RunState};

use crate::folder::Folder;
use crate::rows::{Places, Rows, Sums, TIME};
use crate::tail::{MOST_ROW, NewRows, Tail};

/// Results of a run, with the same meanings as in `epo_report::RunResults`.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Results {
    pub(crate) ret: f64,
    pub(crate) cost: f64,
    /// Fraction of epochs above the limit.
    pub(crate) above: Option<f64>,
    pub(crate) excess: Option<f64>,
    pub(crate) stays_from: Option<usize>,
}

/// Fraction of the steps at the end of a run over which final values are averaged, as in reports.
const FINAL_SHARE: f64 = 0.1;

/// A run folder and everything that was read from it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) folder: Folder,
    /// Name of the run in requests.
    pub(crate) id: String,
    /// Path below the folder that the user named.
    pub(crate) name: String,
    pub(crate) identity: Option<Identity>,
    /// How often the configuration was read.
    pub(crate) identified: u32,
    /// Reason why the run cannot be shown.
    pub(crate) problem: Option<String>,
    pub(crate) rows: Rows,
    pub(crate) sums: Sums,
    pub(crate) hash: Option<String>,
    pub(crate) evaluation: Option<serde_json::Value>,
    pub(crate) state: RunState,
    /// Version of the store in which the run changed last.
    pub(crate) changed: u64,
    checkpoint: Option<u64>,
    tail: Tail,
    places: Option<Places>,
    /// Description of a mistake in the content of the file.
    fault: Option<String>,
    /// When the file last grew, by the clock of this process.
    grown: Option<Instant>,
    /// Age of the file when it was first seen.
    age: Duration,
    /// Modification times of `config.toml` or `config.json` and of `eval.json`.
    stamps: [Option<SystemTime>; 2],
}

impl Run {
    pub(crate) fn new(folder: Folder, id: String, name: String) -> Self {
        Self {
            folder,
            id,
            name: printable(&name).into_owned(),
            identity: None,
            identified: 0,
            problem: None,
            rows: Rows::default(),
            sums: Sums::default(),
            hash: None,
            evaluation: None,
            state: RunState::Training,
            changed: 0,
            checkpoint: None,
            tail: Tail::default(),
            places: None,
            fault: None,
            grown: None,
            age: Duration::ZERO,
            stamps: [None; 2],
        }
    }

    /// Cost limit; `None` if the configuration has none.
    pub(crate) fn limit(&self) -> Option<f64> {
        self.identity.as_ref().and_then(|i| i.limit)
    }

    /// Number of steps at which the run is done; `None` if the configuration does not say it.
    pub(crate) fn planned(&self) -> Option<f64> {
        self.identity.as_ref()?.planned()
    }

    /// Number of environment steps of an epoch; `None` if the run is not of this program.
    pub(crate) fn steps_per_epoch(&self) -> Option<f64> {
        let identity = self.identity.as_ref().filter(|i| i.source == Source::Epo)?;
        identity.config.get("train.steps_per_epoch")?.parse().ok().filter(|steps: &f64| *steps >= 1.0)
    }

    /// Reads new data. Returns whether something changed, and whether there is more to read.
    pub(crate) fn refresh(&mut self) -> (bool, bool) {
        let before = (self.state, self.problem.clone());
        let (mut changed, mut more) = (false, false);
        match self.read_config() {
            Ok(new) => {
                changed |= new;
                match self.read_rows() {
                    Ok((new, left)) => {
                        (changed, more) = (changed || new, left);
                        self.problem = None;
                    }
                    Err(e) => self.problem = Some(e),
                }
            }
            Err(e) => self.problem = Some(e),
        }
        changed |= self.read_evaluation();
        // a run saves after it has written its row, so the newest checkpoint may come later than the row
        if self.checkpoint.is_none_or(|saved| saved < self.sums.epochs as u64) {
            changed |= self.read_checkpoint();
        }
        self.state = self.state_now();
        if self.state != RunState::Training && before.0 == RunState::Training {
            self.rows.shrink();
        }
        (changed || before != (self.state, self.problem.clone()), more)
    }

    /// Returns true if no file of the run has changed for long, so that it can be checked less often.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state != RunState::Training || self.problem.is_some()
    }

    fn stamp(&self, names: &[&str]) -> Option<SystemTime> {
        let modified = |name: &&str| self.folder.dir.join(name).symlink_metadata().ok()?.modified().ok();
        names.iter().find_map(modified)
    }

    fn read_config(&mut self) -> Result<bool, String> {
        let stamp = self.stamp(&["config.toml", "config.json"]);
        if self.identity.is_some() && stamp == self.stamps[0] {
            return Ok(false);
        }
        let (toml, json) = (self.folder.text("config.toml")?, self.folder.text("config.json")?);
        let identity = Identity::parse(&self.folder.dir, toml.as_deref(), json.as_deref())?;
        self.identity = Some(identity);
        self.identified += 1;
        self.stamps[0] = stamp;
        Ok(true)
    }

    fn read_evaluation(&mut self) -> bool {
        let stamp = self.stamp(&["eval.json"]);
        if stamp == self.stamps[1] {
            return false;
        }
        self.stamps[1] = stamp;
        let text = self.folder.text("eval.json").ok().flatten();
        let value: Option<serde_json::Value> = text.and_then(|text| serde_json::from_str(&text).ok());
        // single episodes are not shown, and their lists are long
        self.evaluation = value.map(|mut value| {
            let list = match value.get_mut("evaluations").map(serde_json::Value::take) {
                Some(serde_json::Value::Array(list)) => list,
                _ => vec![value],
            };
            let keys = ["policy", "stochastic", "episodes", "return", "cost", "physics"];
            let short = |mut one: serde_json::Value| {
                if let Some(map) = one.as_object_mut() {
                    map.retain(|key, _| keys.contains(&key.as_str()));
                }
                one
            };
            list.into_iter().take(50).map(short).collect()
        });
        true
    }

    /// Reads the hash of the newest checkpoint. Returns whether there is a newer one.
    fn read_checkpoint(&mut self) -> bool {
        let newest = self.folder.newest_checkpoint();
        if newest == self.checkpoint {
            return false;
        }
        self.checkpoint = newest;
        let manifest =
            newest.and_then(|n| self.folder.text(&format!("checkpoint/{n:06}/manifest.json")).ok()?);
        let manifest: Option<serde_json::Value> = manifest.and_then(|text| serde_json::from_str(&text).ok());
        if let Some(hash) = manifest.as_ref().and_then(|m| m.get("hash")?.as_str()) {
            self.hash = Some(printable(hash).chars().take(64).collect());
        }
        true
    }

    fn read_rows(&mut self) -> Result<(bool, bool), String> {
        let Some((mut file, about)) = self.folder.open("progress.csv")? else {
            return match self.sums.epochs {
                0 => Ok((false, false)),
                _ => Err("progress.csv is gone.".into()),
            };
        };
        let wrong = |e: std::io::Error| format!("progress.csv cannot be read: {e}.");
        let (text, again, more) = match self.tail.read(&mut file).map_err(wrong)? {
            NewRows::Nothing => return self.fault.clone().map_or(Ok((false, false)), Err),
            NewRows::TooLong => {
                return Err(format!("progress.csv cannot be read: a row is longer than {MOST_ROW} bytes."));
            }
            NewRows::Rows { text, again, more } => (text, again, more),
        };
        if again {
            (self.rows, self.sums) = (Rows::default(), Sums::default());
            (self.places, self.fault) = (None, None);
        }
        if self.grown.is_none() {
            let age = about.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            self.age = age.unwrap_or_default();
        } else {
            self.age = Duration::ZERO;
        }
        self.grown = Some(Instant::now());
        let text = String::from_utf8_lossy(&text);
        let limit = self.limit();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match &self.places {
                None => match Places::of(line) {
                    Ok(places) => {
                        self.rows.start();
                        self.places = Some(places);
                    }
                    Err(e) => {
                        self.fault = Some(e.clone());
                        return Err(e);
                    }
                },
                Some(places) => self.rows.push(line, places, limit, &mut self.sums),
            }
        }
        Ok((true, more))
    }

    fn state_now(&self) -> RunState {
        if self.problem.is_some() || self.identity.is_none() {
            return RunState::Broken;
        }
        let age = |at: SystemTime| SystemTime::now().duration_since(at).ok();
        RunState::of(&Activity {
            done: self.planned().is_some_and(|planned| self.sums.steps >= planned),
            epochs: self.sums.epochs as u64,
            saved: self.checkpoint,
            has_checkpoints: self.identity.as_ref().is_some_and(|i| i.source == Source::Epo),
            silent: self.grown.map(|at| at.elapsed() + self.age),
            age: self.stamps[0].and_then(age),
            seconds: self.seconds(),
        })
    }

    /// Duration of the run in seconds, if it is recorded.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.rows.last(TIME)
    }

    /// Results; `None` before the first episode has ended.
    pub(crate) fn results(&self) -> Option<Results> {
        let from = self.sums.steps * (1.0 - FINAL_SHARE);
        let (ret, cost) = self.rows.means_after(from)?;
        let limited = self.limit().is_some() && self.sums.counted > 0;
        Some(Results {
            ret,
            cost,
            above: limited.then(|| self.sums.above as f64 / self.sums.counted as f64),
            excess: limited.then_some(self.sums.excess),
            stays_from: limited.then_some(self.sums.stays_from).flatten(),
        })
    }

    /// A message for the user about the run's files; empty if all is well.
    pub(crate) fn remark(&self) -> String {
        match (&self.problem, self.sums.broken) {
            (Some(problem), _) => printable(problem).into_owned(),
            (None, 0) if self.sums.epochs == 0 => "The run has not finished an epoch.".into(),
            (None, 0) if self.limit().is_none() => "The configuration names no cost limit.".into(),
            (None, 0) => String::new(),
            (None, 1) => "1 row of progress.csv is broken and left out.".into(),
            (None, n) => format!("{n} rows of progress.csv are broken and left out."),
        }
    }

    /// Returns the epoch that contains a number of steps or, if steps are not given, a number of hours. Also
    /// returns the steps before and after that epoch.
    pub(crate) fn epoch_at(&self, steps: Option<f64>, hours: Option<f64>) -> Option<(u32, f64, f64)> {
        let last = self.rows.steps.len().checked_sub(1)?;
        let place = match (steps, hours) {
            (Some(steps), _) => self.rows.steps.partition_point(|&s| s < steps),
            (None, Some(hours)) => self
                .rows
                .values
                .get(TIME)?
                .iter()
                .position(|&s| f64::from(s) >= 3600.0 * hours)
                .unwrap_or(last),
            (None, None) => last,
        };
        let i = place.min(last);
        let from = i.checked_sub(1).map_or(0.0, |j| self.rows.steps[j]);
        Some((self.rows.epoch[i], from, self.rows.steps[i]))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use super::*;
    use crate::rows::{COST, EXCESS, MOST_ROWS, QUANTITIES};

    pub(crate) const HEADER: &str = "Metrics/EpRet,Metrics/EpCost,TotalEnvSteps,Time/Total,Penalty/Mu";

    fn run(dir: &Path, config: &str) -> Run {
        let dir = dir.canonicalize().unwrap();
        fs::write(dir.join("config.toml"), config).unwrap();
        Run::new(Folder::new(&dir, &dir), "x".into(), "r".into())
    }

    const CONFIG: &str = "[run]\ntask = \"T\"\nalgo = \"epo\"\nseed = 3\nlimit = 25.0\nsteps = 400";

    #[test]
    fn rows_become_results_as_they_come() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = run(dir.path(), CONFIG);
        let path = dir.path().join("progress.csv");
        assert_eq!(run.refresh(), (true, false));
        assert_eq!(
            (run.state, run.remark().as_str()),
            (RunState::Training, "The run has not finished an epoch.")
        );
        fs::write(&path, format!("{HEADER}\n,,100,1,0.5\n1,30,200,2,0.4\n2,20,30")).unwrap();
        assert_eq!(run.refresh(), (true, false));
        assert_eq!((run.sums.epochs, run.sums.steps), (2, 200.0), "the half-written row waits");
        let results = run.results().unwrap();
        assert_eq!(
            (results.ret, results.cost, results.above, results.excess),
            (1.0, 30.0, Some(1.0), Some(5.0))
        );
        assert_eq!(results.stays_from, None);
        assert_eq!(run.refresh(), (false, false), "nothing is new");

        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"0,3,0.3\nnonsense\n3,24,400,4,0.2\n").unwrap();
        assert_eq!(run.refresh(), (true, false));
        assert_eq!(run.state, RunState::Done);
        assert_eq!(run.remark(), "1 row of progress.csv is broken and left out.");
        let results = run.results().unwrap();
        let mu = QUANTITIES.iter().position(|q| q.key == "mu").unwrap();
        assert_eq!((results.ret, results.cost, results.stays_from), (3.0, 24.0, Some(2)));
        assert_eq!(results.above, Some(1.0 / 3.0));
        assert_eq!(run.rows.values[mu], [0.5, 0.4, 0.3, 0.2]);
        assert_eq!(run.rows.values[EXCESS][1..], [5.0, 5.0, 5.0]);
        assert_eq!(run.epoch_at(Some(250.0), None), Some((2, 200.0, 300.0)));
        assert_eq!(run.epoch_at(None, Some(1.5 / 3600.0)), Some((1, 100.0, 200.0)));

        fs::remove_file(&path).unwrap();
        run.refresh();
        assert_eq!((run.state, run.remark().as_str()), (RunState::Broken, "progress.csv is gone."));
    }

    /// This test fails if a violation in a single epoch of a long run disappears, or if the newest row does.
    #[test]
    fn a_long_run_keeps_its_highest_costs_and_its_newest_row() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = run(dir.path(), CONFIG);
        let path = dir.path().join("progress.csv");
        for rows in [4097, 5000, 10_001, 20_001] {
            let cost = |i| if i == 777 || i == rows - 1 { 99.0 } else { f64::from(i % 3) };
            let text: String = (1..=rows).map(|i| format!("{i},{},{i},1,1\n", cost(i))).collect();
            fs::write(&path, format!("{HEADER}\n{text}")).unwrap();
            while run.refresh().1 {}
            let kept = |epoch| run.rows.epoch.iter().position(|&e| e == epoch);
            let costs = [776, rows - 2].map(|epoch| run.rows.values[COST][kept(epoch as u32).unwrap()]);
            assert_eq!((costs, run.rows.steps.last()), ([99.0; 2], Some(&f64::from(rows))), "{rows}");
            assert!(run.rows.epoch.is_sorted_by(|a, b| a < b) && run.rows.steps.len() <= MOST_ROWS, "{rows}");
            // final values are means over all rows, not over those with high costs
            let results = run.results().unwrap();
            assert!((results.cost - 1.0).abs() < 0.3, "{rows}: {}", results.cost);
            assert!((results.ret - 0.95 * f64::from(rows)).abs() < 10.0, "{rows}: {}", results.ret);
        }
    }

    /// This test fails if sums leave out rows that are not kept, or if kept rows have wrong epochs.
    #[test]
    fn long_runs_are_thinned_but_counted_in_full() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = run(dir.path(), CONFIG);
        let rows: String = (1..=10_000).map(|i| format!("1,{},{i},1,1\n", 25 + i % 2)).collect();
        fs::write(dir.path().join("progress.csv"), format!("{HEADER}\n{rows}")).unwrap();
        while run.refresh().1 {}
        assert_eq!((run.sums.epochs, run.results().unwrap().above), (10_000, Some(0.5)));
        assert!(run.rows.steps.len() <= MOST_ROWS && run.rows.steps.len() > MOST_ROWS / 2);
        let kept = run.rows.epoch.iter().zip(&run.rows.steps);
        assert!(kept.into_iter().all(|(&e, &s)| f64::from(e) + 1.0 == s));
    }

    #[test]
    fn a_silent_run_is_stopped_or_dead() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.csv");
        let mut run = run(dir.path(), CONFIG);
        fs::write(&path, format!("{HEADER}\n1,30,100,1,1\n1,30,200,2,1\n")).unwrap();
        let old = SystemTime::now() - Duration::from_secs(1000);
        fs::File::options().append(true).open(&path).unwrap().set_modified(old).unwrap();
        run.refresh();
        assert_eq!(run.state, RunState::Dead, "no checkpoint");
        fs::create_dir_all(dir.path().join("checkpoint/000001")).unwrap();
        run.refresh();
        assert_eq!(run.state, RunState::Dead, "the second epoch is not saved");
        fs::create_dir_all(dir.path().join("checkpoint/000002")).unwrap();
        fs::write(dir.path().join("checkpoint/000002/manifest.json"), r#"{"hash": "abc"}"#).unwrap();
        assert!(run.refresh().0, "a checkpoint that comes after its row is shown");
        assert_eq!((run.state, run.hash.as_deref()), (RunState::Stopped, Some("abc")));
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"1,30,300,3,1\n").unwrap();
        run.refresh();
        assert_eq!(run.state, RunState::Training, "a new row");
    }

    #[test]
    fn missing_columns_and_configurations_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = run(dir.path(), CONFIG);
        fs::write(dir.path().join("progress.csv"), "a,b\n1,2\n").unwrap();
        for _ in 0..2 {
            run.refresh();
            assert_eq!(run.remark(), "progress.csv has no column Metrics/EpRet.");
        }
        fs::write(dir.path().join("config.toml"), "[run").unwrap();
        let mut run = Run::new(run.folder.clone(), "x".into(), "r".into());
        run.refresh();
        assert!(run.remark().starts_with("config.toml is broken"), "{}", run.remark());
    }
}
