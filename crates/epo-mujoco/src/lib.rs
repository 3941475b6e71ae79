//! A safe, small surface over the MuJoCo C library: what the tasks need and nothing else.
//!
//! A [`Sim`] owns one model and its data. The model is compiled once from trusted MJCF text; a copy of it is cheap
//! ([`Sim::try_clone`]), and a reset moves bodies in place ([`Sim::place`], [`Sim::reset_placed`]). Names are resolved to ids when a
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

mod messages;

use mujoco_rs::mujoco_c::{mj_normalizeQuat, mj_objectVelocity, mjtWarning};
use mujoco_rs::prelude::*;
use mujoco_rs::wrappers::mj_model::{MjtDisableBit, MjtEnableBit, MjtGeomBase, MjtObjBase};

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

/// What MuJoCo complained about since the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A position, velocity or acceleration became non-finite or huge; MuJoCo went back to the initial state.
    Diverged,
    /// The arena was too small, so contacts or constraints were dropped and the physics is wrong.
    OutOfMemory,
}

/// Shape of a geom, for drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Half-sizes in x and y.
    Plane,
    /// Radius.
    Sphere,
    /// Radius, half-length; along z.
    Capsule,
    /// Three radii.
    Ellipsoid,
    /// Radius, half-length; along z.
    Cylinder,
    /// Three half-sizes.
    Box,
    /// Anything else (meshes, height fields); not used by our models.
    Other,
}

/// One geom, for drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Geom {
    /// Its name; may be empty.
    pub name: String,
    /// The body that it moves with.
    pub body: BodyId,
    /// Shape.
    pub shape: Shape,
    /// Sizes, see [`Shape`].
    pub size: [f64; 3],
    /// Red, green, blue, opacity, each in 0..=1.
    pub rgba: [f32; 4],
    /// Position in the frame of the body.
    pub pos: [f64; 3],
    /// Orientation in the frame of the body, as (w, x, y, z).
    pub quat: [f64; 4],
}

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
        messages::install();
        let model = MjModel::from_xml_string(xml).map_err(|e| Error::Compile(e.to_string()))?;
        Self::from_model(model)
    }

    fn from_model(mut model: MjModel) -> Result<Self, Error> {
        skip_absent_constraints(&mut model);
        let data = MjData::try_new(Box::new(model)).map_err(|e| Error::Allocate(e.to_string()))?;
        Ok(Self { data })
    }

    /// A second simulation of the same model, in its initial state, without compiling again.
    pub fn try_clone(&self) -> Result<Self, Error> {
        Self::from_model(self.model().clone())
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

    /// Scales all masses and inertias so that they sum up to `kilograms`.
    pub fn set_total_mass(&mut self, kilograms: f64) {
        // SAFETY: only entries of float arrays are written; no size, index or address changes.
        unsafe { self.data.model_mut() }.set_totalmass(kilograms);
        self.data.set_const();
    }

    /// The compiled model, for sizes and constants.
    pub fn model(&self) -> &MjModel {
        self.data.model()
    }

    /// Bytes that this simulation holds: model, data and arena.
    pub fn bytes(&self) -> usize {
        let data = self.data.ffi();
        let arena = data.narena as usize + data.nbuffer as usize;
        self.model().size() + arena + size_of_val(data)
    }

    /// Bytes of the arena that were in use at once, at most, since this simulation was made.
    pub fn arena_used(&self) -> usize {
        self.data.ffi().maxuse_arena as usize
    }
}

/// Switches off the search for constraints of which the model has none: dry friction in joints, and joint limits.
///
/// No result changes, but every step is spared a look at every joint.
fn skip_absent_constraints(model: &mut MjModel) {
    if model.ffi().ntendon > 0 {
        return; // tendons may have both
    }
    let (no_friction, no_limits) = (
        model.dof_frictionloss().iter().all(|f| *f == 0.0),
        model.jnt_limited().iter().all(|limited| !limited),
    );
    let flags = &mut model.opt_mut().disableflags;
    *flags |= if no_friction { MjtDisableBit::mjDSBL_FRICTIONLOSS as i32 } else { 0 };
    *flags |= if no_limits { MjtDisableBit::mjDSBL_LIMIT as i32 } else { 0 };
}

/// Stepping.
impl Sim {
    /// `mj_step`: advances by one timestep.
    pub fn step(&mut self) {
        self.data.step();
    }

    /// `mj_step2`: as [`step`](Self::step), given that nothing but controls has changed since the last
    /// [`forward`](Self::forward): what depends on positions and velocities only is not computed again, and they are
    /// not checked (see [`check_state`](Self::check_state)). Euler integration only.
    pub fn step_from_forward(&mut self) {
        self.data.step2();
    }

    /// `mj_forward`: all quantities of the present state, time stands still.
    pub fn forward(&mut self) {
        self.data.forward();
    }

    /// `mj_rnePostConstraint`: the forces between bodies and from outside, of the state of the last forward pass.
    pub fn rne_post_constraint(&mut self) {
        self.data.rne_post_constraint();
    }

    /// `mj_normalizeQuat`: gives every quaternion in the positions length 1.
    pub fn normalize_quaternions(&mut self) {
        // SAFETY: the positions belong to this model, and the C library alone touches them during the call.
        unsafe { mj_normalizeQuat(self.model().ffi(), self.data.ffi().qpos) };
    }

    /// `mj_resetData`: the model's initial state.
    pub fn reset(&mut self) {
        self.data.reset();
    }

    /// Whether the steps to come compute sensors.
    pub fn set_sensors(&mut self, on: bool) {
        let bit = MjtDisableBit::mjDSBL_SENSOR as i32;
        let flags = &mut self.data.model_opt_mut().disableflags;
        *flags = if on { *flags & !bit } else { *flags | bit };
    }

    /// Lets bodies at rest sleep, or (`false`) wakes all of them in the next forward pass.
    ///
    /// A sleeping body is not simulated until something touches it. Switch sleep off before
    /// [`reset_placed`](Self::reset_placed), and on again only after a [`forward`](Self::forward) pass: fixed bodies are
    /// computed while it is off, and never while it is on.
    pub fn set_sleep(&mut self, on: bool) {
        let bit = MjtEnableBit::mjENBL_SLEEP as i32;
        let flags = &mut self.data.model_opt_mut().enableflags;
        *flags = if on { *flags | bit } else { *flags & !bit };
    }

    /// Whether a body is asleep.
    pub fn is_asleep(&self, body: BodyId) -> bool {
        let tree = self.model().body_treeid()[body.0]; // none for a fixed body
        usize::try_from(tree).is_ok_and(|tree| self.data.tree_asleep()[tree] >= 0)
    }

    /// Notices positions and velocities that are not finite or huge, as `mj_step` does before it begins.
    pub fn check_state(&mut self) {
        self.data.check_pos();
        self.data.check_vel();
    }

    /// Notices accelerations that are not finite or huge, as `mj_step` does before it integrates.
    pub fn check_acceleration(&mut self) {
        self.data.check_acc();
    }

    /// What went wrong since the last reset, if anything.
    pub fn trouble(&self) -> Option<Trouble> {
        let warning = &self.data.ffi().warning;
        let raised = |w: mjtWarning| warning[w as usize].number > 0;
        if raised(mjtWarning::mjWARN_BADQPOS)
            || raised(mjtWarning::mjWARN_BADQVEL)
            || raised(mjtWarning::mjWARN_BADQACC)
        {
            Some(Trouble::Diverged)
        } else if raised(mjtWarning::mjWARN_CONTACTFULL) || raised(mjtWarning::mjWARN_CNSTRFULL) {
            Some(Trouble::OutOfMemory)
        } else {
            None
        }
    }
}

/// Moving the furniture.
impl Sim {
    /// Moves a body of the model to where an episode begins; a body with a free joint begins there too.
    ///
    /// Call [`reset_placed`](Self::reset_placed) once all bodies are placed.
    pub fn place(&mut self, body: BodyId, pos: [f64; 3], quat: [f64; 4]) {
        // SAFETY: only entries of float arrays are written; no size, index or address changes.
        let model = unsafe { self.data.model_mut() };
        model.body_pos_mut()[body.0] = pos;
        model.body_quat_mut()[body.0] = quat;
        let joint = model.body_jntadr()[body.0];
        if joint < 0 || model.jnt_type()[joint as usize] != MjtJoint::mjJNT_FREE {
            return;
        }
        let at = model.jnt_qposadr()[joint as usize] as usize;
        model.qpos0_mut()[at..at + 3].copy_from_slice(&pos);
        model.qpos0_mut()[at + 3..at + 7].copy_from_slice(&quat);
        model.qpos_spring_mut()[at..at + 3].copy_from_slice(&pos);
        model.qpos_spring_mut()[at + 3..at + 7].copy_from_slice(&quat);
    }

    /// Moves a geom within its body. For looks only: inertia is not computed again.
    pub fn place_geom(&mut self, geom: GeomId, pos: [f64; 3], quat: [f64; 4]) {
        // SAFETY: as in `place`.
        let model = unsafe { self.data.model_mut() };
        model.geom_pos_mut()[geom.0] = pos;
        model.geom_quat_mut()[geom.0] = quat;
    }

    /// Recomputes what the model derives from its initial state (weights, relative poses of welds), and goes to that
    /// state.
    ///
    /// Bit-equal to compiling the model again with the bodies where they were placed.
    pub fn reset_placed(&mut self) {
        self.data.set_const();
        self.data.reset();
    }

    /// Moves a fixed body in the plane, at once: its frame, its centre of mass and its geoms are where the next
    /// [`forward`](Self::forward) pass would put them. (With sleep on no pass would: it leaves fixed bodies alone.)
    ///
    /// The body must be a child of the world, without children, and nothing may collide with it.
    pub fn move_fixed(&mut self, body: BodyId, xy: [f64; 2]) {
        let BodyId(b) = body;
        // SAFETY: as in `place`.
        let model = unsafe { self.data.model_mut() };
        debug_assert!(model.body_parentid()[b] == 0 && model.body_jntnum()[b] == 0, "body {b} is not fixed");
        model.body_pos_mut()[b][..2].copy_from_slice(&xy);
        let pos = model.body_pos()[b];
        self.data.xpos_mut()[b] = pos;
        let model = self.data.model();
        let (ipos, iquat, frame) = (model.body_ipos()[b], model.body_iquat()[b], model.body_sameframe()[b]);
        self.data.xipos_mut()[b] = self.data.local_to_global(&ipos, &iquat, b, frame).0;
        let model = self.data.model();
        let first = model.body_geomadr()[b] as usize;
        for g in first..first + model.body_geomnum()[b] as usize {
            let model = self.data.model();
            let (pos, quat, frame) = (model.geom_pos()[g], model.geom_quat()[g], model.geom_sameframe()[g]);
            self.data.geom_xpos_mut()[g] = self.data.local_to_global(&pos, &quat, b, frame).0;
        }
    }

    /// Target positions of the mocap bodies, in the order of the model.
    pub fn mocap_pos_mut(&mut self) -> &mut [[f64; 3]] {
        self.data.mocap_pos_mut()
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
    /// Generalised positions, to be set; call [`forward`](Self::forward) afterwards.
    pub fn qpos_mut(&mut self) -> &mut [f64] {
        self.data.qpos_mut()
    }
    /// Generalised velocities.
    pub fn qvel(&self) -> &[f64] {
        self.data.qvel()
    }
    /// Generalised velocities, to be set; call [`forward`](Self::forward) afterwards.
    pub fn qvel_mut(&mut self) -> &mut [f64] {
        self.data.qvel_mut()
    }
    /// Controls, one per actuator.
    pub fn ctrl(&self) -> &[f64] {
        self.data.ctrl()
    }
    /// Controls, to be set.
    pub fn ctrl_mut(&mut self) -> &mut [f64] {
        self.data.ctrl_mut()
    }
    /// World position of a body's frame.
    pub fn xpos(&self, body: BodyId) -> [f64; 3] {
        self.data.xpos()[body.0]
    }
    /// World position of a geom.
    pub fn geom_xpos(&self, geom: GeomId) -> [f64; 3] {
        self.data.geom_xpos()[geom.0]
    }
    /// World orientation of a body's frame, as (w, x, y, z).
    pub fn xquat(&self, body: BodyId) -> [f64; 4] {
        self.data.xquat()[body.0]
    }
    /// World orientation of a body's frame: `world = R · body`, row by row.
    pub fn xmat(&self, body: BodyId) -> [f64; 9] {
        self.data.xmat()[body.0]
    }
    /// Velocity of the origin of a body's frame, in world axes.
    pub fn velocity(&self, body: BodyId) -> [f64; 3] {
        assert!(body.0 < self.data.xpos().len(), "body {} does not exist", body.0);
        let mut v = [0.0; 6];
        // SAFETY: model and data belong together, the id was checked, six numbers are written (turning, then moving).
        unsafe {
            mj_objectVelocity(
                self.model().ffi(),
                self.data.ffi(),
                MjtObj::mjOBJ_XBODY as i32,
                body.0 as i32,
                &mut v,
                0,
            );
        }
        [v[3], v[4], v[5]]
    }
    /// World position of every body's centre of mass.
    pub fn xipos(&self) -> &[[f64; 3]] {
        self.data.xipos()
    }
    /// Mass of every body, in kilograms.
    pub fn body_mass(&self) -> &[f64] {
        self.model().body_mass()
    }
    /// Inertia and mass of every body about the centre of its tree.
    pub fn cinert(&self) -> &[[f64; 10]] {
        self.data.cinert()
    }
    /// Velocity of every body at the centre of its tree: turning, then moving.
    pub fn cvel(&self) -> &[[f64; 6]] {
        self.data.cvel()
    }
    /// Forces of the actuators, one per degree of freedom.
    pub fn qfrc_actuator(&self) -> &[f64] {
        self.data.qfrc_actuator()
    }
    /// Outer force on every body, torque first; see [`rne_post_constraint`](Self::rne_post_constraint).
    pub fn cfrc_ext(&self) -> &[[f64; 6]] {
        self.data.cfrc_ext()
    }
    /// Seconds per [`step`](Self::step).
    pub fn timestep(&self) -> f64 {
        self.model().opt().timestep
    }
    /// All sensor readings, in the order of the model.
    pub fn sensordata(&self) -> &[f64] {
        self.data.sensordata()
    }
    /// The two geoms of every contact.
    pub fn contacts(&self) -> impl Iterator<Item = [GeomId; 2]> + '_ {
        self.data.contact().iter().map(|c| [GeomId(c.geom[0] as usize), GeomId(c.geom[1] as usize)])
    }
    /// How many bodies there are, the world included.
    pub fn n_bodies(&self) -> usize {
        self.data.xpos().len()
    }
    /// Every geom, for drawing. Allocates; call it once.
    pub fn geoms(&self) -> Vec<Geom> {
        let model = self.model();
        let geom = |i: usize| Geom {
            name: model.id_to_name(MjtObjBase::mjOBJ_GEOM, i).unwrap_or_default().to_owned(),
            body: BodyId(model.geom_bodyid()[i] as usize),
            shape: match model.geom_type()[i] {
                MjtGeomBase::mjGEOM_PLANE => Shape::Plane,
                MjtGeomBase::mjGEOM_SPHERE => Shape::Sphere,
                MjtGeomBase::mjGEOM_CAPSULE => Shape::Capsule,
                MjtGeomBase::mjGEOM_ELLIPSOID => Shape::Ellipsoid,
                MjtGeomBase::mjGEOM_CYLINDER => Shape::Cylinder,
                MjtGeomBase::mjGEOM_BOX => Shape::Box,
                _ => Shape::Other,
            },
            size: model.geom_size()[i],
            rgba: model.geom_rgba()[i],
            pos: model.geom_pos()[i],
            quat: model.geom_quat()[i],
        };
        (0..model.geom_type().len()).map(geom).collect()
    }
}
