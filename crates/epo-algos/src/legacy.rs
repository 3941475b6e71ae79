//! Conversion of configurations that earlier versions saved to the keys of this version.

use toml::{Table, Value};

use crate::auto::AUTO;

/// Renames the keys of a configuration that version 0.3 or earlier saved. A configuration of this version is
/// unchanged.
///
/// - `train.batch` becomes `train.minibatch`, and `algo.critic_batch` becomes
///   `algo.critic_minibatch`.
/// - `algo.variant = "released"` becomes the algorithm `epo-released`.
/// - A scale of 0 meant 1 − γ. `violation_scale = 0` becomes `auto`, and `c_scale = 0` becomes the
///   number 1 − γ of the cost.
/// - `normalize_values` becomes false: critics learned values in the units of the task.
/// - Parameters of EPO's penalty that this version does not have are removed.
/// - `run.steps` becomes the number of steps that the run made, because a run ended with a whole
///   epoch.
pub fn modernise(config: &mut Table) {
    let old = rename(config, "train", "batch", "minibatch");
    rename(config, "algo", "critic_batch", "critic_minibatch");
    let gamma = entry(config, "train", "gamma_c").and_then(|v| number(v)).unwrap_or(0.99);
    for (key, meaning) in
        [("violation_scale", Value::String(AUTO.to_owned())), ("c_scale", Value::Float(1.0 - gamma))]
    {
        if let Some(scale) = entry(config, "algo", key).filter(|v| number(v) == Some(0.0)) {
            *scale = meaning;
        }
    }
    separate_released(config);
    drop_old_penalty(config);
    if let Some(train) = entry_table(config, "train") {
        train.entry("normalize_values").or_insert(Value::Boolean(false));
    }
    if old {
        round_steps(config);
    }
}

fn entry<'a>(config: &'a mut Table, table: &str, key: &str) -> Option<&'a mut Value> {
    config.get_mut(table)?.as_table_mut()?.get_mut(key)
}

fn entry_table<'a>(config: &'a mut Table, table: &str) -> Option<&'a mut Table> {
    config.get_mut(table)?.as_table_mut()
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// Renames a key if it exists, and returns whether it did.
fn rename(config: &mut Table, table: &str, old: &str, new: &str) -> bool {
    let Some(table) = config.get_mut(table).and_then(Value::as_table_mut) else { return false };
    let Some(value) = table.remove(old) else { return false };
    table.insert(new.to_owned(), value);
    true
}

/// Turns the variant `released` of EPO into the algorithm `epo-released` with its own parameters.
fn separate_released(config: &mut Table) {
    let Some(algo) = config.get_mut("algo").and_then(Value::as_table_mut) else { return };
    if algo.get("variant").and_then(Value::as_str) == Some("paper") {
        algo.remove("variant");
    }
    if algo.get("variant").and_then(Value::as_str) != Some("released") {
        return;
    }
    let alpha = match algo.get("pmn").and_then(Value::as_str) {
        Some("linear") => 1.0,
        Some("quadratic") => 0.0,
        _ => 0.5,
    };
    let mut released = Table::from_iter([("alpha".to_owned(), Value::Float(alpha))]);
    for (old, new) in
        [("clip", "clip"), ("mu_init", "mu"), ("psi_max", "psi_max"), ("normalize_loss", "normalize_loss")]
    {
        released.extend(algo.remove(old).map(|value| (new.to_owned(), value)));
    }
    *algo = released;
    if let Some(name) = entry(config, "run", "algo") {
        *name = Value::String("epo-released".to_owned());
    }
}

/// Parameters of EPO's penalty up to version 0.3 that this version does not have.
const OLD_PENALTY: [&str; 11] = [
    "scale_by",
    "scale",
    "psi_slope",
    "mu_max",
    "mu_law",
    "mu_decay",
    "mu_feasible",
    "mu_min",
    "cost_clip",
    "normalize_loss",
    "joint_clip",
];

/// Returns whether a saved configuration is one of EPO up to version 0.3. Its penalty had other parameters, so such a
/// run can be read but not continued.
pub fn has_old_penalty(config: &Table) -> bool {
    let mut config = config.clone();
    separate_released(&mut config);
    is_epo(&config)
        && entry_table(&mut config, "algo")
            .is_some_and(|algo| OLD_PENALTY.iter().any(|key| algo.contains_key(*key)))
}

fn is_epo(config: &Table) -> bool {
    config.get("run").and_then(|run| run.get("algo")).and_then(Value::as_str) == Some("epo")
}

fn drop_old_penalty(config: &mut Table) {
    if is_epo(config)
        && let Some(algo) = entry_table(config, "algo")
    {
        algo.retain(|key, _| !OLD_PENALTY.contains(&key));
    }
}

fn round_steps(config: &mut Table) {
    let per_epoch = entry(config, "train", "steps_per_epoch").and_then(|v| v.as_integer()).unwrap_or(0);
    if let Some(steps) = entry(config, "run", "steps")
        && let Some(asked) = steps.as_integer()
        && per_epoch > 0
        && asked > 0
    {
        *steps = Value::Integer(asked.saturating_add(per_epoch - 1) / per_epoch * per_epoch);
    }
}

/// Whether a checkpoint that names the algorithm `saved` can be one of the algorithm `now`. Up to version 0.3 the released
/// form of EPO was a variant of `epo`.
pub fn is_checkpoint_of(saved: &str, now: &str) -> bool {
    saved == now || (saved, now) == ("epo", "epo-released")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modern(text: &str) -> Table {
        let mut config: Table = text.parse().unwrap();
        modernise(&mut config);
        let once = config.clone();
        modernise(&mut config);
        assert_eq!(config, once, "renaming a second time must change nothing");
        config
    }

    #[test]
    fn the_keys_of_version_0_3_are_renamed() {
        let old = "[run]\nalgo = \"cpo\"\nsteps = 100000\n[train]\nbatch = 50\nsteps_per_epoch = 32000\n\
                   gamma_c = 0.5\n[algo]\nc_scale = 0.0\ncritic_batch = 128\n";
        let want = "[run]\nalgo = \"cpo\"\nsteps = 128000\n[train]\nminibatch = 50\nsteps_per_epoch = 32000\n\
                    gamma_c = 0.5\nnormalize_values = false\n[algo]\nc_scale = 0.5\ncritic_minibatch = 128\n";
        assert_eq!(modern(old), want.parse().unwrap());
        let new = "[run]\nsteps = 100000\n[train]\nminibatch = 50\nsteps_per_epoch = 32000\nnormalize_values = true\n\
                   [algo]\nc_scale = 0.1";
        assert_eq!(modern(new), new.parse().unwrap(), "keys of this version must not change");
    }

    #[test]
    fn the_released_variant_is_an_algorithm() {
        let old = "[run]\nalgo = \"epo\"\n[algo]\nvariant = \"released\"\nclip = 0.3\nmu_init = 4.0\nmu_rate = 0.3\n\
                   psi_max = 6.0\nnormalize_loss = false\npmn = \"linear\"\njoint_clip = true\n";
        let want = "[run]\nalgo = \"epo-released\"\n[algo]\nclip = 0.3\nmu = 4.0\npsi_max = 6.0\nalpha = 1.0\n\
                    normalize_loss = false\n";
        assert_eq!(modern(old), want.parse().unwrap());
        assert!(!has_old_penalty(&old.parse().unwrap()), "the released form has all of its parameters");
        let paper = "[run]\nalgo = \"epo\"\n[algo]\nvariant = \"paper\"\nclip = 0.3\n";
        assert_eq!(modern(paper), "[run]\nalgo = \"epo\"\n[algo]\nclip = 0.3\n".parse().unwrap());
    }

    /// This test fails if a parameter of the old penalty makes a folder unreadable, or if such a run can be continued.
    #[test]
    fn the_old_penalty_is_recognised_and_its_parameters_are_dropped() {
        let old = "[run]\nalgo = \"epo\"\n[algo]\nclip = 0.3\nmu_min = 0.1\njoint_clip = true\n";
        assert!(has_old_penalty(&old.parse().unwrap()));
        assert_eq!(modern(old), "[run]\nalgo = \"epo\"\n[algo]\nclip = 0.3\n".parse().unwrap());
        let new = "[run]\nalgo = \"epo\"\n[algo]\nclip = 0.3\nmu_rate = 0.1\n";
        assert!(!has_old_penalty(&new.parse().unwrap()));
        let other = "[run]\nalgo = \"p3o\"\n[algo]\ncost_clip = \"max\"\n";
        assert!(!has_old_penalty(&other.parse().unwrap()) && modern(other) == other.parse().unwrap());
    }
}
