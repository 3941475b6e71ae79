//! The script that is submitted, and the arguments of `sbatch`.

use std::path::Path;

use super::{MOST_TASKS, Resources, Slurm};
use crate::engine::{EngineError, Plan, next_folder};
use crate::sweep::{RunOutcome, StatusReader};

impl Slurm {
    /// Returns the script of a submission in `folder`.
    ///
    /// The options that differ between submissions (array, output, dependency) are given to `sbatch` as arguments.
    ///
    /// # Errors
    /// If a value cannot be written into a script.
    pub fn script(&self, plan: &Plan, folder: &Path) -> Result<String, EngineError> {
        let Resources { partition, time, cpus, mem, account, grace, setup, options, .. } = &self.resources;
        self.resources.check()?;
        let folder = quoted_path(folder)?;
        let excluded = self.resources.excluded().map_or(String::new(), |nodes| format!("{nodes},"));
        let program: Vec<String> = self.program.iter().map(|word| shell(&word.to_string_lossy())).collect();
        let mut lines = vec!["#!/bin/bash".to_owned()];
        let mut option = |name: &str, value: &str| lines.push(format!("#SBATCH --{name}={value}"));
        option("job-name", &job_name(plan));
        option("cpus-per-task", &cpus.to_string());
        let given = [("partition", partition), ("time", time), ("mem", mem), ("account", account)];
        given.into_iter().for_each(|(name, value)| value.iter().for_each(|value| option(name, value)));
        option("signal", &format!("B:TERM@{grace}"));
        option("open-mode", "append");
        lines.push("#SBATCH --requeue".to_owned());
        lines.extend(options.iter().map(|option| format!("#SBATCH {option}")));
        let body = format!(
            r#"
# Each task of the array makes the runs that its line in tasks-*.jsonl names. Without a task number the script only
# checks that this node can make them.
tasks=${{EPO_TASKS:-{folder}}}
{setup}
# Slurm may signal the script and the processes below it, so the program takes a second SIGTERM for the first.
export EPO_SWEEP_CHILD=patient
{} work "$tasks" --task "${{SLURM_ARRAY_TASK_ID:-check}}" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done   # a signal ends `wait` early
# Exit code 75: runs are saved and not finished. The task goes back to the queue and continues from there. A run that
# was started too often has failed, and does not give 75.
# `epo sweep --cancel` makes the file `cancelled`. A task that `scancel` removes is already completing, and stays removed.
completing=$(squeue --noheader --jobs="$SLURM_JOB_ID" --states=COMPLETING 2>/dev/null)
if [ "$code" = 75 ] && [ ! -e "$tasks/../cancelled" ] && [ -z "$completing" ]; then
    scontrol requeue "$SLURM_JOB_ID" > /dev/null
fi
# Exit code 69: this node cannot make the runs. The tasks of the array that still wait go to other nodes.
if [ "$code" = 69 ] && [ -n "$SLURM_ARRAY_JOB_ID" ]; then
    (cd "$tasks/../bad-nodes" && set -- * && IFS=, &&
        scontrol update JobId="$SLURM_ARRAY_JOB_ID" ExcNodeList="{excluded}$*") > /dev/null 2>&1
fi
exit "$code"
"#,
            program.join(" ")
        );
        Ok(lines.join("\n") + &body)
    }

    /// Returns the script that the next call would submit, and the arguments of `sbatch`. Nothing is written.
    ///
    /// # Errors
    /// If a value cannot be written into a script.
    pub fn preview(&self, plan: &Plan) -> Result<String, EngineError> {
        let (folder, _) = next_folder(plan, "slurm")?;
        let mut reader = StatusReader::open(&plan.dir, &plan.runs)?;
        let mut open = 0;
        for index in 0..plan.runs.len() {
            open += usize::from(match reader.outcome(index)? {
                None => true,
                Some(RunOutcome::Failed(..)) => self.retry,
                Some(_) => false,
            });
        }
        let tasks = open.div_ceil(self.resources.pack as usize);
        let script = self.script(plan, &folder)?;
        let arrays = tasks.div_ceil(MOST_TASKS);
        let arguments = self.array_arguments(&folder, tasks.min(MOST_TASKS))?.join(" ");
        let more = if arrays > 1 { format!(", and {} more arrays", arrays - 1) } else { String::new() };
        let call = match tasks {
            0 => "all runs have ended: no array would be submitted".to_owned(),
            _ => format!("sbatch {arguments}{more}"),
        };
        let (head, rest) = script.split_once('\n').unwrap_or((&script, ""));
        Ok(format!("{head}\n# {call}\n{rest}"))
    }

    /// Returns the arguments of `sbatch` for an array.
    pub(super) fn array_arguments(&self, folder: &Path, tasks: usize) -> Result<Vec<String>, EngineError> {
        let limit = self.resources.at_once.map_or(String::new(), |most| format!("%{most}"));
        let folder = plain_path(folder)?;
        Ok(vec![
            format!("--array=0-{}{limit}", tasks.saturating_sub(1)),
            format!("--output={folder}/log/%a.txt"),
        ])
    }
}

/// Name of the jobs of a sweep.
pub(super) fn job_name(plan: &Plan) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    format!("epo-{}", plan.name.chars().map(plain).collect::<String>())
}

/// Returns a path as text. Slurm replaces `%` in names of files, and has no way to write some other characters.
pub(super) fn plain_path(path: &Path) -> Result<String, EngineError> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(['%', '\\', '|', '"']) && !text.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| {
        EngineError::Usage(format!(
            "Slurm cannot use the path {}: choose a plain name (--out)",
            path.display()
        ))
    })
}

fn quoted_path(path: &Path) -> Result<String, EngineError> {
    Ok(shell(&plain_path(path)?))
}

/// Returns a word in single quotes for a shell, if it needs them.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> Plan {
        Plan { dir: "/data/my sweep".into(), name: name.into(), runs: Vec::new(), size: 0 }
    }

    fn script(resources: Resources, name: &str, folder: &str) -> Result<String, String> {
        let program = vec!["/opt/epo it".into()];
        let slurm = Slurm { resources, program, retry: false, detach: false, own_script: None };
        slurm.script(&plan(name), Path::new(folder)).map_err(|e| e.to_string())
    }

    #[test]
    fn resources_are_lines_of_the_script() {
        let resources = Resources {
            partition: Some("gpu".into()),
            time: Some("4:00:00".into()),
            cpus: 2,
            mem: Some("2G".into()),
            account: Some("lab".into()),
            retries: 3,
            grace: 300,
            setup: "module load gcc".into(),
            options: vec!["--qos=high".into()],
            ..Resources::default()
        };
        let script = script(resources, "my paper", "/x/slurm/0001").unwrap();
        for line in [
            "#SBATCH --job-name=epo-my-paper",
            "#SBATCH --partition=gpu",
            "#SBATCH --time=4:00:00",
            "#SBATCH --cpus-per-task=2",
            "#SBATCH --mem=2G",
            "#SBATCH --account=lab",
            "#SBATCH --signal=B:TERM@300",
            "#SBATCH --requeue",
            "#SBATCH --qos=high",
            "module load gcc",
            "tasks=${EPO_TASKS:-/x/slurm/0001}",
            "'/opt/epo it' work \"$tasks\" --task \"${SLURM_ARRAY_TASK_ID:-check}\" &",
            "if [ \"$code\" = 75 ] && [ ! -e \"$tasks/../cancelled\" ] && [ -z \"$completing\" ]; then",
        ] {
            assert!(script.lines().any(|l| l == line), "no line `{line}` in\n{script}");
        }
    }

    /// Fails if a value can add a line to the script, or a path is written that Slurm changes.
    #[test]
    fn values_that_would_break_the_script_are_refused() {
        let script = |resources: Resources, dir: &str| script(resources, "a\nb", dir);
        let evil = Resources { time: Some("1\nrm -r /".into()), ..Resources::default() };
        assert!(script(evil, "/x").unwrap_err().contains("not a value of a Slurm option"));
        let word = Resources { options: vec!["qos=high".into()], ..Resources::default() };
        assert!(script(word, "/x").unwrap_err().contains("add a leading dash"));
        assert!(script(Resources::default(), "/x/100%").unwrap_err().contains("plain name"));
        let good = script(Resources::default(), "/x/my 'sweep'").unwrap();
        assert!(good.contains(r"tasks=${EPO_TASKS:-'/x/my '\''sweep'\'''}"), "{good}");
        assert!(good.contains("--job-name=epo-a-b\n"), "{good}");
    }
}
