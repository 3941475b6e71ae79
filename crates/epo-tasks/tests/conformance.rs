//! The requirements on every registered task. A new task is tested as soon as it is in the list. It needs one line here:
//! its number in `GOLDEN` at the end.
//!
//! A golden number changes when the physics, a reward, an observation or a random draw changes. If the change is intended,
//! paste the lines that this command prints, and write "results change" into the changelog:
//!
//! ```sh
//! EPO_PRINT_GOLDEN=1 cargo test -p epo-tasks --test conformance golden -- --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::sync::{LazyLock, Mutex};

use epo_core::{ActionSpace, Env, EnvError, EnvPool, Outcome, Purpose, Slot, Step, Stream, check_env};
use epo_tasks::{Physics, TaskEnv, make_with, tasks};

/// All tasks with both physics, compiled once for all tests.
static COMPILED: LazyLock<Mutex<Vec<TaskEnv>>> = LazyLock::new(|| {
    let both = |id: &str| Physics::ALL.map(|physics| make_with(id, physics).unwrap());
    Mutex::new(tasks().iter().flat_map(|task| both(&task.id)).collect())
});

/// Fresh environments of every task, with both physics.
fn every_task() -> Vec<TaskEnv> {
    let fresh: Vec<_> = COMPILED.lock().unwrap().iter().map(|env| env.try_clone().unwrap()).collect();
    fresh
}

/// Runs a test on a fresh environment of every task, with both physics where they differ; `name` is for messages.
fn for_every_task(test: impl Fn(&str, TaskEnv)) {
    for env in every_task() {
        let (id, physics) = (&env.spec().id, env.physics());
        // For the other tasks the golden numbers show that both physics are identical.
        if physics == Physics::Published || GOLDEN_FAST.iter().any(|(other, _)| other == id) {
            test(&format!("{id}, {physics}"), env);
        }
    }
}

/// The state after a reset or a step. A reset has no `step`.
#[derive(Clone, Debug, PartialEq)]
struct Moment {
    obs: Vec<f64>,
    step: Option<Step>,
    terms: Vec<f64>,
    qpos: Vec<f64>,
}

fn random_action(env: &TaskEnv, random: &mut Stream) -> Vec<f64> {
    let ActionSpace::Box { low, high } = &env.spec().action else { panic!("actions are boxes") };
    low.iter().zip(high).map(|(low, high)| low + (high - low) * random.uniform()).collect()
}

/// Plays random actions until the episode ends, at most `steps`.
fn play(env: &mut TaskEnv, seed: u64, steps: usize) -> Vec<Moment> {
    let mut random = Stream::new(seed, Purpose::Random, 1);
    let mut obs = vec![f64::NAN; env.spec().obs_len];
    env.reset(seed, &mut obs).unwrap();
    let moment = |env: &TaskEnv, obs: &[f64], step| Moment {
        obs: obs.to_vec(),
        step,
        terms: env.cost_terms().to_vec(),
        qpos: env.qpos().to_vec(),
    };
    let mut moments = vec![moment(env, &obs, None)];
    for _ in 0..steps {
        let action = random_action(env, &mut random);
        obs.fill(f64::NAN);
        let step = env.step(&action, &mut obs).unwrap();
        moments.push(moment(env, &obs, Some(step)));
        if step.outcome.is_done() {
            break;
        }
    }
    moments
}

#[test]
fn sizes_are_as_listed() {
    for_every_task(|id, env| {
        let (spec, info) = (env.spec(), env.info());
        assert_eq!(
            (&*spec.id, spec.obs_len, spec.max_steps),
            (&*info.id, info.obs_len, info.max_steps),
            "{id}"
        );
        assert_eq!(spec.action.len(), info.act_len, "{id}");
        assert_eq!(spec.cost_terms.len(), env.cost_terms().len(), "{id}");
        assert!(!info.reward.is_empty() && !info.cost.is_empty(), "{id}: reward or cost has no description");
    });
}

#[test]
fn every_entry_is_written_and_finite() {
    // The buffers hold NaN before every call.
    for_every_task(|id, mut env| {
        for (t, moment) in play(&mut env, 3, 60).iter().enumerate() {
            let entry = moment.obs.iter().position(|x| !x.is_finite());
            assert_eq!(entry, None, "{id}: entry of the observation at step {t}");
            assert!(moment.step.is_none_or(|s| s.reward.is_finite()), "{id}: reward at step {t}");
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    for_every_task(|id, mut env| {
        let mut other = env.try_clone().unwrap();
        let (a, b) = (play(&mut env, 5, 40), play(&mut other, 5, 40));
        let part = a.iter().zip(&b).position(|(x, y)| x != y);
        assert_eq!((part, a.len()), (None, b.len()), "{id}: two episodes of seed 5 differ");
    });
}

#[test]
fn different_seeds_give_different_first_observations() {
    for_every_task(|id, mut env| {
        let mut start = |seed| {
            play(&mut env, seed, 0);
            env.body_poses().collect::<Vec<_>>()
        };
        let zero = start(0);
        for seed in 1..4 {
            assert_ne!(zero, start(seed), "{id}: seeds 0 and {seed}");
        }
    });
}

#[test]
fn a_reset_does_not_depend_on_the_episode_before() {
    for_every_task(|id, mut env| {
        let first = play(&mut env, 1, 30);
        play(&mut env, 2, 50);
        let again = play(&mut env, 1, 30);
        let part = first.iter().zip(&again).position(|(x, y)| x != y);
        assert_eq!(
            (part, first.len()),
            (None, again.len()),
            "{id}: seed 1 differs after an episode of seed 2"
        );
    });
}

#[test]
fn environments_do_not_share_state() {
    for_every_task(|id, mut env| {
        let alone = play(&mut env, 4, 20);
        let mut beside = env.try_clone().unwrap();
        let (mut obs, mut their_obs) = (vec![0.0; env.spec().obs_len], vec![0.0; env.spec().obs_len]);
        let (mut random, mut their_random) =
            (Stream::new(4, Purpose::Random, 1), Stream::new(9, Purpose::Random, 1));
        env.reset(4, &mut obs).unwrap();
        beside.reset(9, &mut their_obs).unwrap();
        let mut running = true;
        for (t, moment) in alone.iter().enumerate().skip(1) {
            let step = env.step(&random_action(&env, &mut random), &mut obs).unwrap();
            if running {
                let action = random_action(&beside, &mut their_random);
                running = !beside.step(&action, &mut their_obs).unwrap().outcome.is_done();
            }
            assert_eq!(
                (&obs, Some(step)),
                (&moment.obs, moment.step),
                "{id}: another environment changed step {t}"
            );
        }
    });
}

#[test]
fn costs_are_0_or_1_and_agree_with_their_terms() {
    for_every_task(|id, mut env| {
        for seed in 0..3 {
            for (t, moment) in play(&mut env, seed, 60).iter().enumerate().skip(1) {
                let cost = moment.step.unwrap().cost;
                assert!(cost == 0.0 || cost == 1.0, "{id}: cost {cost} at step {t}");
                assert!(moment.terms.iter().all(|c| *c >= 0.0), "{id}: terms {:?} at step {t}", moment.terms);
                let any = moment.terms.iter().any(|c| *c > 0.0);
                assert_eq!(cost == 1.0, any, "{id}: cost {cost} of {:?} at step {t}", moment.terms);
            }
        }
    });
}

#[test]
fn episodes_are_as_long_as_declared_and_then_truncated() {
    for_every_task(|id, mut env| {
        let max_steps = env.spec().max_steps;
        // The walking robots fall long before the limit. All other robots must reach it.
        let moments = play(&mut env, 6, max_steps + 1);
        let last = moments.last().unwrap().step.unwrap().outcome;
        let falls = ["Ant", "Hopper", "Humanoid", "Walker2d"].iter().any(|robot| id.contains(robot));
        let want = if falls { Outcome::Terminated } else { Outcome::Truncated };
        assert_eq!(last, want, "{id} after {} steps", moments.len() - 1);
        assert!(falls || moments.len() - 1 == max_steps, "{id}: {} steps", moments.len() - 1);
        let mut obs = vec![0.0; env.spec().obs_len];
        let more = env.step(&vec![0.0; env.spec().action.len()], &mut obs);
        assert_eq!(more, Err(EnvError::NeedsReset), "{id}: a step after the end");
    });
}

#[test]
fn no_observation_entry_is_constant() {
    for_every_task(|id, mut env| {
        let n = env.spec().obs_len;
        let first = play(&mut env, 0, 0).remove(0).obs;
        let mut varies = vec![false; n];
        // Many layouts, so that every lidar sector sees an object, and a few longer episodes.
        for (seed, steps) in (0..80).map(|seed| (seed, 2)).chain((0..3).map(|seed| (seed, 60))) {
            for moment in play(&mut env, seed, steps) {
                for i in 0..n {
                    varies[i] |= moment.obs[i] != first[i];
                }
            }
        }
        let constant = (0..n).filter(|&i| !varies[i] && !constant_by_fact(id, i, first[i]));
        assert_eq!(constant.collect::<Vec<_>>(), [0; 0], "{id}: entries that never change");
    });
}

/// Whether entry `i` of an observation is constant in the published task, or changes in rare states only.
fn constant_by_fact(id: &str, i: usize, value: f64) -> bool {
    if id.starts_with("SafetyPoint") {
        // The robot moves in the plane and turns about z. Vertical speed, other rotation and vertical field are constant.
        return [5, 6, 7, 11].contains(&i) && value.abs() < 1e-9;
    }
    if id.starts_with("SafetyHumanoid") {
        return match i {
            // Inertia of each body, the world first. The world has none, and the tenth number is the constant mass.
            45..185 => i < 55 || (i - 45) % 10 == 9,
            // The world does not move.
            185..191 => value == 0.0,
            // No motor acts on the six joints of the root.
            269..275 => value == 0.0,
            // External forces: nothing has touched this body yet.
            292..376 => value == 0.0,
            _ => false,
        };
    }
    false
}

#[test]
fn an_observation_belongs_to_the_caller() {
    for_every_task(|id, mut env| {
        let n = env.spec().obs_len;
        let (mut a, mut b) = (vec![0.0; n], vec![0.0; n]);
        env.reset(2, &mut a).unwrap();
        let kept = a.clone();
        let step = |env: &mut TaskEnv, obs: &mut [f64]| {
            let action = vec![0.3; env.spec().action.len()];
            env.step(&action, obs).unwrap();
        };
        step(&mut env, &mut b);
        assert_eq!(a, kept, "{id}: a later step wrote into an earlier observation");
        assert_ne!(a, b, "{id}: a step changed nothing");
        // Changes by the caller must not reach the environment.
        let mut c = vec![0.0; n];
        env.reset(2, &mut c).unwrap();
        c.fill(1e9);
        step(&mut env, &mut c);
        assert_eq!(b, c, "{id}");
    });
}

#[test]
fn invalid_actions_are_refused_and_do_not_change_the_episode() {
    for_every_task(|id, mut env| {
        let n = env.spec().action.len();
        let mut obs = vec![0.0; env.spec().obs_len];
        assert_eq!(
            env.step(&vec![0.0; n], &mut obs),
            Err(EnvError::NeedsReset),
            "{id}: a step before the reset"
        );
        env.reset(0, &mut obs).unwrap();
        let before = (obs.clone(), env.qpos().to_vec());
        let short = env.step(&vec![0.0; n - 1], &mut obs);
        assert_eq!(short, Err(EnvError::ActionLength { got: n - 1, want: n }), "{id}");
        let long = env.step(&vec![0.0; n + 1], &mut obs);
        assert_eq!(long, Err(EnvError::ActionLength { got: n + 1, want: n }), "{id}");
        for bad in [f64::NAN, f64::INFINITY] {
            let mut action = vec![0.0; n];
            action[n - 1] = bad;
            let refused = env.step(&action, &mut obs);
            assert!(
                matches!(refused, Err(EnvError::ActionNotFinite { index, .. }) if index == n - 1),
                "{id}"
            );
        }
        assert_eq!((obs.clone(), env.qpos().to_vec()), before, "{id}: a refused action changed something");
        assert!(env.step(&vec![0.0; n], &mut obs).is_ok(), "{id}: the episode must continue");
    });
}

#[test]
fn actions_beyond_the_bounds_act_as_those_at_the_bounds() {
    // Motors are clamped. Only a control cost in the reward may differ.
    for_every_task(|id, mut env| {
        let ActionSpace::Box { high, .. } = env.spec().action.clone() else { panic!("actions are boxes") };
        let mut obs = vec![0.0; env.spec().obs_len];
        let mut after = |factor: f64| {
            env.reset(8, &mut obs).unwrap();
            let action: Vec<_> = high.iter().map(|a| a * factor).collect();
            env.step(&action, &mut obs).unwrap();
            obs.clone()
        };
        assert_eq!(after(1.0), after(1e6), "{id}");
    });
}

#[test]
fn every_geom_belongs_to_a_body_with_a_valid_pose() {
    for_every_task(|id, mut env| {
        play(&mut env, 0, 3);
        let poses: Vec<_> = env.body_poses().collect();
        let geoms = env.geoms();
        assert!(geoms.len() >= 2, "{id}: {} geoms", geoms.len());
        for geom in &geoms {
            assert!(geom.body.0 < poses.len(), "{id}: {geom:?}");
            assert!(
                geom.size.iter().all(|s| s.is_finite()) && geom.rgba.iter().all(|c| (0.0..=1.0).contains(c)),
                "{id}"
            );
        }
        for (pos, quat) in poses {
            let norm: f64 = quat.iter().map(|q| q * q).sum();
            assert!(pos.iter().all(|x| x.is_finite()) && (norm - 1.0).abs() < 1e-9, "{id}: {pos:?} {quat:?}");
        }
    });
}

#[test]
fn check_env_finds_no_problem() {
    // One task per robot, because the check plays whole episodes.
    for id in
        ["SafetyPointGoal1-v0", "SafetyCarCircle2-v0", "SafetyHopperVelocity-v1", "SafetyAntVelocity-v0"]
    {
        for physics in Physics::ALL {
            let env = make_with(id, physics).unwrap();
            let problems = check_env(|| Box::new(env.try_clone().unwrap()));
            assert_eq!(problems, [], "{id}, {physics}");
        }
    }
}

/// Returns one hash of all results of three environments of a task over 40 steps on `threads` threads.
fn fingerprint(compiled: &TaskEnv, threads: usize) -> u64 {
    let envs = (0..3).map(|_| Box::new(compiled.try_clone().unwrap()) as Box<dyn Env>).collect();
    let mut pool = EnvPool::new(envs, threads, 1, Purpose::Episode).unwrap();
    pool.start().unwrap();
    let ActionSpace::Box { low, high } = compiled.spec().action.clone() else { panic!("actions are boxes") };
    let mut hashes = [0xcbf2_9ce4_8422_2325_u64; 3];
    let add = |hash: &mut u64, x: f64| {
        for byte in x.to_le_bytes() {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    let job = |slot: &mut Slot, hash: &mut u64| {
        let mut random = Stream::new(1, Purpose::Random, slot.index());
        let mut action = vec![0.0; low.len()];
        for _ in 0..40 {
            for (a, (low, high)) in action.iter_mut().zip(low.iter().zip(&high)) {
                *a = low + (high - low) * random.uniform();
            }
            let step = slot.step(&action)?;
            slot.obs().iter().chain([&step.reward, &step.cost]).for_each(|x| add(hash, *x));
        }
        Ok(())
    };
    pool.run(&mut hashes, job).unwrap();
    hashes.iter().fold(0, |all, hash| all ^ hash.rotate_left(7))
}

#[test]
fn golden_rollouts_are_bitwise_the_same_for_1_2_and_4_threads() {
    let print = std::env::var_os("EPO_PRINT_GOLDEN").is_some();
    let ids = |golden: &[(&'static str, u64)]| golden.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let registered: Vec<_> = tasks().iter().map(|task| task.id.as_str()).collect();
    assert!(print || ids(&GOLDEN) == registered, "GOLDEN has one line per task, in the order of the list");
    let mut wrong = Vec::new();
    let tasks = every_task();
    for env in &tasks {
        let (id, physics, one) = (&env.spec().id, env.physics(), fingerprint(env, 1));
        for threads in [2, 4] {
            assert_eq!(fingerprint(env, threads), one, "{id}, {physics} on {threads} threads");
        }
        if print {
            println!("    (\"{id}\", {one:#018x}), // {physics}");
        }
        // A task that is not listed with fast physics has no body that sleeps.
        let fast = GOLDEN_FAST.iter().filter(|_| physics == Physics::Fast);
        let want = fast.chain(&GOLDEN).find(|(other, _)| other == id).map(|(_, want)| *want);
        if want != Some(one) {
            wrong.push(format!("{id}, {physics}: {one:#018x}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} hashes have changed:\n{}",
        wrong.len(),
        tasks.len(),
        wrong.join("\n")
    );
}

/// FNV-1a hash over the bits of a rollout, on Linux x86-64 with the fetched MuJoCo 3.17.0.
///
/// Versions 0 and 1 of a velocity task differ in the speed limit only. Random actions rarely reach it, so most have the
/// same hash. `velocity::tests` distinguish them, and for Ant, Hopper and Swimmer also the recordings of `tests/parity.rs`.
const GOLDEN: [(&str, u64); 38] = [
    ("SafetyPointGoal0-v0", 0xba04_dcc5_7394_d967),
    ("SafetyPointGoal1-v0", 0x96ef_1f88_473b_16d1),
    ("SafetyPointGoal2-v0", 0x880f_63d7_3ffe_3cf5),
    ("SafetyPointButton0-v0", 0xaf33_70bf_92ba_9b4b),
    ("SafetyPointButton1-v0", 0xa742_ddfe_ed7a_0f34),
    ("SafetyPointButton2-v0", 0xb6f3_00ad_c41f_40f3),
    ("SafetyPointPush0-v0", 0x9026_7ee9_22a9_16dd),
    ("SafetyPointPush1-v0", 0x93a2_42bf_5de4_308a),
    ("SafetyPointPush2-v0", 0x7380_4162_28c6_6f2a),
    ("SafetyPointCircle0-v0", 0x1487_e1f1_98c9_8b1a),
    ("SafetyPointCircle1-v0", 0x4366_a67c_dc74_f59f),
    ("SafetyPointCircle2-v0", 0x0253_ec47_7e1c_a378),
    ("SafetyPointRun0-v0", 0x0a8a_faaf_457c_2524),
    ("SafetyCarGoal0-v0", 0x9312_92c3_4258_9f78),
    ("SafetyCarGoal1-v0", 0x5730_7f68_2b87_2315),
    ("SafetyCarGoal2-v0", 0xae42_cf98_7c05_b4b4),
    ("SafetyCarButton0-v0", 0x2d2a_7a41_5e90_2d23),
    ("SafetyCarButton1-v0", 0xe215_8e0c_cc70_5e0e),
    ("SafetyCarButton2-v0", 0xd995_ce1e_53ec_100e),
    ("SafetyCarPush0-v0", 0x802a_33d0_47e1_e55d),
    ("SafetyCarPush1-v0", 0xe367_f165_b549_a691),
    ("SafetyCarPush2-v0", 0x7194_159b_4d0f_6e7d),
    ("SafetyCarCircle0-v0", 0xb8fb_ec65_72fd_edb3),
    ("SafetyCarCircle1-v0", 0x7a30_ca03_017b_b098),
    ("SafetyCarCircle2-v0", 0x9049_0fb2_85c7_1eb8),
    ("SafetyCarRun0-v0", 0xe1e7_9bfa_02ee_8c88),
    ("SafetyAntVelocity-v0", 0xc895_4eda_fc3a_c7c4),
    ("SafetyAntVelocity-v1", 0xc895_4eda_fc3a_c7c4),
    ("SafetyHalfCheetahVelocity-v0", 0x7f5f_ae0a_e7e8_6107),
    ("SafetyHalfCheetahVelocity-v1", 0x7f5f_ae0a_e7e8_6107),
    ("SafetyHopperVelocity-v0", 0x0053_dead_7616_0714),
    ("SafetyHopperVelocity-v1", 0x0053_dead_7616_0714),
    ("SafetyHumanoidVelocity-v0", 0xab14_f195_1033_8993),
    ("SafetyHumanoidVelocity-v1", 0xab14_f195_1033_8993),
    ("SafetySwimmerVelocity-v0", 0x8043_6c8e_450c_4469),
    ("SafetySwimmerVelocity-v1", 0x1175_f578_b666_2404),
    ("SafetyWalker2dVelocity-v0", 0x0311_69e7_83db_fc7e),
    ("SafetyWalker2dVelocity-v1", 0x0311_69e7_83db_fc7e),
];

/// The same with fast physics, for the tasks with bodies that sleep.
const GOLDEN_FAST: [(&str, u64); 10] = [
    ("SafetyPointGoal1-v0", 0x27fc_b51e_3670_231d),
    ("SafetyPointGoal2-v0", 0x304f_416b_ef49_eae2),
    ("SafetyPointPush0-v0", 0xd026_5cec_6c75_01b1),
    ("SafetyPointPush1-v0", 0x55bf_a197_d9cb_5ced),
    ("SafetyPointPush2-v0", 0x3bec_996d_f340_bda2),
    ("SafetyCarGoal1-v0", 0x46db_f30e_15e9_dcd1),
    ("SafetyCarGoal2-v0", 0x5df2_656d_a0db_5809),
    ("SafetyCarPush0-v0", 0x2519_1d98_db1e_a3ee),
    ("SafetyCarPush1-v0", 0x2446_271b_4b49_735c),
    ("SafetyCarPush2-v0", 0x8476_3ced_9b0b_0287),
];
