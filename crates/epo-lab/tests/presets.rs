//! Presets belong to the published families of tasks, and not to names.

mod common;

use common::Walk;
use epo_core::ActionSpace;
use epo_lab::config::ResolvedRun;

/// This test fails if a preset is chosen by a word in the id of a task.
#[test]
fn an_environment_of_a_user_with_velocity_in_its_name_has_no_preset() {
    epo_tasks::register_env("the position", "1 above the position 1", || {
        let mut env = Walk::new(ActionSpace::symmetric(1), 50);
        env.spec.id = "MyVelocityEnv-v0".into();
        Ok(Box::new(env))
    })
    .unwrap();
    let update = |task: &str| {
        let run = ResolvedRun::from_layers(None, &[format!("run.task={task}")]).unwrap();
        (run.train.update.passes, run.train.update.target_kl)
    };
    assert_eq!(update("SafetyAntVelocity-v1"), (10, 0.02));
    assert_eq!(update("MyVelocityEnv-v0"), (4, 0.01));
}
