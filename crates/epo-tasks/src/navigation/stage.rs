//! The simulated scene: bodies by their ids, the layout, the random draws, and what touches the robot.
//!
//! This is what a task's rules look at and act on.

use std::f64::consts::TAU;

use epo_mujoco::{BodyId, Error, GeomId, Sim};

use super::layout::{Crowded, Layout, Spot, distance};
use super::mjcf::{GREMLIN_Z, Pose, height, mjcf};
use super::robots::Robot;
use super::scene::{Kind, Object, Scene};
use crate::Physics;
use crate::numpy_legacy::RandomState;

/// Radius of the circle on which gremlins are carried, metres; one turn takes 2π seconds.
const GREMLIN_TRAVEL: f64 = 0.35;

/// The simulated scene.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) rng: RandomState,
    pub(crate) touched: Touched,
    pub(crate) scene: &'static Scene,
    pub(crate) robot: &'static Robot,
    /// Whether bodies at rest sleep: only with fast physics, and only if there is a loose body that comes to rest.
    pub(super) sleeps: bool,
    layout: Layout,
    /// The body of every entry of the layout; the robot is the first.
    bodies: Vec<BodyId>,
    heights: Vec<f64>,
    /// Where everything in the layout stood when the episode began.
    pub(super) poses: Vec<Pose>,
    /// For every gremlin, its entry in the layout and the drawn geom of its mocap body.
    mocap_geoms: Vec<(usize, GeomId)>,
    /// What every geom is when the robot touches it.
    touch: Vec<Touch>,
    goal: Option<usize>,
    buttons: Option<usize>,
    push_box: Option<usize>,
}

/// What the robot touches now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) vase: bool,
    pub(crate) gremlin: bool,
    pub(crate) pillar: bool,
    pub(crate) buttons: [bool; 4],
}

/// What a geom is, seen from a contact.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Touch {
    Robot,
    Vase,
    Gremlin,
    Pillar,
    Button(usize),
    Other,
}

impl Stage {
    /// Compiles the scene with its bodies at arbitrary places; [`reset`](Self::reset) puts them where they belong.
    pub(crate) fn new(robot: &'static Robot, scene: &'static Scene, physics: Physics) -> Result<Self, Error> {
        // not the origin: MuJoCo notes at compile time which geoms sit exactly on their body's frame
        let n = 1 + scene.objects.iter().map(|o| o.n).sum::<usize>();
        let poses: Vec<_> = (0..n).map(|i| Pose { xy: [i as f64 + 1.0, 0.5], angle: 0.5 }).collect();
        let comes_to_rest = |o: &Object| matches!(o.kind, Kind::Vase | Kind::PushBox);
        let sleeps = physics == Physics::Fast && scene.objects.iter().any(comes_to_rest);
        Self::with(Sim::from_xml(&mjcf(robot, scene, &poses))?, robot, scene, sleeps)
    }

    /// A second stage of the same scene, not yet reset, without compiling again.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Self::with(self.sim.try_clone()?, self.robot, self.scene, self.sleeps)
    }

    fn with(sim: Sim, robot: &'static Robot, scene: &'static Scene, sleeps: bool) -> Result<Self, Error> {
        let w = scene.half_width;
        let square = [-w, -w, w, w];
        let mut spots = vec![Spot::within(scene.start.unwrap_or(square), scene.start_keepout)];
        let (mut bodies, mut heights) = (vec![sim.body("agent")?], vec![robot.height]);
        let mut mocap_geoms = Vec::new();
        let touch = touch_table(&sim, scene)?;
        for object in scene.objects {
            for i in 0..object.n {
                let keepout =
                    if object.kind == Kind::PushBox { robot.push_box.keepout } else { object.keepout };
                let fixed = object.fixed_at(i).map(|xy| Spot::at(xy, keepout));
                spots.push(fixed.unwrap_or_else(|| Spot::within(square, keepout)));
                if object.kind == Kind::Gremlin {
                    mocap_geoms.push((bodies.len(), sim.geom(&format!("gremlin{i}mocap"))?));
                }
                bodies.push(sim.body(&object.name(i))?);
                heights.push(height(object, robot));
            }
        }
        Ok(Self {
            sim,
            rng: RandomState::new(0),
            touched: Touched::default(),
            scene,
            robot,
            sleeps,
            layout: Layout::new(spots),
            poses: vec![Pose::default(); bodies.len()],
            bodies,
            heights,
            mocap_geoms,
            touch,
            goal: first(scene, |k| matches!(k, Kind::Goal { .. })),
            buttons: first(scene, |k| k == Kind::Button),
            push_box: first(scene, |k| k == Kind::PushBox),
        })
    }

    /// How many things the layout places, the robot included.
    pub(crate) fn n_placed(&self) -> usize {
        self.bodies.len()
    }

    /// Objects of the scene with the bodies of each.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&'static Object, &[BodyId])> {
        let mut at = 1;
        self.scene.objects.iter().map(move |object| {
            at += object.n;
            (object, &self.bodies[at - object.n..at])
        })
    }

    /// How many vases and boxes sleep.
    #[cfg(test)]
    pub(crate) fn n_asleep(&self) -> usize {
        (0..self.sim.n_bodies()).filter(|&b| self.sim.is_asleep(BodyId(b))).count()
    }

    /// Where the positions of the loose bodies are in `qpos`.
    #[cfg(test)]
    pub(crate) fn loose_qpos(&self) -> impl Iterator<Item = usize> {
        let model = self.sim.model();
        let joint = |b: &BodyId| usize::try_from(model.body_jntadr()[b.0]).ok();
        self.bodies[1..].iter().filter_map(joint).map(|j| model.jnt_qposadr()[j] as usize)
    }

    /// Draws a layout from a freshly seeded generator and puts everything there, at rest.
    pub(crate) fn reset(&mut self, seed: u32) -> Result<(), Crowded> {
        self.sim.set_sleep(false); // fixed bodies are placed while nothing sleeps
        self.rng = RandomState::new(seed);
        self.layout.sample(&mut self.rng)?;
        self.draw_poses();
        for (k, pose) in self.poses.iter().enumerate() {
            self.sim.place(self.bodies[k], pose.at(self.heights[k]), pose.quat());
        }
        for &(k, geom) in &self.mocap_geoms {
            let pose = &self.poses[k];
            self.sim.place_geom(geom, pose.at(GREMLIN_Z), pose.quat());
        }
        self.sim.reset_placed();
        self.forward();
        self.sim.set_sleep(self.sleeps);
        Ok(())
    }

    /// Draws an angle for everything in the layout, also where it is not used.
    fn draw_poses(&mut self) {
        self.poses[0] = Pose { xy: self.layout.xy[0], angle: self.rng.uniform(0.0, TAU) };
        let mut k = 1;
        for object in self.scene.objects {
            for i in 0..object.n {
                let angle = object.rotation(i, self.rng.uniform(0.0, TAU));
                self.poses[k] = Pose { xy: self.layout.xy[k], angle };
                k += 1;
            }
        }
    }

    /// Whether gremlins are carried around.
    pub(crate) fn has_gremlins(&self) -> bool {
        !self.mocap_geoms.is_empty()
    }

    /// Carries the gremlins to where they have to be now; before every physics step.
    pub(crate) fn carry_gremlins(&mut self) {
        let (sin, cos) = self.sim.time().sin_cos();
        self.sim.mocap_pos_mut().fill([sin * GREMLIN_TRAVEL, cos * GREMLIN_TRAVEL, GREMLIN_Z]);
    }

    /// Brings all readings up to the present state.
    pub(crate) fn forward(&mut self) {
        self.sim.forward();
        self.touched = Touched::default();
        for [a, b] in self.sim.contacts() {
            let other = match (self.touch[a.0], self.touch[b.0]) {
                (Touch::Robot, other) | (other, Touch::Robot) => other,
                _ => continue,
            };
            match other {
                Touch::Vase => self.touched.vase = true,
                Touch::Gremlin => self.touched.gremlin = true,
                Touch::Pillar => self.touched.pillar = true,
                Touch::Button(i) => self.touched.buttons[i] = true,
                Touch::Robot | Touch::Other => {}
            }
        }
    }

    /// Draws a new place for the goal, clear of where everything is now; `false` if there is none.
    pub(crate) fn redraw_goal(&mut self) -> bool {
        let goal = self.goal.expect("the scene has a goal");
        let found = self.layout.resample(goal, &mut self.rng);
        if found {
            self.move_goal(self.layout.xy[goal]);
        }
        found
    }

    /// Notes where things have moved to, so that a new goal keeps clear of them. Gremlins count as being at the
    /// centres of their circles.
    pub(crate) fn update_layout(&mut self) {
        let mut at = 1;
        self.layout.xy[0] = self.xy(0);
        for object in self.scene.objects {
            for k in at..at + object.n {
                if object.kind != Kind::Gremlin {
                    self.layout.xy[k] = self.xy(k);
                }
            }
            at += object.n;
        }
    }

    /// Marks a button.
    pub(crate) fn move_goal_to_button(&mut self, i: usize) {
        self.move_goal(self.xy(self.buttons.expect("the scene has buttons") + i));
    }

    fn move_goal(&mut self, xy: [f64; 2]) {
        self.sim.move_fixed(self.bodies[self.goal.expect("the scene has a goal")], xy);
    }

    /// Position of the robot.
    pub(crate) fn robot(&self) -> [f64; 3] {
        self.sim.xpos(self.bodies[0])
    }
    /// Its orientation: `world = R · robot`, row by row.
    pub(crate) fn robot_mat(&self) -> [f64; 9] {
        self.sim.xmat(self.bodies[0])
    }
    /// Its velocity.
    pub(crate) fn robot_velocity(&self) -> [f64; 3] {
        self.sim.velocity(self.bodies[0])
    }
    /// Position of the goal.
    pub(crate) fn goal(&self) -> [f64; 3] {
        self.sim.xpos(self.bodies[self.goal.expect("the scene has a goal")])
    }
    /// Position of the box.
    pub(crate) fn push_box(&self) -> [f64; 3] {
        self.sim.xpos(self.bodies[self.push_box.expect("the scene has a box")])
    }
    /// Distance of robot and goal in the plane.
    pub(crate) fn goal_dist(&self) -> f64 {
        self.robot_dist(self.bodies[self.goal.expect("the scene has a goal")])
    }
    /// Distance of robot and body in the plane.
    pub(crate) fn robot_dist(&self, body: BodyId) -> f64 {
        let [x, y, _] = self.sim.xpos(body);
        distance([x, y], self.xy(0))
    }

    fn xy(&self, k: usize) -> [f64; 2] {
        let [x, y, _] = self.sim.xpos(self.bodies[k]);
        [x, y]
    }
}

/// Distance in space.
pub(crate) fn distance3(p: [f64; 3], q: [f64; 3]) -> f64 {
    let d = [p[0] - q[0], p[1] - q[1], p[2] - q[2]];
    (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]).sqrt()
}

/// Entry of the layout at which the first object of a kind stands.
fn first(scene: &Scene, is: impl Fn(Kind) -> bool) -> Option<usize> {
    let i = scene.objects.iter().position(|o| is(o.kind))?;
    Some(1 + scene.objects[..i].iter().map(|o| o.n).sum::<usize>())
}

/// What every geom of the model is: all geoms of bodies that are neither the world nor an object are the robot's.
fn touch_table(sim: &Sim, scene: &Scene) -> Result<Vec<Touch>, Error> {
    let geoms = sim.geoms();
    let mut of_body = vec![Touch::Robot; sim.n_bodies()];
    of_body[0] = Touch::Other;
    for object in scene.objects {
        for i in 0..object.n {
            of_body[sim.body(&object.name(i))?.0] = match object.kind {
                Kind::Vase => Touch::Vase,
                Kind::Gremlin => Touch::Gremlin,
                Kind::Pillar => Touch::Pillar,
                Kind::Button => Touch::Button(i),
                _ => Touch::Other,
            };
            if object.kind == Kind::Gremlin {
                of_body[sim.body(&format!("gremlin{i}mocap"))?.0] = Touch::Other;
            }
        }
    }
    Ok(geoms.iter().map(|g| of_body[g.body.0]).collect())
}
