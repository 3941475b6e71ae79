//! Reads the evaluations of a run from `eval.json`, in its present form and in the form of version 0.3.
//!
//! ```text
//! now  {"hash", "evaluations": [{"hash", "physics", "policy": "mean"|"sampled", "episodes", "return": {"mean"},
//!       "cost": {"mean", "ci95", "p_feasible"}}]}
//! 0.3  {"hash", "stochastic": bool, "episodes", "return": {"mean"}, "cost": {"mean", "p_feasible"}}
//! ```

use serde_json::Value;

use crate::files::printable;

/// How actions are chosen in an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvaluatedPolicy {
    /// Actions are sampled from the policy, as in training.
    Sampled,
    /// The action is the mean of the policy, or its most probable action if actions are discrete.
    Mean,
    /// The file does not contain this information.
    Unknown,
}

impl EvaluatedPolicy {
    /// All values, in the order of the tables.
    pub(crate) const ALL: [Self; 3] = [Self::Sampled, Self::Mean, Self::Unknown];

    /// Returns the name for tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled action",
            Self::Mean => "mean action",
            Self::Unknown => "policy not recorded",
        }
    }
}

/// Means over the episodes of one evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Hash of the checkpoint that was evaluated.
    pub hash: Option<String>,
    /// Whether bodies were simulated as in the published task.
    pub published: bool,
    /// How actions are chosen.
    pub policy: EvaluatedPolicy,
    /// Number of episodes.
    pub episodes: u64,
    /// Mean return.
    pub ret: f64,
    /// Mean cost.
    pub cost: f64,
    /// 95 % interval of the mean cost.
    pub cost_interval: Option<[f64; 2]>,
    /// Fraction of the episodes whose cost is within the limit.
    pub within: Option<f64>,
}

/// Returns the evaluations in the text of an `eval.json`.
pub(crate) fn parse(text: &str) -> Result<Vec<Evaluation>, String> {
    let file: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    match file.get("evaluations") {
        Some(list) => {
            let list = list.as_array().ok_or("`evaluations` is not a list")?;
            list.iter().map(evaluation).collect()
        }
        None => Ok(vec![evaluation(&file)?]),
    }
}

fn evaluation(value: &Value) -> Result<Evaluation, String> {
    let number = |table: &str, key: &str| value.get(table)?.get(key)?.as_f64();
    let need = |table: &str| number(table, "mean").ok_or_else(|| format!("`{table}.mean` is missing"));
    let policy =
        match (value.get("policy").and_then(Value::as_str), value.get("stochastic").and_then(Value::as_bool))
        {
            (Some("mean"), _) | (None, Some(false)) => EvaluatedPolicy::Mean,
            (Some("sampled"), _) | (None, Some(true)) => EvaluatedPolicy::Sampled,
            _ => EvaluatedPolicy::Unknown,
        };
    Ok(Evaluation {
        hash: value.get("hash").and_then(Value::as_str).map(|hash| printable(hash).into_owned()),
        published: value.get("physics").and_then(Value::as_str).is_none_or(|name| name == "published"),
        policy,
        episodes: value.get("episodes").and_then(Value::as_u64).ok_or("`episodes` is missing")?,
        ret: need("return")?,
        cost: need("cost")?,
        cost_interval: value.get("cost").and_then(|cost| {
            let ends = cost.get("ci95")?.as_array()?;
            Some([ends.first()?.as_f64()?, ends.get(1)?.as_f64()?])
        }),
        within: number("cost", "p_feasible"),
    })
}

/// Returns the evaluation of `policy` that counts: one with published physics before others, then the one with the most
/// episodes, then the last.
pub(crate) fn of_policy(evaluations: &[Evaluation], policy: EvaluatedPolicy) -> Option<&Evaluation> {
    evaluations.iter().filter(|e| e.policy == policy).max_by_key(|e| (e.published, e.episodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let one = |policy: &str, cost: f64| {
            format!(
                r#"{{{policy} "episodes": 4, "return": {{"mean": 1.5}}, "cost": {{"mean": {cost}, "ci95": [8.0, 52.0], "p_feasible": 0.25}}, "hash": "ab"}}"#
            )
        };
        for (key, policy) in [
            ("", EvaluatedPolicy::Unknown),
            (r#""stochastic": false,"#, EvaluatedPolicy::Mean),
            (r#""stochastic": true,"#, EvaluatedPolicy::Sampled),
        ] {
            let want = Evaluation {
                hash: Some("ab".to_owned()),
                published: true,
                policy,
                episodes: 4,
                ret: 1.5,
                cost: 30.0,
                cost_interval: Some([8.0, 52.0]),
                within: Some(0.25),
            };
            assert_eq!(parse(&one(key, 30.0)).unwrap(), [want]);
        }
        let list = [one(r#""policy": "sampled","#, 3.0), one(r#""policy": "mean","#, 9.0)].join(",");
        let got = parse(&format!(r#"{{"hash": "cd", "evaluations": [{list}]}}"#)).unwrap();
        assert_eq!(of_policy(&got, EvaluatedPolicy::Sampled).map(|e| e.cost), Some(3.0));
        assert_eq!(of_policy(&got, EvaluatedPolicy::Mean).map(|e| e.cost), Some(9.0));
        assert_eq!(of_policy(&got, EvaluatedPolicy::Unknown), None);
    }

    #[test]
    fn of_several_evaluations_the_published_counts_then_the_longest_then_the_last() {
        let e = |episodes, cost| Evaluation {
            hash: None,
            published: true,
            policy: EvaluatedPolicy::Mean,
            episodes,
            ret: 0.0,
            cost,
            cost_interval: None,
            within: None,
        };
        let cost = |list: &[Evaluation]| of_policy(list, EvaluatedPolicy::Mean).map(|e| e.cost);
        assert_eq!(cost(&[e(100, 1.0), e(10, 2.0)]), Some(1.0));
        assert_eq!(cost(&[e(10, 1.0), e(10, 2.0)]), Some(2.0));
        assert_eq!(cost(&[e(10, 1.0), Evaluation { published: false, ..e(100, 2.0) }]), Some(1.0));
    }

    #[test]
    fn a_broken_file_says_what_is_missing() {
        for (text, part) in [
            ("{", "EOF"),
            (r#"{"episodes": 1}"#, "`return.mean`"),
            (r#"{"evaluations": 3}"#, "not a list"),
            (r#"{"return": {"mean": 1}, "cost": {"mean": 1}}"#, "`episodes`"),
        ] {
            assert!(parse(text).unwrap_err().contains(part), "{text}: {:?}", parse(text));
        }
    }
}
