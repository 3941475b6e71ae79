//! A small safe interface to the MuJoCo C library, with only the functions that the tasks need.
//!
//! A [`Sim`] owns one model and its data. The model is compiled once from trusted MJCF text. Copies of it are cheap
//! ([`Sim::try_clone`]), and a reset moves bodies in place ([`Sim::place`], [`Sim::reset_placed`]). Names are resolved to
//! ids when a task is built ([`Sim::body`], [`Sim::geom`]), never in a step.
//!
//! The library is opened when the first model is compiled. If the environment variable
//! `MUJOCO_LIB_DIR` is set, it must be in that folder. Otherwise the following folders are tried in
//! this order:
//!
//! 1. the folder of [`set_library_dir`],
//! 2. the folder of the program,
//! 3. `lib` beside that folder,
//! 4. `epo` in the user's data folder,
//! 5. the folder of the build.
//!
//! The file must have the hash of the library that the program was built with.
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

mod library;
mod raw;

pub use library::set_library_dir;
use raw::Raw;

/// The reason why a model could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The MuJoCo library was not found, or cannot be used. The text lists every place that was tried.
    #[error("the MuJoCo library cannot be opened; set MUJOCO_LIB_DIR to the folder that holds it. Tried:{0}")]
    Library(String),
    /// MuJoCo refused the model.
    #[error("MuJoCo could not compile the model: {0}")]
    Compile(String),
    /// The model has no body or geom of that name.
    #[error("the model has no {kind} named `{name}`")]
    NoSuchName {
        /// `body` or `geom`.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
    },
    /// The system has no memory left for another simulation.
    #[error("there is not enough memory for the simulation")]
    Allocate,
}

/// Number of fatal errors inside MuJoCo since the program began, in all threads.
///
/// Such an error ends the call in which it occurs. The simulation returns to its initial state and reports
/// [`Trouble`], so only one episode is lost.
pub fn fatal_errors() -> u64 {
    raw::fatal_errors()
}

/// Lets the process end without the destructors of the libraries; its exit code is kept.
///
/// Call it when the program is about to end while other threads still simulate. The destructors would take away what
/// these threads use.
pub fn skip_destructors() {
    raw::skip_destructors();
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

/// An error in a simulation since its last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A position, velocity or acceleration became huge or not finite, and MuJoCo returned to the initial state.
    Diverged,
    /// The arena was too small, so contacts or constraints were dropped and the physics is wrong.
    OutOfMemory,
}

/// Shape of a geom, with the meaning of the numbers in [`Geom::size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Half-sizes in x and y; 0 means infinite.
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
    /// Another shape (mesh, height field). Our models have none.
    Other,
}

/// One geom, as a viewer draws it.
#[derive(Clone, Debug, PartialEq)]
pub struct Geom {
    /// Name; empty if it has none.
    pub name: String,
    /// The body that it belongs to.
    pub body: BodyId,
    /// Shape.
    pub shape: Shape,
    /// Sizes in metres, see [`Shape`].
    pub size: [f64; 3],
    /// Red, green, blue, opacity, each from 0 to 1.
    pub rgba: [f32; 4],
    /// Position in the frame of the body, in metres.
    pub pos: [f64; 3],
    /// Orientation in the frame of the body, as a quaternion (w, x, y, z).
    pub quat: [f64; 4],
}

/// One model with the state of its simulation.
pub struct Sim {
    raw: Raw,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("nq", &self.qpos().len()).field("nv", &self.qvel().len()).finish()
    }
}

/// Building.
impl Sim {
    /// Compiles a model from MJCF text. The text must be trusted: MuJoCo can crash on malformed input.
    pub fn from_xml(xml: &str) -> Result<Self, Error> {
        Ok(Self { raw: Raw::compile(xml)? })
    }

    /// A second simulation of the same model, in its initial state. The model is copied, not compiled again.
    pub fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self { raw: self.raw.try_clone()? })
    }

    /// The body of that name.
    pub fn body(&self, name: &str) -> Result<BodyId, Error> {
        let missing = || Error::NoSuchName { kind: "body", name: name.to_owned() };
        self.raw.find_body(name).map(BodyId).ok_or_else(missing)
    }

    /// The geom of that name.
    pub fn geom(&self, name: &str) -> Result<GeomId, Error> {
        let missing = || Error::NoSuchName { kind: "geom", name: name.to_owned() };
        self.raw.find_geom(name).map(GeomId).ok_or_else(missing)
    }

    /// Scales all masses and inertias so that the masses sum up to `kilograms`.
    pub fn set_total_mass(&mut self, kilograms: f64) {
        self.raw.set_total_mass(kilograms);
        self.raw.set_const();
    }

    /// Size of this simulation in bytes: model, data and arena.
    pub fn bytes(&self) -> usize {
        self.raw.bytes()
    }

    /// Largest number of bytes of the arena that were in use at once since this simulation was made.
    pub fn arena_used(&self) -> usize {
        self.raw.arena_used()
    }
}

/// Stepping.
impl Sim {
    /// `mj_step`: advances by one timestep.
    pub fn step(&mut self) {
        self.raw.step();
    }

    /// `mj_step2`: gives the same result as [`step`](Self::step) if only controls have changed since the last
    /// [`forward`](Self::forward) pass.
    ///
    /// It does not recompute the quantities that depend only on positions and velocities, and it
    /// does not check them (see [`check_state`](Self::check_state)). It is valid only for Euler
    /// integration.
    pub fn step_from_forward(&mut self) {
        self.raw.step2();
    }

    /// `mj_forward`: computes all quantities of the present state without advancing the time.
    pub fn forward(&mut self) {
        self.raw.forward();
    }

    /// `mj_rnePostConstraint`: computes the forces between bodies and from outside for the state of the last forward
    /// pass.
    pub fn rne_post_constraint(&mut self) {
        self.raw.rne_post_constraint();
    }

    /// `mj_normalizeQuat`: normalises every quaternion in the positions.
    pub fn normalize_quaternions(&mut self) {
        self.raw.normalize_quat();
    }

    /// `mj_resetData`: returns to the initial state of the model.
    pub fn reset(&mut self) {
        self.raw.reset();
    }

    /// Switches the computation of sensors on or off. It is on at the start.
    pub fn set_sensors(&mut self, on: bool) {
        self.raw.set_sensors(on);
    }

    /// Switches contacts on or off. They are on at the start.
    ///
    /// A pass without contacts takes less time. It has the same result if no body that is awake presses on
    /// another.
    pub fn set_contacts(&mut self, on: bool) {
        self.raw.set_contacts(on);
    }

    /// Switches sleep on or off. With sleep on, bodies at rest sleep. Switching it off wakes all
    /// bodies in the next forward pass. Sleep is off at the start.
    ///
    /// A sleeping body is not simulated until something touches it. Switch sleep off before
    /// [`reset_placed`](Self::reset_placed), and on only after a [`forward`](Self::forward) pass: MuJoCo computes the
    /// poses of fixed bodies only while sleep is off.
    pub fn set_sleep(&mut self, on: bool) {
        self.raw.set_sleep(on);
    }

    /// Whether a body is asleep.
    pub fn is_asleep(&self, body: BodyId) -> bool {
        let tree = self.raw.body_treeid()[body.0]; // negative for a fixed body
        usize::try_from(tree).is_ok_and(|tree| self.raw.tree_asleep()[tree] >= 0)
    }

    /// Records an error if a position or velocity is huge or not finite, as `mj_step` does at its
    /// start; see [`trouble`](Self::trouble).
    pub fn check_state(&mut self) {
        self.raw.check_state();
    }

    /// Records an error if an acceleration is huge or not finite, as `mj_step` does before it
    /// integrates; see [`trouble`](Self::trouble).
    pub fn check_acceleration(&mut self) {
        self.raw.check_acceleration();
    }

    /// Returns the error since the last reset, if there is one.
    pub fn trouble(&self) -> Option<Trouble> {
        match self.raw.trouble() {
            0 => None,
            1 => Some(Trouble::Diverged),
            _ => Some(Trouble::OutOfMemory),
        }
    }
}

/// Moving bodies.
impl Sim {
    /// Sets the pose of a body in the initial state of the model. A body with a free joint starts there too.
    ///
    /// Call [`reset_placed`](Self::reset_placed) once all bodies are placed.
    pub fn place(&mut self, body: BodyId, pos: [f64; 3], quat: [f64; 4]) {
        self.raw.body_pos_mut()[body.0] = pos;
        self.raw.body_quat_mut()[body.0] = quat;
        if let Some(at) = self.free_joint(body) {
            for state in [Raw::qpos0_mut, Raw::qpos_spring_mut] {
                let state = state(&mut self.raw);
                state[at..at + 3].copy_from_slice(&pos);
                state[at + 3..at + 7].copy_from_slice(&quat);
            }
        }
    }

    /// Sets the pose of a geom within its body. Only its appearance moves: inertia is not computed again.
    pub fn place_geom(&mut self, geom: GeomId, pos: [f64; 3], quat: [f64; 4]) {
        self.raw.geom_pos_mut()[geom.0] = pos;
        self.raw.geom_quat_mut()[geom.0] = quat;
    }

    /// Recomputes the quantities that the model derives from its initial state (weights, relative
    /// poses of welds), and returns to that state.
    ///
    /// The result is bit-equal to compiling the model with the bodies where they were placed.
    pub fn reset_placed(&mut self) {
        self.raw.set_const();
        self.raw.reset();
    }

    /// Moves a fixed body in the plane immediately. Its frame, its centre of mass and its geoms get
    /// the positions that the next [`forward`](Self::forward) pass would compute. With sleep on, a
    /// forward pass skips fixed bodies and would not compute them.
    ///
    /// The body must be a child of the world, without children, and nothing may collide with it.
    pub fn move_fixed(&mut self, body: BodyId, xy: [f64; 2]) {
        let (BodyId(b), raw) = (body, &mut self.raw);
        debug_assert!(raw.body_parentid()[b] == 0 && raw.body_jntnum()[b] == 0, "body {b} is not fixed");
        raw.body_pos_mut()[b][..2].copy_from_slice(&xy);
        raw.xpos_mut()[b] = raw.body_pos()[b];
        raw.xipos_mut()[b] = raw.body_centre(b);
        let first = raw.body_geomadr()[b] as usize;
        for g in first..first + raw.body_geomnum()[b] as usize {
            raw.geom_xpos_mut()[g] = raw.geom_place(b, g);
        }
    }

    /// Writable positions of the mocap bodies, in the order of the model.
    pub fn mocap_pos_mut(&mut self) -> &mut [[f64; 3]] {
        self.raw.mocap_pos_mut()
    }
}

/// State and readings.
impl Sim {
    /// Simulated time since the reset, in seconds.
    pub fn time(&self) -> f64 {
        self.raw.time()
    }
    /// Generalised positions.
    pub fn qpos(&self) -> &[f64] {
        self.raw.qpos()
    }
    /// Writable generalised positions. Call [`forward`](Self::forward) after changing them.
    pub fn qpos_mut(&mut self) -> &mut [f64] {
        self.raw.qpos_mut()
    }
    /// Generalised velocities.
    pub fn qvel(&self) -> &[f64] {
        self.raw.qvel()
    }
    /// Writable generalised velocities. Call [`forward`](Self::forward) after changing them.
    pub fn qvel_mut(&mut self) -> &mut [f64] {
        self.raw.qvel_mut()
    }
    /// Controls, one per actuator.
    pub fn ctrl(&self) -> &[f64] {
        self.raw.ctrl()
    }
    /// Writable controls, one per actuator.
    pub fn ctrl_mut(&mut self) -> &mut [f64] {
        self.raw.ctrl_mut()
    }
    /// Index in [`qpos`](Self::qpos) of the free joint of a body (position, then quaternion), if it has one.
    pub fn free_joint(&self, body: BodyId) -> Option<usize> {
        self.raw.free_joint(body.0)
    }
    /// The body at the root of a body's tree: the ancestor that is attached to the world, or the body itself.
    pub fn root(&self, body: BodyId) -> BodyId {
        let parents = self.raw.body_parentid();
        let mut root = body.0;
        while parents[root] != 0 {
            root = parents[root] as usize;
        }
        BodyId(root)
    }
    /// Whether a body is attached to the world by a joint: it can move, and nothing carries it.
    pub fn is_loose(&self, body: BodyId) -> bool {
        body.0 != 0 && self.raw.body_parentid()[body.0] == 0 && self.raw.body_jntnum()[body.0] > 0
    }
    /// Whether no joint moves a body.
    pub fn is_fixed(&self, body: BodyId) -> bool {
        self.raw.body_treeid()[body.0] < 0
    }
    /// Whether a body slides over the floor z = 0 without pressing on it, and has neither a parent nor children.
    ///
    /// Its joints only move it horizontally and turn it about the vertical axis through its origin, and the bounding
    /// spheres of its geoms are above the floor.
    pub fn glides(&self, body: BodyId) -> bool {
        let (BodyId(b), raw) = (body, &self.raw);
        let items = |first: i32, n: i32| (0..n).map(move |i| (first + i) as usize);
        let level = |joint: usize| {
            let ([x, y, z], [px, py, _]) = (raw.jnt_axis()[joint], raw.jnt_pos()[joint]);
            match raw.joint_kind(joint) {
                2 => z == 0.0,
                3 => [x, y, px, py] == [0.0; 4],
                _ => false,
            }
        };
        // a contact has a force only if its distance is below the sum of the margins
        let margin = |geom: usize| raw.geom_margin()[geom] + raw.geom_gap()[geom];
        let floor = items(raw.body_geomadr()[0], raw.body_geomnum()[0]).map(margin).fold(0.0, f64::max);
        let height = raw.body_pos()[b][2];
        let above =
            |geom: usize| height + raw.geom_pos()[geom][2] >= raw.geom_rbound()[geom] + margin(geom) + floor;
        let parents = raw.body_parentid();
        let [_, qx, qy, _] = raw.body_quat()[b];
        (qx, qy, parents[b]) == (0.0, 0.0, 0)
            && parents.iter().all(|parent| *parent as usize != b)
            && items(raw.body_jntadr()[b], raw.body_jntnum()[b]).all(level)
            && items(raw.body_geomadr()[b], raw.body_geomnum()[b]).all(above)
    }
    /// Radius of a sphere about the origin of a body outside of which nothing touches its geoms, in metres. It is
    /// infinite for a plane, and `None` if nothing collides with the body.
    pub fn reach(&self, body: BodyId) -> Option<f64> {
        let raw = &self.raw;
        let geoms = (0..raw.n_geoms()).filter(|g| raw.geom_bodyid()[*g] as usize == body.0);
        let solid = geoms.filter(|g| raw.geom_contype()[*g] != 0 || raw.geom_conaffinity()[*g] != 0);
        let reach = |g: usize| {
            let ([x, y, z], radius) = (raw.geom_pos()[g], raw.geom_rbound()[g]);
            let radius = if radius > 0.0 { radius } else { f64::INFINITY };
            (x * x + y * y + z * z).sqrt() + radius + raw.geom_margin()[g] + raw.geom_gap()[g]
        };
        solid.map(reach).reduce(f64::max)
    }
    /// Generalised velocities of the joints of a body.
    pub fn joint_velocities(&self, body: BodyId) -> &[f64] {
        let n = self.raw.body_dofnum()[body.0] as usize;
        let first = if n == 0 { 0 } else { self.raw.body_dofadr()[body.0] as usize };
        &self.qvel()[first..first + n]
    }
    /// World position of a body's frame, in metres.
    pub fn xpos(&self, body: BodyId) -> [f64; 3] {
        self.raw.xpos()[body.0]
    }
    /// World position of a geom, in metres.
    pub fn geom_xpos(&self, geom: GeomId) -> [f64; 3] {
        self.raw.geom_xpos()[geom.0]
    }
    /// World orientation of a body's frame, as a quaternion (w, x, y, z).
    pub fn xquat(&self, body: BodyId) -> [f64; 4] {
        self.raw.xquat()[body.0]
    }
    /// World orientation of a body's frame as a rotation matrix, row by row: `world = R · body`.
    pub fn xmat(&self, body: BodyId) -> [f64; 9] {
        self.raw.xmat()[body.0]
    }
    /// Velocity of the origin of a body's frame in world axes, in m/s.
    pub fn velocity(&self, body: BodyId) -> [f64; 3] {
        let [.., x, y, z] = self.raw.body_velocity(body.0);
        [x, y, z]
    }
    /// World position of every body's centre of mass, in metres.
    pub fn xipos(&self) -> &[[f64; 3]] {
        self.raw.xipos()
    }
    /// Mass of every body, in kilograms.
    pub fn body_mass(&self) -> &[f64] {
        self.raw.body_mass()
    }
    /// Inverse weight of every degree of freedom in the initial state, which scales the softness of constraints.
    pub fn dof_invweight0(&self) -> &[f64] {
        self.raw.dof_invweight0()
    }
    /// Inertia and mass of every body about the centre of mass of its tree.
    pub fn cinert(&self) -> &[[f64; 10]] {
        self.raw.cinert()
    }
    /// Velocity of every body at the centre of mass of its tree: angular, then linear.
    pub fn cvel(&self) -> &[[f64; 6]] {
        self.raw.cvel()
    }
    /// Forces of the actuators, one per degree of freedom.
    pub fn qfrc_actuator(&self) -> &[f64] {
        self.raw.qfrc_actuator()
    }
    /// External force on every body: torque, then force; see [`rne_post_constraint`](Self::rne_post_constraint).
    pub fn cfrc_ext(&self) -> &[[f64; 6]] {
        self.raw.cfrc_ext()
    }
    /// Duration of a [`step`](Self::step), in seconds.
    pub fn timestep(&self) -> f64 {
        self.raw.timestep()
    }
    /// All sensor readings, in the order of the model.
    pub fn sensordata(&self) -> &[f64] {
        self.raw.sensordata()
    }
    /// The two geoms of every contact.
    pub fn contacts(&self) -> impl Iterator<Item = [GeomId; 2]> + '_ {
        self.raw.contacts().map(|[a, b]| [GeomId(a as usize), GeomId(b as usize)])
    }
    /// Number of bodies, the world included.
    pub fn n_bodies(&self) -> usize {
        self.raw.n_bodies()
    }
    /// Every geom, as a viewer draws it. It allocates, so call it once.
    pub fn geoms(&self) -> Vec<Geom> {
        let raw = &self.raw;
        let geom = |i: usize| Geom {
            name: raw.geom_name(i),
            body: BodyId(raw.geom_bodyid()[i] as usize),
            shape: match raw.geom_shape(i) {
                0 => Shape::Plane,
                1 => Shape::Sphere,
                2 => Shape::Capsule,
                3 => Shape::Ellipsoid,
                4 => Shape::Cylinder,
                5 => Shape::Box,
                _ => Shape::Other,
            },
            size: raw.geom_size()[i],
            rgba: raw.geom_rgba()[i],
            pos: raw.geom_pos()[i],
            quat: raw.geom_quat()[i],
        };
        (0..raw.n_geoms()).map(geom).collect()
    }
}
