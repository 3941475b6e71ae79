//! The contract of every algorithm: the same bits on any number of threads and after a restore. Invalid input has a
//! defined outcome, and reports have the declared order.

mod common;

use std::sync::{Arc, Mutex};

use common::{COST, Learner, REWARD};
use epo_algos::{
    AlgoConfig, CpoParams, FirstOrder, KlDirection, Minibatch, Objective, P3oParams, Ppo, PpoParams,
    UpdateConfig, UpdateError, UpdateReport,
};
use epo_core::{CostReading, Metric};
use epo_nn::Dist;
use toml::{Table, Value};

fn configs() -> Vec<AlgoConfig> {
    AlgoConfig::all_defaults()
}

fn threads(n: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads")
}

fn run(learner: &mut Learner, epochs: usize) -> Vec<UpdateReport> {
    (0..epochs).map(|_| learner.epoch_on(REWARD, COST).expect("an update").2).collect()
}

#[test]
fn the_bits_do_not_depend_on_the_threads() {
    for config in configs() {
        let on = |n: usize| {
            threads(n).install(|| {
                let mut learner = Learner::new(&config, 3, 10);
                let reports = run(&mut learner, 3);
                (learner.bits(), learner.agent.counters(), reports)
            })
        };
        let one = on(1);
        for n in [2, 4] {
            assert!(one == on(n), "{}: {n} threads give other bits than one", config.name());
        }
    }
}

#[test]
fn a_restored_algorithm_continues_with_the_same_bits() {
    for config in configs() {
        let mut whole = Learner::new(&config, 3, 10);
        run(&mut whole, 3);
        // The state goes through text, as in a checkpoint.
        let state = serde_json::to_string(&whole.algo.state()).unwrap();
        let mut resumed = Learner::new(&config, 3, 10);
        resumed.algo.restore(&serde_json::from_str(&state).unwrap()).unwrap();
        {
            let tensors = whole.agent.tensors();
            let find = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.data);
            resumed.agent.load(find, &whole.agent.counters()).unwrap();
            resumed.agent.scales = whole.agent.scales;
        }
        resumed.epoch = whole.epoch;
        let (a, b) = (run(&mut whole, 2), run(&mut resumed, 2));
        let hint = "state() or restore() leaves out a number that begin() changes";
        assert!(a == b && whole.bits() == resumed.bits(), "{}: {hint}", config.name());
        assert_eq!(whole.algo.state(), resumed.algo.state(), "{}: {hint}", config.name());
    }
}

#[test]
fn a_state_of_another_algorithm_is_refused() {
    let mut checked = 0;
    for config in configs() {
        let mut learner = Learner::new(&config, 3, 10);
        if learner.algo.state().is_null() {
            continue; // this algorithm has no state of its own
        }
        checked += 1;
        let error = learner.algo.restore(&serde_json::json!({"nonsense": 1}));
        assert!(error.is_err(), "{} accepted a state of another algorithm", config.name());
    }
    assert!(checked >= 4, "only {checked} algorithms have a state");
}

#[test]
fn reports_hold_the_declared_metrics_in_order_and_finite() {
    for config in configs() {
        let mut learner = Learner::new(&config, 3, 10);
        let declared = learner.algo.metrics();
        let report = run(&mut learner, 1).remove(0);
        let reported: Vec<_> = report.values.iter().map(|(m, _)| *m).collect();
        assert_eq!(declared, reported, "{}", config.name());
        assert!(report.values.iter().all(|(_, v)| v.is_finite()), "{}: {report:?}", config.name());
        let mut keys: Vec<_> = declared.iter().map(|m| m.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), declared.len(), "{}: a column is declared twice", config.name());
        for metric in declared {
            let listed = epo_algos::report::ALL.contains(&metric);
            assert!(listed, "{}: declare {} in src/report.rs", config.name(), metric.key);
        }
    }
}

#[test]
fn parameters_stay_finite_for_extreme_rewards_costs_and_limits() {
    let cases = [
        ("no variance in the reward", [0.5; 3], COST, 5.0),
        ("no reward and no cost", [0.0; 3], [0.0; 3], 5.0),
        ("cost always 0", REWARD, [0.0; 3], 5.0),
        ("cost always 0, limit 0", REWARD, [0.0; 3], 0.0),
        ("limit 0", REWARD, COST, 0.0),
        ("no variance in the cost, violated", REWARD, [1.0; 3], 5.0),
        ("huge cost", REWARD, [0.0, 3e5, 1e6], 5.0),
    ];
    for config in configs() {
        for (what, reward, cost, limit) in cases {
            let mut learner = Learner::new(&config, 3, 10);
            learner.limit = limit;
            for _ in 0..3 {
                let (_, _, report) = learner.epoch_on(reward, cost).unwrap();
                assert!(
                    report.values.iter().all(|(_, v)| v.is_finite()),
                    "{}, {what}: {report:?}",
                    config.name()
                );
            }
            let finite = learner.agent.tensors().iter().all(|t| t.data.iter().all(|x| x.is_finite()));
            assert!(finite, "{}, {what}", config.name());
        }
    }
}

#[test]
fn advantages_of_zero_leave_the_policy_unchanged() {
    for config in configs() {
        let mut learner = Learner::new(&config, 3, 10);
        let no_bonus = UpdateConfig { entropy: 0.0, ..common::update_config() };
        learner.algo = config.build(&no_bonus, &common::DISCOUNT).unwrap();
        learner.collect([0.5; 3], [0.0; 3]);
        let before = learner.agent.policy.params().to_vec();
        let cost = epo_core::CostReading::new(0.0, 5.0).unwrap();
        let silence = |parts: &mut common::Parts| {
            parts.adv_r.fill(0.0);
            parts.adv_c.iter_mut().for_each(|a| a.fill(0.0));
        };
        learner.update_with(cost, silence).unwrap();
        assert_eq!(learner.agent.policy.params(), before, "{}", config.name());
    }
}

#[test]
fn a_nan_from_the_environment_is_named_before_a_parameter_changes() {
    for (what, reward, cost) in
        [("reward advantage", [f64::NAN; 3], COST), ("cost advantage", REWARD, [f64::INFINITY; 3])]
    {
        let mut learner = Learner::new(&AlgoConfig::by_name("epo").unwrap(), 3, 10);
        // The training loop reports such a step itself. This check is the second one.
        let (_, good) = learner.collect(REWARD, COST);
        learner.update_with(good, |_| {}).unwrap(); // from the second epoch on the critics have a unit
        let before = (learner.bits(), learner.agent.scales);
        learner.collect(REWARD, COST);
        let n = learner.rollout.len();
        learner.rollout.reward[n / 2] = reward[0];
        learner.rollout.cost[n / 2] = cost[0];
        let estimated = learner.estimator.estimate(&learner.rollout, &mut learner.agent, &common::DISCOUNT);
        let error = estimated.unwrap_err();
        assert!(matches!(&error, UpdateError::NotFinite { what: w, .. } if w == what), "{error}");
        assert!((learner.bits(), learner.agent.scales) == before);
    }
}

#[test]
fn a_non_finite_gradient_is_named_and_never_reaches_a_parameter() {
    for config in configs() {
        for spoil in ["advantage", "logp", "target"] {
            let mut learner = Learner::new(&config, 3, 10);
            let (_, cost) = learner.collect(REWARD, COST);
            let result = learner.update_with(cost, |parts| match spoil {
                "advantage" => parts.adv_r[7] = f64::NAN,
                "logp" => parts.rollout.logp[7] = f64::NEG_INFINITY,
                _ => parts.reward.target[7] = f64::INFINITY,
            });
            // A trust region does not read ln π_old at the centre; its line search refuses a step that is not finite.
            let refused = config.objective(0.99).is_none() && spoil == "logp";
            assert!(
                refused || matches!(result, Err(UpdateError::NotFinite { .. })),
                "{} {spoil}: {result:?}",
                config.name()
            );
            let finite = learner.agent.tensors().iter().all(|t| t.data.iter().all(|x| x.is_finite()));
            assert!(finite, "{}, {spoil}: a parameter is not finite", config.name());
        }
    }
}

/// Parameters for which a negative number makes sense.
const MAY_BE_NEGATIVE: [&str; 3] = ["algo.alpha_thresholds", "algo.psi_max", "train.entropy"];

/// Returns copies of `table` in which one number has been replaced by `value`, each with the key of that number.
/// A parameter that is `"auto"` counts as a number. Every entry of an array is replaced in turn.
fn with_one_number_replaced(table: &Table, value: f64) -> Vec<(String, Table)> {
    let mut copies = Vec::new();
    for (key, old) in table {
        let replaced: Vec<Value> = match old {
            Value::Integer(_) | Value::Float(_) => vec![Value::Float(value)],
            Value::String(text) if text == "auto" => vec![Value::Float(value)],
            Value::Array(entries) => (0..entries.len())
                .map(|i| {
                    let mut entries = entries.clone();
                    entries[i] = Value::Float(value);
                    Value::Array(entries)
                })
                .collect(),
            _ => vec![],
        };
        for new in replaced {
            let mut copy = table.clone();
            copy.insert(key.clone(), new);
            copies.push((key.clone(), copy));
        }
    }
    copies
}

/// Asserts that `build` refuses NaN, both infinities and −1 in every number of `table`, and that the error names the
/// key. Numbers of an integer type are refused when the table is read.
fn refuses_bad_numbers<T: serde::de::DeserializeOwned>(
    prefix: &str,
    table: &Table,
    build: impl Fn(&T) -> Result<(), UpdateError>,
) {
    let mut tried = 0;
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        for (key, copy) in with_one_number_replaced(table, value) {
            tried += 1;
            let dotted = format!("{prefix}.{key}");
            let Ok(config) = copy.try_into::<T>() else {
                assert!(table[&key].is_integer(), "{dotted} = {value} cannot be read");
                continue;
            };
            match build(&config) {
                Err(UpdateError::Config { key: named, .. }) => assert_eq!(named, dotted, "{value}"),
                other => assert!(
                    value == -1.0 && other.is_ok() && MAY_BE_NEGATIVE.contains(&&*dotted),
                    "{dotted} = {value} is not refused: {other:?}. `AlgoSpec::check` must refuse it. If the parameter may \
                     be negative, list it in MAY_BE_NEGATIVE"
                ),
            }
        }
    }
    assert!(tried > 0, "no number was tried in {table:?}");
}

/// This test fails if the list contains a parameter that does not exist.
#[test]
fn every_parameter_that_may_be_negative_exists() {
    let algos = AlgoConfig::all_defaults();
    let own = algos.iter().flat_map(AlgoConfig::parameters).map(|p| format!("algo.{}", p.key));
    let shared = UpdateConfig::parameters().into_iter().map(|p| format!("train.{}", p.key));
    let known: Vec<String> = own.chain(shared).collect();
    for key in MAY_BE_NEGATIVE {
        assert!(known.iter().any(|known| known == key), "{key}");
    }
}

/// This test fails if the check of an algorithm forgets one of its parameters.
#[test]
fn a_bad_number_is_refused_in_every_parameter_of_every_algorithm() {
    let (update, ppo) = (UpdateConfig::default(), AlgoConfig::by_name("ppo").unwrap());
    for config in configs() {
        let table = Table::try_from(&config).unwrap();
        refuses_bad_numbers("algo", &table, |config: &AlgoConfig| {
            config.build(&update, &common::DISCOUNT).map(|_| ())
        });
    }
    let table = Table::try_from(&update).unwrap();
    refuses_bad_numbers("train", &table, |update| ppo.build(update, &common::DISCOUNT).map(|_| ()));
    let table = Table::try_from(common::DISCOUNT).unwrap();
    refuses_bad_numbers("train", &table, |discount| ppo.build(&update, discount).map(|_| ()));
}

/// The test above tries numbers that no parameter allows. This one tries the bounds of single parameters.
#[test]
fn a_number_beyond_its_bound_is_refused_by_name() {
    let ppo = AlgoConfig::by_name("ppo").unwrap();
    let bad_algo = [
        (AlgoConfig::P3o(P3oParams { kappa_growth: 0.0, ..P3oParams::default() }), "algo.kappa_growth"),
        (AlgoConfig::Ppo(PpoParams { clip: 0.0 }), "algo.clip"),
        (AlgoConfig::Ppo(PpoParams { clip: 1.0 }), "algo.clip"),
        (AlgoConfig::Cpo(CpoParams { search_decay: 1.5, ..CpoParams::default() }), "algo.search_decay"),
        (AlgoConfig::Cpo(CpoParams { c_scale: Some(0.0), ..CpoParams::default() }), "algo.c_scale"),
    ];
    for (config, want) in bad_algo {
        match config.build(&UpdateConfig::default(), &common::DISCOUNT) {
            Err(UpdateError::Config { key, .. }) => assert_eq!(key, want),
            other => panic!("{want}: {other:?}"),
        }
    }
    for (config, want) in [
        (UpdateConfig { passes: 0, ..UpdateConfig::default() }, "train.passes"),
        (UpdateConfig { minibatch: 0, ..UpdateConfig::default() }, "train.minibatch"),
    ] {
        match ppo.build(&config, &common::DISCOUNT) {
            Err(UpdateError::Config { key, .. }) => assert_eq!(key, want),
            other => panic!("{want}: {other:?}"),
        }
    }
}

#[test]
fn the_kl_stop_ends_the_passes_for_policy_and_critics_alike() {
    let ppo = AlgoConfig::by_name("ppo").unwrap();
    let passes = |target_kl, kl_direction| {
        let mut learner = Learner::new(&ppo, 3, 10);
        let config = UpdateConfig { target_kl, kl_direction, ..common::update_config() };
        learner.algo = ppo.build(&config, &common::DISCOUNT).unwrap();
        let report = run(&mut learner, 1).remove(0);
        let counters = learner.agent.counters();
        assert_eq!(
            counters["policy.adam.t"], counters["critic_r.adam.t"],
            "policy and critics make the same number of steps"
        );
        (report.get(epo_algos::report::STOP_ITER).unwrap(), report.get(epo_algos::report::KL).unwrap())
    };
    for direction in [KlDirection::OldNew, KlDirection::NewOld] {
        let (stopped, kl) = passes(1e-6, direction);
        assert!(stopped == 1.0 && kl > 1e-6, "{stopped} {kl}");
        assert_eq!(passes(1e9, direction).0, 10.0);
    }
    assert_ne!(
        passes(1e9, KlDirection::OldNew).1,
        passes(1e9, KlDirection::NewOld).1,
        "the two directions must give different values"
    );
}

#[test]
fn configuration_round_trips_and_unknown_keys_are_refused() {
    for config in configs() {
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<AlgoConfig>(&text).unwrap(), config, "{text}");
        let name = config.name();
        let bare: AlgoConfig = serde_json::from_str(&format!(r#"{{"name":"{name}"}}"#)).unwrap();
        assert_eq!(bare, AlgoConfig::by_name(name).unwrap(), "defaults");
        let error =
            serde_json::from_str::<AlgoConfig>(&format!(r#"{{"name":"{name}","klip":1}}"#)).unwrap_err();
        assert!(error.to_string().contains("klip"), "{error}");
    }
}

#[test]
fn the_learning_rate_decays_to_zero_for_the_policy_only() {
    let config = AlgoConfig::by_name("ppo-lag").unwrap();
    let at = |index: u32| {
        let mut learner = Learner::new(&config, 3, 10);
        let (before, critic) =
            (learner.agent.policy.params().to_vec(), learner.agent.critic_r.net.params().to_vec());
        learner.epoch = index;
        let lr = run(&mut learner, 1)[0].get(epo_algos::report::LR).unwrap();
        let moved = learner.agent.policy.params() != before;
        assert!(learner.agent.critic_r.net.params() != critic, "the critic must still learn");
        (lr, moved)
    };
    assert_eq!([at(0), at(5)].map(|(lr, moved)| (lr, moved)), [(3e-3, true), (1.5e-3, true)]);
    assert_eq!(at(10), (0.0, false));
}

/// This test fails if the divergence or the ratio is that of an earlier pass, of a minibatch, or of the policy against
/// itself. It also fails if the KL stop reads the divergence of an earlier pass.
#[test]
fn divergence_and_ratio_are_those_of_the_whole_batch_after_the_last_pass() {
    let config = AlgoConfig::by_name("epo").unwrap();
    let after = |passes, kl_stop, target_kl| {
        let mut learner = Learner::new(&config, 3, 10);
        learner.limit = 1.0; // violated
        let shared = UpdateConfig { passes, kl_stop, target_kl, lr: 3e-4, ..common::update_config() };
        learner.algo = config.build(&shared, &common::DISCOUNT).unwrap();
        let before = learner.agent.policy.clone();
        let report = run(&mut learner, 1).remove(0);

        // The expected values come from the policies before and after, over all samples.
        let (mut old, mut new) = (Dist::default(), Dist::default());
        let (obs, mut ws) = (&learner.rollout.obs, before.workspace(256));
        before.dist(obs, &mut ws, &mut old);
        learner.agent.policy.dist(obs, &mut ws, &mut new);
        let (n, mut logp) = (learner.rollout.len(), vec![0.0; learner.rollout.len()]);
        new.log_prob(&learner.rollout.action, &mut logp);
        let ratios = logp.iter().zip(&learner.rollout.logp).map(|(new, old)| (new - old).exp());
        let ratio = ratios.sum::<f64>() / n as f64;
        let reported = |metric| report.get(metric).unwrap();
        let (kl, stop_iter) = (reported(epo_algos::report::KL), reported(epo_algos::report::STOP_ITER));
        assert!((kl - old.kl(&new)).abs() < 1e-12 && kl > 0.0, "{passes} passes: {kl}");
        assert!(
            (reported(epo_algos::report::RATIO) - ratio).abs() < 1e-12 && ratio != 1.0,
            "{passes}: {ratio}"
        );
        (kl, stop_iter)
    };
    let kls = [1, 2, 3].map(|passes| after(passes, false, 0.0).0);
    assert!(kls[0] < kls[1] && kls[1] < kls[2], "each pass moves the policy: {kls:?}");
    let between = (kls[1] + kls[2]) / 2.0;
    assert_eq!(after(10, true, between), (kls[2], 3.0), "the third pass is the first above the bound");
}

/// PPO, which notes the mean of `ln π` at the beginning of each pass.
#[derive(Debug)]
struct Noting(Ppo, Arc<Mutex<Vec<f64>>>);

impl Objective for Noting {
    fn begin(&mut self, cost: CostReading) {
        self.0.begin(cost);
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        self.1
            .lock()
            .expect("no test panicked")
            .push(whole.logp.iter().sum::<f64>() / whole.logp.len() as f64);
    }

    fn reads_current_logp(&self) -> bool {
        true
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        self.0.loss(mb, dlogp)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        self.0.report()
    }
}

/// This test fails if an objective sees the whole batch only once per epoch, or always under the old policy.
#[test]
fn the_whole_batch_is_shown_before_each_pass_under_the_policy_of_that_pass() {
    let (config, notes) = (AlgoConfig::by_name("ppo").unwrap(), Arc::default());
    let mut learner = Learner::new(&config, 3, 10);
    let shared = UpdateConfig { passes: 4, kl_stop: false, ..common::update_config() };
    let objective = Box::new(Noting(Ppo { params: PpoParams::default() }, Arc::clone(&notes)));
    learner.algo = Box::new(FirstOrder::new(objective, shared, 0));
    run(&mut learner, 1);
    let notes = notes.lock().unwrap();
    let old = learner.rollout.logp.iter().sum::<f64>() / learner.rollout.len() as f64;
    assert!(notes.len() == 4 && notes[0] == old, "{notes:?}, {old}");
    assert!(notes.windows(2).all(|pair| pair[0] != pair[1]), "{notes:?}");
}

#[test]
fn leaving_out_an_unread_evaluation_changes_no_bit() {
    // Without a KL stop only some objectives read the whole batch between passes. A KL stop always evaluates it, even if
    // it never acts.
    for config in configs() {
        let trained = |kl_stop| {
            let mut learner = Learner::new(&config, 3, 10);
            learner.limit = 1.0; // violated: EPO's weight moves with each pass
            let shared = UpdateConfig { kl_stop, target_kl: 1e9, ..common::update_config() };
            learner.algo = config.build(&shared, &common::DISCOUNT).unwrap();
            (run(&mut learner, 2), learner.bits())
        };
        let same = trained(true) == trained(false);
        assert!(same, "{}: begin_pass reads `logp`, so reads_current_logp() must be true", config.name());
    }
}
