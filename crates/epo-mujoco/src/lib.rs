//! A safe, small surface over the MuJoCo C library: what the tasks need and nothing else.
//!
//! A [`Sim`] owns one model and its data. The model is compiled once from trusted MJCF text; a copy of it is cheap
//! ([`Sim::try_clone`]), and a reset moves bodies in place ([`Sim::reset_with`]). Names are resolved to ids when a
//! task is built ([`Sim::body`], [`Sim::geom`]), never in a step.
//!
//! ```
//! let xml = "<mujoco><worldbody><body name='ball' pos='0 0 1'><freejoint/><geom size='.1'/></body></worldbody></mujoco>";
//! let mut sim = epo_mujoco::Sim::from_xml(xml)?;
//! let ball = sim.body("ball")?;
//! sim.step();
//! sim.forward();
//! assert!(sim.xpos(ball)[2] < 1.0, "it falls");
//! # Ok::<(), epo_mujoco::Error>(())
//! ```

use mujoco_rs::prelude::*;
use mujoco_rs::wrappers::mj_model::MjtObjBase;

/// What can go wrong when a model is built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MuJoCo refused the model.
    #[error("MuJoCo could not compile the model: {0}")]
    Compile(String),
    /// A name that the model does not have.
    #[error("the model has no {kind} named `{name}`")]
    NoSuchName {
        /// body, geom, …
        kind: &'static str,
        /// The name that was asked for.
        name: String,
    },
    /// The simulator ran out of memory.
    #[error("MuJoCo could not allocate its data: {0}")]
    Allocate(String),
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);
    };
}
id!(/// Index of a body; 0 is the world.
    BodyId);
id!(/// Index of a geom.
    GeomId);

/// One model with its simulation state.
pub struct Sim {
    data: MjData<Box<MjModel>>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("nq", &self.qpos().len()).field("nv", &self.qvel().len()).finish()
    }
}

/// Building.
impl Sim {
    /// Compiles a model. The text must be trusted: MuJoCo can crash on malformed input.
    pub fn from_xml(xml: &str) -> Result<Self, Error> {
        let model = MjModel::from_xml_string(xml).map_err(|e| Error::Compile(e.to_string()))?;
        Self::from_model(model)
    }

    fn from_model(model: MjModel) -> Result<Self, Error> {
        let data = MjData::try_new(Box::new(model)).map_err(|e| Error::Allocate(e.to_string()))?;
        Ok(Self { data })
    }

    /// A second simulation of the same model, in its initial state, without compiling again.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let model = self.model().clone();
        Self::from_model(model)
    }

    /// The body of that name.
    pub fn body(&self, name: &str) -> Result<BodyId, Error> {
        self.find(MjtObjBase::mjOBJ_BODY, "body", name).map(BodyId)
    }

    /// The geom of that name.
    pub fn geom(&self, name: &str) -> Result<GeomId, Error> {
        self.find(MjtObjBase::mjOBJ_GEOM, "geom", name).map(GeomId)
    }

    fn find(&self, kind: MjtObjBase, word: &'static str, name: &str) -> Result<usize, Error> {
        let missing = || Error::NoSuchName { kind: word, name: name.to_owned() };
        self.model().name_to_id(kind, name).ok_or_else(missing)
    }

    /// The compiled model, for sizes and constants.
    pub fn model(&self) -> &MjModel {
        self.data.model()
    }
}

/// Stepping.
impl Sim {
    /// `mj_step`: advances by one timestep.
    pub fn step(&mut self) {
        self.data.step();
    }

    /// `mj_forward`: all quantities of the present state, time stands still.
    pub fn forward(&mut self) {
        self.data.forward();
    }

    /// `mj_resetData`: the model's initial state.
    pub fn reset(&mut self) {
        self.data.reset();
    }
}

/// State and readings.
impl Sim {
    /// Simulated seconds since the reset.
    pub fn time(&self) -> f64 {
        self.data.time()
    }
    /// Generalised positions.
    pub fn qpos(&self) -> &[f64] {
        self.data.qpos()
    }
    /// Generalised velocities.
    pub fn qvel(&self) -> &[f64] {
        self.data.qvel()
    }
    /// Controls, one per actuator.
    pub fn ctrl_mut(&mut self) -> &mut [f64] {
        self.data.ctrl_mut()
    }
    /// World position of a body's frame.
    pub fn xpos(&self, body: BodyId) -> [f64; 3] {
        self.data.xpos()[body.0]
    }
    /// All sensor readings, in the order of the model.
    pub fn sensordata(&self) -> &[f64] {
        self.data.sensordata()
    }
}
