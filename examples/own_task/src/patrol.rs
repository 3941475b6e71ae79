//! Patrol: the robot drives back and forth between two posts and avoids the mud.
//!
//! ```text
//! reward  r_t = (d_{t−1} − d_t) + 1[d_t ≤ REACHED]     d: distance of the robot from the marked post in the plane, metres
//! cost    c_t = 1[in the mud, or touching a vase or moving it]
//! end     truncated after `max_steps` of the scene
//! ```

use epo_tasks::navigation::{
    Goal, Group, GroupId, NavigationTask, Object, Objects, POINT, Pose, Rules, Scene, Stage, Vase, numbers,
};

/// Distance from a post at which it counts as reached, in metres.
const REACHED: f64 = 0.3;
/// Radius of a puddle of mud, in metres.
pub const MUD_RADIUS: f64 = 0.25;

/// Returns the task: robot, scene, rules, and descriptions of reward and cost.
pub fn task() -> NavigationTask {
    NavigationTask {
        id: "Patrol-v0".to_owned(),
        robot: &POINT,
        scene: Scene {
            half_width: 1.5,
            max_steps: 400,
            groups: vec![
                // a green cylinder that marks the post to reach next
                Group::new(1, Goal { radius: REACHED }, 0.0),
                Group::new(2, Post { distance: 1.2 }, 0.3),
                Group::new(4, Mud { radius: MUD_RADIUS }, 0.3),
                Group::new(2, Vase, 0.15),
            ],
            ..Scene::default()
        },
        rules: |scene| {
            let (mark, posts) = (scene.group("goal"), scene.group("post"));
            Box::new(Patrol { mark, posts, target: 0, last_distance: 0.0 })
        },
        reward: "progress towards the marked post in metres, +1 when it is reached".to_owned(),
        cost: "1 while in the mud, or a vase is touched or moves".to_owned(),
    }
}

/// A puddle of mud on the floor. Each step in it costs 1.
#[derive(Debug)]
struct Mud {
    /// Radius in metres.
    radius: f64,
}

impl Object for Mud {
    fn name(&self) -> &'static str {
        "mud"
    }

    fn height(&self) -> f64 {
        0.01
    }

    fn geoms(&self, name: &str) -> String {
        let size = numbers(&[self.radius, 0.005]);
        format!(
            r#"<geom name="{name}" type="cylinder" size="{size}" rgba=".4 .25 .1 1" contype="0" conaffinity="0"/>"#
        )
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_mud"]
    }

    // a step costs 1 if a term is positive, however large it is
    fn cost(&self, mud: &Objects<'_>, terms: &mut [f64]) {
        terms[0] = f64::from((0..mud.len()).any(|i| mud.robot_distance(i) < self.radius));
    }
}

/// A post: a thin blue column at a fixed place on the x axis. Nothing collides with it.
#[derive(Debug)]
struct Post {
    /// Distance from the origin, in metres. Post 0 is at `x = distance`, post 1 at `x = −distance`.
    distance: f64,
}

impl Object for Post {
    fn name(&self) -> &'static str {
        "post"
    }

    fn height(&self) -> f64 {
        0.3
    }

    fn geoms(&self, name: &str) -> String {
        format!(
            r#"<geom name="{name}" type="cylinder" size=".03 .3" rgba=".2 .3 1 1" contype="0" conaffinity="0"/>"#
        )
    }

    fn fixed_pose(&self, i: usize) -> Option<Pose> {
        let x = if i == 0 { self.distance } else { -self.distance };
        Some(Pose { xy: [x, 0.0], angle: 0.0 })
    }
}

/// The rules: whenever the robot reaches the marked post, the mark moves to the other post.
#[derive(Debug)]
struct Patrol {
    mark: GroupId,
    posts: GroupId,
    target: usize,
    last_distance: f64,
}

impl Patrol {
    fn distance(&self, stage: &Stage) -> f64 {
        stage.objects(self.posts).robot_distance(self.target)
    }

    fn mark_post(&mut self, target: usize, stage: &mut Stage) {
        self.target = target;
        let place = stage.objects(self.posts).xy(target);
        stage.move_to(self.mark, 0, place);
        self.last_distance = self.distance(stage);
    }
}

impl Rules for Patrol {
    fn new_goal(&mut self, stage: &mut Stage) -> bool {
        self.mark_post(1 - self.target, stage);
        true
    }

    fn begin(&mut self, stage: &mut Stage) {
        // The first post is drawn at random, so an episode does not depend on the one before.
        let first = stage.choose(2);
        self.mark_post(first, stage);
    }

    fn reward(&mut self, stage: &Stage) -> f64 {
        let distance = self.distance(stage);
        let progress = self.last_distance - distance;
        self.last_distance = distance;
        progress + f64::from(self.goal_met(stage))
    }

    fn goal_distance(&self, stage: &Stage) -> Option<f64> {
        Some(self.distance(stage))
    }

    fn goal_met(&self, stage: &Stage) -> bool {
        self.distance(stage) <= REACHED
    }
}
