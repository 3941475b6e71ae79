//! Tests the tasks through the library: they pass `check_env`, and training on them improves the return.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use epo_core::{Env, Outcome, check_env};
use epo_lab::config::ResolvedRun;
use epo_lab::record::{metrics, value};
use epo_lab::runs;
use epo_lab::train::Trainer;
use epo_tasks::Physics;
use epo_tasks::navigation::{Group, NavigationTask, Object, Objects, Vase};
use own_task::patrol::MUD_RADIUS;

/// Registers the tasks once: all tests share one process, and an id can be added only once.
fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| own_task::register().unwrap());
}

#[test]
fn the_tasks_are_in_the_list_and_their_ids_cannot_be_used_again() {
    register();
    let listed = epo_tasks::tasks();
    assert!(["Tank-v0", "Patrol-v0"].iter().all(|id| listed.iter().any(|task| task.id == *id)));
    let error = own_task::register().unwrap_err().to_string();
    assert!(error.contains("`Patrol-v0` belongs to another task"), "{error}");
    let error = epo_tasks::make("Tank-v0").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("`Tank-v0` is not simulated by MuJoCo"), "{error}");
}

#[test]
fn check_env_finds_no_problem() {
    register();
    for id in ["Patrol-v0", "Tank-v0"] {
        let make = epo_tasks::env_maker(id, Physics::Published).unwrap();
        assert_eq!(check_env(|| make().unwrap()), [], "{id}");
    }
}

#[test]
fn the_mud_costs_while_the_robot_is_in_it_and_posts_are_reached_in_turn() {
    register();
    let mut env = epo_tasks::make("Patrol-v0").unwrap();
    let terms = &env.spec().cost_terms;
    assert_eq!(terms, &["cost_mud", "cost_vases_contact", "cost_vases_velocity", "cost_exception"]);
    let mut obs = vec![0.0; env.spec().obs_len];
    let geoms = env.geoms();
    let body = |name: &str| geoms.iter().find(|geom| geom.name == name).unwrap().body;
    let mud: Vec<_> = (0..4).map(|i| body(&format!("mud{i}"))).collect();
    let (robot, mark) = (body("agent"), body("goal0"));
    let (mut in_mud, mut goals) = (0, 0);
    for seed in 0..12 {
        env.reset(seed, &mut obs).unwrap();
        for _ in 0..env.spec().max_steps {
            // The robot steers towards the mark. Its bearing comes from the simulation, not from the lidar.
            let poses: Vec<_> = env.body_poses().collect();
            let ([x, y, _], [w, .., z]) = poses[robot.0];
            let [gx, gy, _] = poses[mark.0].0;
            let bearing = (gy - y).atan2(gx - x) - 2.0 * z.atan2(w);
            let bearing = bearing.sin().atan2(bearing.cos());
            let before = gx;
            let step = env.step(&[f64::from(bearing.abs() < 0.5), 2.0 * bearing], &mut obs).unwrap();
            let poses: Vec<_> = env.body_poses().collect();
            let [x, y, _] = poses[robot.0].0;
            let over = mud.iter().any(|b| (poses[b.0].0[0] - x).hypot(poses[b.0].0[1] - y) < MUD_RADIUS);
            assert_eq!(env.cost_terms()[0] == 1.0, over, "seed {seed}");
            in_mud += usize::from(over);
            goals += usize::from(env.goal_met());
            assert_eq!(
                env.goal_met(),
                poses[mark.0].0[0] * before < 0.0,
                "a mark that is reached must move to the other side"
            );
            if step.outcome != Outcome::Running {
                break;
            }
        }
    }
    assert!(in_mud > 20 && goals > 20, "{in_mud} steps in the mud, {goals} posts reached");
}

/// Trains in `dir` and returns the mean episode return of the first and of the last epoch.
fn train(dir: &Path, id: &str, set: &[&str]) -> [f64; 2] {
    register();
    let task = format!("run.task={id}");
    let common = ["train.final_eval_episodes=0", "train.hidden=[32, 32]", "train.envs=8"];
    let all: Vec<String> = [&*task].iter().chain(&common).chain(set).map(|&s| s.to_owned()).collect();
    let run = ResolvedRun::from_layers(None, &all).unwrap();
    let make = runs::task_maker(id, Physics::Published).unwrap();
    let mut returns = Vec::new();
    let mut trainer = Trainer::create(dir, run, &make).unwrap();
    let end =
        trainer.train(&AtomicBool::new(false), |row| returns.push(value(row, metrics::EP_RET).unwrap()));
    assert!(end.unwrap().finished);
    [returns[0], *returns.last().unwrap()]
}

#[test]
fn training_on_the_tank_fills_it_up_to_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    // The cost reacts to the policy within an epoch and varies little between episodes, so the 20 episodes of
    // an epoch are enough. A reading of 100 episodes would lag five epochs behind, and the cost would oscillate
    // around the limit. One update changes the cost by a large factor, so EPO starts strictly. A policy that
    // first learns to overfill the tank would oscillate as well.
    let set = [
        "run.steps=120000",
        "run.limit=10",
        "train.steps_per_epoch=4000",
        "train.cost_window=20",
        "algo.share_max=0.8",
    ];
    let [first, last] = train(dir.path(), "Tank-v0", &set);
    // A trained policy keeps the level below 1 in most steps, so 200 steps give a return below 200.
    assert!(last > 1.3 * first && last > 120.0 && last < 200.0, "from {first} to {last}");
}

#[test]
fn training_on_the_patrol_makes_progress() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["run.steps=96000", "run.limit=25", "train.steps_per_epoch=8000"];
    let [first, last] = train(dir.path(), "Patrol-v0", &set);
    assert!(last > first + 1.0, "from {first} to {last}");
}

/// An object that writes a cost; `NAMED` says whether it names the cost term.
#[derive(Debug)]
struct Costly<const NAMED: bool>;

impl<const NAMED: bool> Object for Costly<NAMED> {
    fn name(&self) -> &'static str {
        "costly"
    }

    fn height(&self) -> f64 {
        0.1
    }

    fn geoms(&self, name: &str) -> String {
        format!(r#"<geom name="{name}" type="sphere" size=".1" contype="0" conaffinity="0"/>"#)
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        if NAMED { &["heat"] } else { &[] }
    }

    fn cost(&self, _: &Objects<'_>, terms: &mut [f64]) {
        terms[0] = 1.0;
    }
}

fn with(id: &str, groups: Vec<Group>) -> NavigationTask {
    let mut task = own_task::patrol::task();
    task.id = id.to_owned();
    task.scene.groups.extend(groups);
    task
}

#[test]
fn a_wrong_scene_is_refused_when_the_task_is_added() {
    let twice = with("Twice-v0", vec![Group::new(1, Vase, 0.1)]);
    let said = epo_tasks::register(twice).unwrap_err().to_string();
    assert_eq!(said, "Twice-v0: two groups of objects have the name `vase`");
    let unclear = with("Heat-v0", vec![Group::new(1, Costly::<true>, 0.1)]);
    let said = epo_tasks::register(unclear).unwrap_err().to_string();
    assert_eq!(said, "Heat-v0: the name of the cost term `heat` must begin with `cost_`");
}

/// This test fails if the cost of an object without a named term is ignored: training would show a cost of 0.
#[test]
fn a_cost_without_a_named_term_is_an_error() {
    epo_tasks::register(with("Unnamed-v0", vec![Group::new(1, Costly::<false>, 0.1)])).unwrap();
    let mut env = epo_tasks::make("Unnamed-v0").unwrap();
    let mut obs = vec![0.0; env.spec().obs_len];
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
        env.reset(0, &mut obs).unwrap();
        env.step(&[0.0, 0.0], &mut obs).map(|step| step.cost)
    }));
    assert!(result.is_err(), "{result:?}");
}
