//! The description of every algorithm, and the list of all of them.
//!
//! Each algorithm describes itself in its own file: it implements [`AlgoSpec`] for its parameters. The macro
//! call at the end of this file is the only list of algorithms. It generates [`AlgoConfig`] and every function
//! that loops over the algorithms.

use epo_core::{Metric, Parameter, TaskFamily};
use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, AppoParams, CostCritic, CpoParams, Discount, EpoLiteralParams, EpoParams, EpoReleasedParams,
    FirstOrder, IpoParams, Objective, P3oParams, PpoLagParams, PpoParams, UpdateConfig, UpdateError,
};

/// The facts about an algorithm that do not depend on its parameters: its names, its summary and its headline metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlgoInfo {
    /// Name that users type, such as `ppo-lag`.
    pub name: &'static str,
    /// Name in figures and tables, such as `PPO-Lag`.
    pub label: &'static str,
    /// Name in the path of a run folder, such as `PPOLag`. It is OmniSafe's name where OmniSafe has the algorithm.
    pub folder: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Whether the cost limit has an effect on training.
    pub reads_limit: bool,
    /// Metrics that a progress line shows, each with its symbol.
    pub headlines: &'static [(&'static str, Metric)],
}

/// The description of an algorithm, implemented by its parameters.
pub trait AlgoSpec: Sized {
    /// Names, summary and headline metrics.
    const INFO: AlgoInfo;

    /// The default parameters for a family of tasks (the preset).
    fn preset(family: TaskFamily) -> Self;

    /// The cost critics that these parameters ask for, in the order of [`crate::Minibatch::adv_c`].
    fn cost_critics(&self) -> &'static [CostCritic];

    /// Returns an error if a parameter is invalid.
    ///
    /// # Errors
    /// The error names the parameter, its value and the rule.
    fn check(&self) -> Result<(), UpdateError>;

    /// How the critics are trained. By default they are trained like the policy, with the settings
    /// that all algorithms share.
    fn critic_training(&self, update: &UpdateConfig) -> CriticTraining {
        CriticTraining {
            passes: update.passes,
            minibatch: update.minibatch,
            passes_key: "train.passes",
            minibatch_key: "train.minibatch",
        }
    }

    /// The algorithm at the start of training. `update` and `discount` are the settings that all algorithms share.
    fn method(&self, update: &UpdateConfig, discount: &Discount) -> Method;
}

/// Number of passes and size of the minibatches of the critics, and the configuration keys that set
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticTraining {
    /// Maximum number of passes over the batch per epoch.
    pub passes: usize,
    /// Number of samples in a minibatch.
    pub minibatch: usize,
    /// Key of `passes`.
    pub passes_key: &'static str,
    /// Key of `minibatch`.
    pub minibatch_key: &'static str,
}

/// How an algorithm updates the agent.
#[derive(Debug)]
pub enum Method {
    /// It minimises an objective in the shared loop, [`FirstOrder`].
    FirstOrder(Box<dyn Objective>),
    /// It has its own update.
    Own(Box<dyn Algorithm>),
}

/// Generates the list of algorithms, and every function that depends on the chosen one, from one line per
/// algorithm.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident($params:ident)),* $(,)?) => {
        /// An algorithm and its parameters, tagged by name: `{ name = "epo", mu_init = 10.0 }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name", rename_all = "kebab-case")]
        pub enum AlgoConfig {
            $($(#[$doc])* $variant($params)),*
        }

        impl AlgoConfig {
            /// Every algorithm with its default parameters, in the order of legends and tables.
            pub fn all_defaults() -> Vec<Self> {
                vec![$(Self::$variant($params::default())),*]
            }

            /// Names, summary and headline metrics.
            pub fn info(&self) -> &'static AlgoInfo {
                match self {
                    $(Self::$variant(_) => const { &<$params as AlgoSpec>::INFO }),*
                }
            }

            /// The same algorithm with its default parameters for a family of tasks.
            pub fn preset(&self, family: TaskFamily) -> Self {
                match self {
                    $(Self::$variant(_) => Self::$variant(<$params as AlgoSpec>::preset(family))),*
                }
            }

            /// The algorithm's own parameters with their documentation.
            pub fn parameters(&self) -> Vec<Parameter> {
                match self {
                    $(Self::$variant(_) => $params::parameters()),*
                }
            }

            /// The cost critics that it needs, for [`crate::Agent::new`].
            pub fn cost_critics(&self) -> &'static [CostCritic] {
                match self {
                    $(Self::$variant(params) => params.cost_critics()),*
                }
            }

            /// How the critics are trained.
            pub fn critic_training(&self, update: &UpdateConfig) -> CriticTraining {
                match self {
                    $(Self::$variant(params) => params.critic_training(update)),*
                }
            }

            fn check_own(&self) -> Result<(), UpdateError> {
                match self {
                    $(Self::$variant(params) => params.check()),*
                }
            }

            fn method(&self, update: &UpdateConfig, discount: &Discount) -> Method {
                match self {
                    $(Self::$variant(params) => params.method(update, discount)),*
                }
            }
        }
    };
}

algorithms! {
    /// Exterior Penalty Policy Optimization.
    Epo(EpoParams),
    /// Penalised PPO.
    P3o(P3oParams),
    /// PPO with a Lagrange multiplier.
    PpoLag(PpoLagParams),
    /// Constrained policy optimisation.
    Cpo(CpoParams),
    /// Augmented Lagrangian PPO.
    Appo(AppoParams),
    /// Interior-point policy optimisation.
    Ipo(IpoParams),
    /// Proximal policy optimisation, which ignores the cost.
    Ppo(PpoParams),
    /// EPO as its paper prints it.
    EpoLiteral(EpoLiteralParams),
    /// EPO as its authors' released code intends it.
    EpoReleased(EpoReleasedParams),
}

impl AlgoConfig {
    /// The algorithm of this name with its default parameters.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all_defaults().into_iter().find(|config| config.name() == name)
    }

    /// The name that users type.
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// The algorithm at the start of training.
    ///
    /// # Errors
    /// If a parameter is invalid; the error names it.
    pub fn build(
        &self,
        update: &UpdateConfig,
        discount: &Discount,
    ) -> Result<Box<dyn Algorithm>, UpdateError> {
        update.check()?;
        discount.check()?;
        self.check_own()?;
        Ok(match self.method(update, discount) {
            Method::FirstOrder(objective) => {
                Box::new(FirstOrder::new(objective, update.clone(), self.cost_critics().len()))
            }
            Method::Own(algorithm) => algorithm,
        })
    }

    /// Returns the objective of a first-order method at the start of training; `None` if the algorithm has its
    /// own update. `gamma_c` is the discount of the cost.
    pub fn objective(&self, gamma_c: f64) -> Option<Box<dyn Objective>> {
        let discount = Discount { gamma_c, ..Discount::default() };
        match self.method(&UpdateConfig::default(), &discount) {
            Method::FirstOrder(objective) => Some(objective),
            Method::Own(_) => None,
        }
    }

    /// Every metric that the algorithm reports with these parameters, in the order of the columns of `progress.csv`.
    pub fn metrics(&self) -> Vec<Metric> {
        match self.method(&UpdateConfig::default(), &Discount::default()) {
            Method::FirstOrder(objective) => {
                FirstOrder::new(objective, UpdateConfig::default(), self.cost_critics().len()).metrics()
            }
            Method::Own(algorithm) => algorithm.metrics(),
        }
    }
}

/// Returns an error about the first number that is not finite or fails `test`.
pub(crate) fn require(
    values: &[(&'static str, f64)],
    test: impl Fn(f64) -> bool,
    reason: &'static str,
) -> Result<(), UpdateError> {
    match values.iter().find(|(_, v)| !v.is_finite() || !test(*v)) {
        None => Ok(()),
        Some(&(key, value)) => Err(UpdateError::Config { key, value, reason }),
    }
}

/// Checks that every number is finite and positive.
pub(crate) fn positive(values: &[(&'static str, f64)]) -> Result<(), UpdateError> {
    require(values, |v| v > 0.0, "must be positive")
}

/// Checks that every number is finite and at least 0.
pub(crate) fn not_negative(values: &[(&'static str, f64)]) -> Result<(), UpdateError> {
    require(values, |v| v >= 0.0, "must be at least 0")
}

/// Checks the half-width ε of a ratio clip.
pub(crate) fn check_clip(clip: f64) -> Result<(), UpdateError> {
    require(&[("algo.clip", clip)], |v| v > 0.0 && v < 1.0, "must be between 0 and 1")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_labels_and_folders_are_unique() {
        let all = AlgoConfig::all_defaults();
        for of in [|i: &AlgoInfo| i.name, |i: &AlgoInfo| i.label, |i: &AlgoInfo| i.folder] {
            let names: BTreeSet<_> = all.iter().map(|config| of(config.info())).collect();
            assert_eq!(names.len(), all.len(), "{names:?}");
        }
    }

    /// This test fails if the progress bar shows a metric that the algorithm does not report.
    #[test]
    fn every_headline_is_a_metric_of_its_algorithm() {
        for config in AlgoConfig::all_defaults() {
            for (symbol, metric) in config.info().headlines {
                assert!(config.metrics().contains(metric), "{}: {symbol}", config.name());
            }
        }
    }

    /// This test fails if a file describes an algorithm that is not in the list: users and tests would never see it.
    #[test]
    fn every_description_in_this_crate_is_in_the_list() {
        let mut described = BTreeSet::new();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let spec = ["impl ", "AlgoSpec for "].concat(); // this file is searched too
            described.extend(text.lines().filter_map(|l| Some(l.strip_prefix(&spec)?.to_owned())));
        }
        let listed = AlgoConfig::all_defaults().len();
        assert_eq!(described.len(), listed, "an algorithm is described but not in the list: {described:?}");
    }

    /// This test fails if a documented parameter does not exist, or if a parameter is not documented. It also fails if
    /// a text states a default, which could differ from the one in use.
    #[test]
    fn the_documented_parameters_are_those_of_the_configuration() {
        let tables = AlgoConfig::all_defaults().into_iter().map(|config| {
            let json = serde_json::to_value(&config).unwrap();
            (config.name(), json, config.parameters())
        });
        let shared = [
            ("train", serde_json::to_value(UpdateConfig::default()).unwrap(), UpdateConfig::parameters()),
            ("discount", serde_json::to_value(Discount::default()).unwrap(), Discount::parameters()),
        ];
        for (name, json, parameters) in tables.chain(shared) {
            let mut keys: BTreeSet<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
            keys.remove("name");
            let documented: BTreeSet<&str> = parameters.iter().map(|p| p.key).collect();
            assert_eq!(documented, keys, "{name}");
            for parameter in parameters {
                let text = parameter.text();
                assert!(text.len() > 20 && text.ends_with('.'), "{name}.{}: {text:?}", parameter.key);
                assert!(!text.contains("Default"), "{name}.{}: the macro writes the default", parameter.key);
            }
        }
    }

    /// This test fails if a preset belongs to another algorithm or has a parameter that is not documented. It also
    /// fails if the check of the algorithm refuses a value.
    #[test]
    fn every_preset_is_a_valid_configuration_of_its_algorithm() {
        for config in AlgoConfig::all_defaults() {
            for family in TaskFamily::ALL {
                let (name, preset) = (config.name(), config.preset(family));
                assert_eq!(preset.name(), name, "the preset for {} tasks", family.name());
                let json = serde_json::to_value(&preset).unwrap();
                let documented = preset.parameters();
                for key in json.as_object().unwrap().keys().filter(|key| *key != "name") {
                    assert!(documented.iter().any(|p| p.key == key), "{name} has no parameter `{key}`");
                }
                let built = preset.build(&UpdateConfig::default(), &Discount::default());
                assert!(built.is_ok(), "{name}, {} tasks: {built:?}", family.name());
            }
        }
    }
}
