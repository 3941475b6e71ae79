//! Estimate of the memory that a run needs, made before anything is allocated.
//!
//! ```text
//! samples   steps_per_epoch × (observation, action, four numbers, and per critic four numbers and an advantage)
//! orders    passes × steps_per_epoch × 4 bytes
//! networks  critics and policy × parameters × (value, two moments, gradient, transposed and saved copies)
//! buffers   minibatch × widths × networks, and 256 × widths for the whole batch
//! ```
//! The estimate is a lower bound, because it does not include the simulators. It is meant to detect runs that cannot
//! fit into memory.

use epo_algos::CriticTraining;
use epo_core::{ActionSpace, EnvSpec};
use epo_tasks::TaskInfo;

use crate::config::{ConfigError, ResolvedRun};

/// Returns an error if a run needs more memory than the machine or the control group (cgroup) of this process has.
///
/// # Errors
/// [`ConfigError::Memory`], which names the key that most of the memory depends on.
pub fn check(run: &ResolvedRun, spec: &EnvSpec) -> Result<(), ConfigError> {
    available().map_or(Ok(()), |has| check_against(run, spec, has))
}

/// Does the same as [`check`] for a task of the registry, before the task is compiled.
///
/// # Errors
/// [`ConfigError::Memory`], which names the key that most of the memory depends on.
pub fn check_task(run: &ResolvedRun, task: &TaskInfo) -> Result<(), ConfigError> {
    let action = ActionSpace::symmetric(task.act_len);
    let (id, obs_len, max_steps) = (task.id.clone(), task.obs_len, task.max_steps);
    check(run, &EnvSpec { id, obs_len, action, max_steps, cost_terms: Vec::new() })
}

fn check_against(run: &ResolvedRun, spec: &EnvSpec, has: u64) -> Result<(), ConfigError> {
    let parts = parts(run, spec);
    let needs = parts.iter().map(|(_, bytes)| bytes).sum::<f64>() as u64; // saturates
    if needs <= has {
        return Ok(());
    }
    let largest =
        parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("train.steps_per_epoch", |(key, _)| key);
    let value = largest.split('.').try_fold(toml::Value::Table(run.to_table()), |v, key| v.get(key).cloned());
    let got = value.map_or_else(String::new, |v| v.to_string());
    Err(ConfigError::Memory { key: largest, got, needs, has })
}

/// Returns the parts of the estimate in bytes, each with the configuration key that it depends on most.
fn parts(run: &ResolvedRun, spec: &EnvSpec) -> Vec<(&'static str, f64)> {
    let train = &run.train;
    let (obs, act) = (spec.obs_len as f64, spec.action.len() as f64);
    let cost_critics = run.algo.cost_critics().len() as f64;
    let networks = 2.0 + cost_critics;
    let samples = train.steps_per_epoch as f64;
    let widths: Vec<f64> =
        std::iter::once(obs).chain(train.hidden.iter().map(|w| *w as f64)).chain([act.max(1.0)]).collect();
    let parameters: f64 = widths.windows(2).map(|w| (w[0] + 1.0) * w[1]).sum();
    let units: f64 = widths.iter().sum();
    let CriticTraining { passes, minibatch, passes_key, minibatch_key } =
        run.algo.critic_training(&train.update);
    vec![
        ("train.steps_per_epoch", samples * (4.0 * (obs + act) + 32.0 + networks * 36.0)),
        (passes_key, 4.0 * passes as f64 * samples),
        ("train.hidden", networks * parameters * 4.0 * 6.0),
        (minibatch_key, networks * 3.0 * 4.0 * units * (minibatch as f64 + 256.0)),
        ("train.envs", train.envs as f64 * 4.0 * (spec.max_steps.min(10_000) as f64 * act + units)),
    ]
}

/// Returns the memory of this machine in bytes, or the limit of the control group of this process if that is smaller.
/// `None` if neither is known.
fn available() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let total = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    });
    let group = read("/proc/self/cgroup").unwrap_or_default();
    let limits = group_files(&group).into_iter().filter_map(|path| read(&path)?.trim().parse::<u64>().ok());
    limits.chain(total).min()
}

/// Returns the paths of the files with the memory limits of the control groups and of their parents. `groups` is the
/// text of `/proc/self/cgroup`.
fn group_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{file}"));
            match path.rsplit_once('/') {
                Some((parent, _)) => path = parent,
                None => break,
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> EnvSpec {
        let action = ActionSpace::symmetric(2);
        EnvSpec { id: "Test".into(), obs_len: 60, action, max_steps: 1000, cost_terms: vec![] }
    }

    fn run(set: &[&str]) -> ResolvedRun {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        ResolvedRun::from_layers(None, &set).unwrap()
    }

    /// This test fails if the estimate rejects ordinary runs, or if a factor in it is missing.
    #[test]
    fn the_defaults_fit_and_a_setting_that_does_not_fit_is_named() {
        let gib = 1 << 30;
        assert!(check_against(&run(&[]), &spec(), gib / 8).is_ok(), "the defaults need less than 128 MiB");
        for (set, key) in [
            (["train.hidden=[65536, 65536]"], "train.hidden"),
            (["train.steps_per_epoch=1e8"], "train.steps_per_epoch"),
            (["train.passes=1e6"], "train.passes"),
        ] {
            match check_against(&run(&set), &spec(), 16 * gib) {
                Err(ConfigError::Memory { key: found, needs, .. }) => {
                    assert!(found == key && needs > 16 * gib, "{set:?}: {found} {needs}");
                }
                other => panic!("{set:?}: {other:?}"),
            }
        }
        let said = check_against(&run(&["train.passes=1e6"]), &spec(), gib).unwrap_err().to_string();
        assert_eq!(
            said,
            "`train.passes = 1000000`: the run needs about 59.6 GiB of memory, and 1.0 GiB are available"
        );
    }

    #[test]
    fn the_limits_of_all_parent_groups_count() {
        assert_eq!(
            group_files("0::/user/job\n"),
            [
                "/sys/fs/cgroup/user/job/memory.max",
                "/sys/fs/cgroup/user/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(group_files("3:cpu:/x\n4:memory:/\n"), ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        assert!(available().is_none_or(|bytes| bytes > 1 << 20));
    }
}
