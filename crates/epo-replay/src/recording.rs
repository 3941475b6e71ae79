//! Plays one episode and keeps everything that a viewer shows.

use epo_algos::{Agent, CostCritic};
use epo_core::{Env, EnvError, Outcome, Stream};
use epo_lab::collect::ActionMap;
use epo_lab::evaluate::ActionMode;
use epo_nn::{Normalizer, Policy, PolicyWorkspace};
use epo_tasks::{Geom, TaskEnv};

/// A named list of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name for the viewer.
    pub name: String,
    /// The numbers, one per step or one per frame.
    pub values: Vec<f64>,
}

/// A distance or speed that shows the progress of the task.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Name for the viewer.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// The value above which a step has a cost, if there is one.
    pub limit: Option<f64>,
    /// One number per frame.
    pub values: Vec<f64>,
}

/// The readings of one lidar ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Lidar {
    /// Name of the kind of object that the ring sees.
    pub object: &'static str,
    /// Range in metres.
    pub range: f64,
    /// 16 readings per frame, from 0 (nothing within the range) to 1.
    pub readings: Vec<f64>,
}

/// An episode with everything that a viewer shows.
///
/// Frame 0 is the state after the reset, and step t leads from frame t to frame t + 1. So there is one frame more than
/// there are steps. The reward and the cost of step t are shown at frame t + 1.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Task id.
    pub task: String,
    /// Seed of the episode.
    pub seed: u64,
    /// Duration of a step in seconds.
    pub dt: f64,
    /// Body of the robot, or the torso of a walker.
    pub robot: usize,
    /// Whether the task is a velocity task, in which the robot runs away from its start.
    pub runs: bool,
    /// The geoms; each belongs to a body.
    pub geoms: Vec<Geom>,
    /// Per frame the pose of every body: x, y, z, then the quaternion w, x, y, z.
    pub poses: Vec<Vec<[f64; 7]>>,
    /// Reward of each step.
    pub rewards: Vec<f64>,
    /// Cost of each step.
    pub costs: Vec<f64>,
    /// The parts of the cost of each step.
    pub terms: Vec<Series>,
    /// Action of each step, as it was given to the environment.
    pub actions: Vec<Vec<f64>>,
    /// Outputs of the critics at each frame.
    pub values: Vec<Series>,
    /// Distance to the goal or speed, at each frame.
    pub gauge: Option<Gauge>,
    /// Lidar rings.
    pub lidar: Vec<Lidar>,
    /// Frames at which a goal was met.
    pub goals: Vec<usize>,
    /// How the episode ended.
    pub outcome: Outcome,
}

impl Recording {
    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.rewards.len()
    }

    /// Sum of the rewards.
    pub fn ret(&self) -> f64 {
        self.rewards.iter().sum()
    }

    /// Sum of the costs.
    pub fn cost(&self) -> f64 {
        self.costs.iter().sum()
    }
}

/// Chooses the actions of an episode.
pub(crate) trait Actor {
    /// Writes the action of the policy at the observation `obs` to `action`.
    ///
    /// # Errors
    /// If there is no policy for this step.
    fn act(&mut self, obs: &[f64], action: &mut [f32]) -> Result<(), EnvError>;
}

/// Repeats known actions, and then lets one policy act.
#[derive(Debug)]
pub(crate) struct PolicyActor<'a> {
    policy: &'a Policy,
    normalizer: &'a Normalizer,
    /// Known actions of the policy that are left, one after the other.
    known: &'a [f32],
    mode: ActionMode,
    /// Random numbers of sampled actions.
    stream: &'a mut Stream,
    seen: Vec<f32>,
    ws: PolicyWorkspace,
}

impl<'a> PolicyActor<'a> {
    /// Returns an actor with the policy of `learned`. `mode` is how it chooses its actions.
    pub(crate) fn new(learned: LearnedState<'a>, mode: ActionMode, stream: &'a mut Stream) -> Self {
        let LearnedState { agent, normalizer } = learned;
        let policy = &agent.policy;
        let (seen, ws) = (vec![0.0; policy.net().inputs()], policy.workspace(1));
        Self { policy, normalizer, known: &[], mode, stream, seen, ws }
    }

    /// Repeats the actions `known` before the policy acts.
    pub(crate) fn after(self, known: &'a [f32]) -> Self {
        Self { known, ..self }
    }
}

impl Actor for PolicyActor<'_> {
    fn act(&mut self, obs: &[f64], action: &mut [f32]) -> Result<(), EnvError> {
        if let Some((first, rest)) = self.known.split_at_checked(action.len()) {
            action.copy_from_slice(first);
            self.known = rest;
            return Ok(());
        }
        self.normalizer.normalize(obs, &mut self.seen);
        match self.mode {
            ActionMode::Mean => self.policy.act_deterministic(&self.seen, &mut self.ws, action),
            ActionMode::Sampled => {
                self.policy.act(&self.seen, &mut self.ws, self.stream, action);
            }
        }
        Ok(())
    }
}

/// The learned parts: policy, critics and normaliser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnedState<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) normalizer: &'a Normalizer,
}

/// Plays the episode with this seed to its end. `actor` chooses the actions. The values are those of the critics of
/// `learned`.
pub(crate) fn record(
    env: &mut TaskEnv,
    seed: u64,
    learned: LearnedState<'_>,
    actor: &mut dyn Actor,
) -> Result<Recording, EnvError> {
    let map = ActionMap::new(&env.spec().action);
    let mut obs = vec![0.0; env.spec().obs_len];
    let mut seen = vec![0.0; obs.len()];
    let mut chosen = vec![0.0; learned.agent.policy.action_len()];
    let mut action = vec![0.0; map.len()];

    env.reset(seed, &mut obs)?;
    let rings = env.lidar_rings();
    let limit = env.info().speed_limit;
    let mut recording = Recording {
        task: env.spec().id.clone(),
        seed,
        dt: 0.0,
        robot: env.robot().0,
        runs: limit.is_some(),
        geoms: env.geoms(),
        poses: Vec::new(),
        rewards: Vec::new(),
        costs: Vec::new(),
        terms: env.spec().cost_terms.iter().map(|name| series(name.trim_start_matches("cost_"))).collect(),
        actions: Vec::new(),
        values: Vec::new(),
        gauge: match (limit, env.goal_distance()) {
            (Some(_), _) => Some(Gauge { name: "speed", unit: "m/s", limit, values: Vec::new() }),
            (_, Some(_)) => {
                Some(Gauge { name: "distance to the goal", unit: "m", limit: None, values: Vec::new() })
            }
            _ => None,
        },
        lidar: rings
            .iter()
            .map(|r| Lidar { object: r.object, range: r.range, readings: Vec::new() })
            .collect(),
        goals: Vec::new(),
        outcome: Outcome::Running,
    };
    let mut inputs = Vec::new();
    loop {
        learned.normalizer.normalize(&obs, &mut seen);
        inputs.extend_from_slice(&seen);
        recording
            .poses
            .push(env.body_poses().map(|([x, y, z], [w, i, j, k])| [x, y, z, w, i, j, k]).collect());
        for (lidar, ring) in recording.lidar.iter_mut().zip(&rings) {
            lidar.readings.extend_from_slice(&obs[ring.entries.clone()]);
        }
        if let Some(gauge) = &mut recording.gauge {
            gauge.values.push(env.speed().or(env.goal_distance()).unwrap_or(0.0));
        }
        if recording.outcome.is_done() {
            break;
        }
        actor.act(&obs, &mut chosen)?;
        map.apply(&chosen, &mut action);
        let before = env.time();
        let step = env.step(&action, &mut obs)?;
        if recording.dt == 0.0 {
            recording.dt = env.time() - before;
        }
        recording.rewards.push(step.reward);
        recording.costs.push(step.cost);
        recording.actions.push(action.clone());
        for (term, value) in recording.terms.iter_mut().zip(env.cost_terms()) {
            term.values.push(*value);
        }
        if env.goal_met() {
            recording.goals.push(recording.rewards.len());
        }
        recording.outcome = step.outcome;
    }
    recording.values = values(learned.agent, &inputs);
    Ok(recording)
}

fn series(name: &str) -> Series {
    Series { name: name.replace('_', " "), values: Vec::new() }
}

/// The values of the critics for normalised observations, in the units of the task, one after the other.
fn values(agent: &Agent, inputs: &[f32]) -> Vec<Series> {
    let far = agent.cost_kinds.iter().any(|kind| kind.is_root());
    let cost = agent.critics_c.iter().zip(&agent.cost_kinds).map(|(critic, kind)| match kind {
        CostCritic::Value | CostCritic::AboveLimit if far => ("V_N", critic),
        CostCritic::Value | CostCritic::AboveLimit => ("V_C", critic),
        CostCritic::Root | CostCritic::RootAboveLimit => ("√V_F", critic),
        CostCritic::Variance => ("variance", critic),
    });
    let all = [("V", &agent.critic_r)].into_iter().chain(cost);
    all.zip(agent.units())
        .map(|((name, critic), unit)| {
            let mut out = vec![0.0; inputs.len() / critic.net.inputs()];
            critic.net.predict(inputs, &mut critic.net.workspace(1), &mut out);
            let read = |v: f32| unit * if name == "√V_F" { f64::from(v).abs() } else { f64::from(v) };
            Series { name: name.to_owned(), values: out.into_iter().map(read).collect() }
        })
        .collect()
}
