//! Layers of configuration. Each layer replaces values of the layer below, and every key and type is checked.
//!
//! The table of the defaults is complete, so it defines the valid keys and their types. An integer may be written as
//! `1e6`, and a floating-point number as `1`. A parameter whose default is `"auto"` also accepts a number.

use epo_report::settings::leaves;
use toml::{Table, Value};

use crate::config::ConfigError;

/// Replaces values of `base` by those of `layer`. `defaults` has the same keys as `base` and defines the types.
pub(crate) fn overlay(base: &mut Table, layer: &Table, defaults: &Table) -> Result<(), ConfigError> {
    overlay_at("", base, layer, defaults, defaults)
}

/// Does the same as [`overlay`] for the table with the dotted name `path`. `root` is the table of all defaults.
fn overlay_at(
    path: &str,
    base: &mut Table,
    layer: &Table,
    defaults: &Table,
    root: &Table,
) -> Result<(), ConfigError> {
    for (key, value) in layer {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let (Some(slot), Some(default)) = (base.get_mut(key), defaults.get(key)) else {
            return Err(unknown(&path, root));
        };
        match (slot, value, default) {
            (Value::Table(inner), Value::Table(layer), Value::Table(defaults)) => {
                overlay_at(&path, inner, layer, defaults, root)?;
            }
            (slot, value, default) => *slot = convert(default, value, &path)?,
        }
    }
    Ok(())
}

/// Parses an assignment such as `train.gamma=0.99` and returns a table with this entry. A value that is not valid TOML
/// is taken as a string.
pub(crate) fn assignment(text: &str) -> Result<Table, ConfigError> {
    let (key, value) = text.split_once('=').ok_or_else(|| ConfigError::Assignment(text.to_owned()))?;
    let (key, value) = (key.trim(), value.trim());
    let parsed = format!("x = {value}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
    let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    let mut parts = key.rsplit('.');
    let last = parts.next().unwrap_or_default();
    if key.split('.').any(str::is_empty) {
        return Err(ConfigError::Assignment(text.to_owned()));
    }
    let leaf = Table::from_iter([(last.to_owned(), value)]);
    Ok(parts.fold(leaf, |inner, part| Table::from_iter([(part.to_owned(), Value::Table(inner))])))
}

/// Returns `value` converted to the type of `default`.
fn convert(default: &Value, value: &Value, path: &str) -> Result<Value, ConfigError> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2⁵³: f64 represents all integers up to this value exactly
    match (default, value) {
        (Value::Integer(_), Value::Float(x)) if x.fract() == 0.0 && x.abs() < EXACT => {
            Ok(Value::Integer(*x as i64))
        }
        (Value::Integer(_), Value::Float(x)) if x.fract() == 0.0 => Err(ConfigError::Value {
            key: path.to_owned(),
            got: format!("{x:e}"),
            why: "is too large for a whole number in this notation (at most 9e15)".to_owned(),
        }),
        (Value::Float(_), Value::Integer(i)) => Ok(Value::Float(*i as f64)),
        (Value::String(auto), Value::Float(_)) if auto == "auto" => Ok(value.clone()),
        (Value::String(auto), Value::Integer(i)) if auto == "auto" => Ok(Value::Float(*i as f64)),
        (Value::Array(default), Value::Array(values)) => {
            let one =
                |value| default.first().map_or_else(|| Ok(Value::clone(value)), |d| convert(d, value, path));
            Ok(Value::Array(values.iter().map(one).collect::<Result<_, _>>()?))
        }
        _ if default.same_type(value) => Ok(value.clone()),
        _ => Err(ConfigError::Type {
            key: path.to_owned(),
            got: value.to_string(),
            want: match default {
                Value::Integer(_) => "a whole number",
                Value::Float(_) => "a number",
                Value::Boolean(_) => "true or false",
                Value::String(_) => "a text",
                Value::Array(_) => "a list",
                _ => "a table",
            },
        }),
    }
}

fn unknown(path: &str, root: &Table) -> ConfigError {
    let keys = leaves(root);
    let nearest = match path {
        "train.batch" => Some("train.minibatch".to_owned()), // its name up to version 0.3
        path => nearest(path, keys.iter().map(|(name, _)| name.as_str())),
    };
    ConfigError::UnknownKey { key: path.to_owned(), nearest }
}

/// Returns the candidate that is most similar to `name`; `None` if no candidate is similar. The last part of the dotted
/// name counts most.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    const ALIKE: f64 = 0.85; // the same word scores 1.1
    fn last(name: &str) -> &str {
        name.rsplit('.').next().unwrap_or(name)
    }
    let alike = |c: &str| {
        let by_part = strsim::jaro_winkler(&last(name).to_lowercase(), &last(c).to_lowercase());
        by_part + 0.1 * strsim::jaro_winkler(&name.to_lowercase(), &c.to_lowercase())
    };
    let best = candidates.max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(best) > ALIKE).then(|| best.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid(layer: &str) -> Result<Table, ConfigError> {
        let root: Table =
            "[run]\nsteps = 10\n[train]\ngamma = 0.5\nhidden = [64]\nnorm = true\nscale = \"auto\""
                .parse()
                .unwrap();
        let mut base = root.clone();
        overlay(&mut base, &layer.parse().unwrap(), &root)?;
        Ok(base)
    }

    #[test]
    fn integers_and_floats_may_be_written_either_way() {
        let table = laid("run.steps = 1e6\ntrain.gamma = 1\ntrain.hidden = [32, 3e1]").unwrap();
        assert_eq!(table["run"]["steps"].as_integer(), Some(1_000_000));
        assert_eq!(table["train"]["gamma"].as_float(), Some(1.0));
        assert_eq!(table["train"]["hidden"].as_array().unwrap()[1].as_integer(), Some(30));
        assert!(laid("run.steps = 1.5").is_err() && laid("run.steps = \"x\"").is_err());
        assert!(
            laid("train.norm = 1").is_err() && laid("train = 1").is_err() && laid("run.steps.x = 1").is_err()
        );
    }

    /// This test fails if the type is taken from the layer below instead of the defaults, or if a boolean is accepted.
    #[test]
    fn an_automatic_number_accepts_a_number_and_auto() {
        let root: Table = "scale = \"auto\"".parse().unwrap();
        let mut base = root.clone();
        for (layer, want) in [("scale = 2", "scale = 2.0"), ("scale = \"auto\"", "scale = \"auto\"")] {
            overlay(&mut base, &layer.parse().unwrap(), &root).unwrap();
            assert_eq!(base, want.parse().unwrap());
        }
        assert!(laid("train.scale = true").is_err());
    }

    #[test]
    fn a_key_without_a_similar_one_has_no_suggestion() {
        let keys = ["train.max_grad_norm", "train.gamma", "run.steps"];
        assert_eq!(nearest("grid", keys.into_iter()), None);
        assert_eq!(laid("grid = 1").unwrap_err().to_string(), "there is no `grid`");
    }

    #[test]
    fn an_unknown_key_names_the_nearest_with_its_path() {
        for (layer, key, want) in [
            ("train.gama = 1", "train.gama", "train.gamma"),
            ("steps = 1", "steps", "run.steps"),
            ("tran.gamma = 1", "tran", "train.gamma"),
            ("run.gamma = 1", "run.gamma", "train.gamma"),
        ] {
            match laid(layer) {
                Err(ConfigError::UnknownKey { key: k, nearest }) => {
                    assert_eq!(k, key);
                    assert!(
                        layer.starts_with("tran.") || nearest.as_deref() == Some(want),
                        "{layer}: {nearest:?}"
                    );
                }
                other => panic!("{layer}: {other:?}"),
            }
        }
    }

    #[test]
    fn assignments_are_dotted_and_bare_words_are_text() {
        assert_eq!(assignment("run.algo=ppo-lag").unwrap()["run"]["algo"].as_str(), Some("ppo-lag"));
        assert_eq!(assignment("train.gamma = 0.9").unwrap()["train"]["gamma"].as_float(), Some(0.9));
        assert_eq!(
            assignment("train.hidden=[1, 2]").unwrap()["train"]["hidden"].as_array().unwrap().len(),
            2
        );
        for bad in ["x", "=1", "a..b=1", ".a=1"] {
            assert!(assignment(bad).is_err(), "{bad}");
        }
    }
}
