//! What a level is made of: the arena and the objects in it, as data.

/// One level of a task, complete.
#[derive(Debug)]
pub(crate) struct Scene {
    /// Objects stand in the square of this half-width.
    pub(crate) half_width: f64,
    /// Where the robot may begin, x0, y0, x1, y1, if not anywhere in the square.
    pub(crate) start: Option<[f64; 4]>,
    /// Room that is kept free around the robot.
    pub(crate) start_keepout: f64,
    /// Half-width of the floor that is drawn; the floor that is touched has no end.
    pub(crate) floor: f64,
    /// Distance at which the lidar begins to see, metres.
    pub(crate) lidar_range: f64,
    /// Steps of an episode.
    pub(crate) max_steps: usize,
    /// Rewards are clipped to ± this.
    pub(crate) reward_clip: f64,
    /// The objects: fixed ones first, then loose ones, then moved ones. The order is that of the random draws and
    /// of the observation.
    pub(crate) objects: &'static [Object],
}

/// What most levels share.
pub(crate) const ARENA: Scene = Scene {
    half_width: 2.0,
    start: None,
    start_keepout: 0.4,
    floor: 3.5,
    lidar_range: 3.0,
    max_steps: 1000,
    reward_clip: 10.0,
    objects: &[],
};

/// Objects of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) n: usize,
    /// Room that is kept free around each.
    pub(crate) keepout: f64,
    /// Whether they are charged for.
    pub(crate) costs: bool,
}

/// Kinds of objects; shapes are in `objects.rs`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A green cylinder to reach; nothing collides with it.
    Goal { radius: f64 },
    /// A blue disc on the floor; being over it costs.
    Hazard { radius: f64 },
    /// A light box; touching or moving it costs.
    Vase,
    /// A box that is carried around a circle; touching it costs.
    Gremlin,
    /// A ball to be pressed; pressing the wrong one costs.
    Button,
    /// A fixed column; touching it costs.
    Pillar,
    /// The box to be pushed to the goal; its size depends on the robot.
    PushBox,
    /// The disc to be circled, drawn at the origin.
    Circle { radius: f64 },
    /// Walls that are only drawn, at ± `distance` in x, then in y; being beyond costs.
    Sigwall { distance: f64, half_length: f64 },
}

impl Object {
    const fn new(kind: Kind, n: usize, keepout: f64) -> Self {
        Self { kind, n, keepout, costs: true }
    }
    /// The same, not charged for.
    pub(crate) const fn free_of_cost(self) -> Self {
        Self { costs: false, ..self }
    }
    pub(crate) const fn goal(radius: f64, keepout: f64) -> Self {
        Self::new(Kind::Goal { radius }, 1, keepout).free_of_cost()
    }
    pub(crate) const fn hazards(n: usize, radius: f64, keepout: f64) -> Self {
        Self::new(Kind::Hazard { radius }, n, keepout)
    }
    pub(crate) const fn vases(n: usize, keepout: f64) -> Self {
        Self::new(Kind::Vase, n, keepout)
    }
    pub(crate) const fn gremlins(n: usize, keepout: f64) -> Self {
        Self::new(Kind::Gremlin, n, keepout)
    }
    pub(crate) const fn buttons(n: usize, keepout: f64) -> Self {
        Self::new(Kind::Button, n, keepout)
    }
    pub(crate) const fn pillars(n: usize, keepout: f64) -> Self {
        Self::new(Kind::Pillar, n, keepout)
    }
    /// The robot's file says how large its box is, keep-out included.
    pub(crate) const fn push_box() -> Self {
        Self::new(Kind::PushBox, 1, 0.0).free_of_cost()
    }
    pub(crate) const fn circle(radius: f64) -> Self {
        Self::new(Kind::Circle { radius }, 1, 0.0).free_of_cost()
    }
    pub(crate) const fn sigwalls(n: usize, distance: f64, half_length: f64) -> Self {
        Self::new(Kind::Sigwall { distance, half_length }, n, 0.0)
    }

    /// Where the `i`-th must stand, if it has no choice.
    pub(crate) fn fixed_at(&self, i: usize) -> Option<[f64; 2]> {
        match self.kind {
            Kind::Circle { .. } => Some([0.0, 0.0]),
            Kind::Sigwall { distance: d, .. } => Some([[d, 0.0], [-d, 0.0], [0.0, d], [0.0, -d]][i]),
            _ => None,
        }
    }

    /// How the `i`-th is turned, given the angle that was drawn for it.
    pub(crate) fn rotation(&self, i: usize, drawn: f64) -> f64 {
        match self.kind {
            Kind::Circle { .. } => 0.0,
            Kind::Sigwall { .. } => [0.0, 0.0, std::f64::consts::FRAC_PI_2, std::f64::consts::FRAC_PI_2][i],
            _ => drawn,
        }
    }

    /// Whether the lidar has a ring for this kind.
    pub(crate) fn is_seen(&self) -> bool {
        !matches!(self.kind, Kind::Sigwall { .. })
    }

    /// Name of the `i`-th body.
    pub(crate) fn name(&self, i: usize) -> String {
        match self.kind {
            Kind::Goal { .. } => "goal".into(),
            Kind::Hazard { .. } => format!("hazard{i}"),
            Kind::Vase => format!("vase{i}"),
            Kind::Gremlin => format!("gremlin{i}obj"),
            Kind::Button => format!("button{i}"),
            Kind::Pillar => format!("pillar{i}"),
            Kind::PushBox => "push_box".into(),
            Kind::Circle { .. } => "circle".into(),
            Kind::Sigwall { .. } => format!("sigwall{i}"),
        }
    }
}
