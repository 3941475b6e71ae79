//! The small environment of the tests of `epo-lab`, which can misbehave on demand.

#[path = "../../epo-lab/tests/common/walk.rs"]
mod environment;

use environment::Walk;
use epo_core::{ActionSpace, Env};

/// Task id of the environment.
pub(crate) const ID: &str = "AttackWalk-v0";
/// Environment variable with the misbehaviour: `panic`, `abort`, `segfault` or `hang`, in the 40th step of an episode.
pub(crate) const MISBEHAVE: &str = "EPO_ATTACK_ENV";

/// The faults of an environment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Observation(f64),
    Reward(f64),
    Cost(f64),
}

/// Returns an environment. If `fault` is given, it returns a bad number in step `fault.0` of its life, counted from 1.
pub(crate) fn walk(fault: Option<(u64, Fault)>) -> Box<dyn Env> {
    let mut env = Walk::new(ActionSpace::symmetric(1), 50);
    env.spec.id = ID.into();
    let wanted = std::env::var(MISBEHAVE).unwrap_or_default();
    let mut life = 0;
    env.change = Some(Box::new(move |t, obs, step| {
        life += 1;
        if t == 40 {
            misbehave(&wanted);
        }
        match fault {
            Some((at, Fault::Observation(value))) if at == life => obs[0] = value,
            Some((at, Fault::Reward(value))) if at == life => step.reward = value,
            Some((at, Fault::Cost(value))) if at == life => step.cost = value,
            _ => {}
        }
    }));
    Box::new(env)
}

fn misbehave(wanted: &str) {
    match wanted {
        "panic" => panic!("the environment of a user panics"),
        "abort" => std::process::abort(),
        "segfault" => {
            let me = rustix::process::getpid();
            let _ = rustix::process::kill_process(me, rustix::process::Signal::SEGV);
        }
        "hang" => loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
        _ => {}
    }
}
