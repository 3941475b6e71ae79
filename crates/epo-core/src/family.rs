//! Families of tasks. The family of a task selects the presets of its configuration.

/// The family that a task belongs to.
///
/// An algorithm can define different defaults for a family; these are its presets. The registry states the family of
/// each task. A task outside the registry belongs to no family and has no presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskFamily {
    /// Robots that reach goals, press buttons, push boxes or run in circles, and must avoid hazards.
    Navigation,
    /// Walking robots. The reward grows with speed; a cost is charged above a speed limit.
    Velocity,
}

impl TaskFamily {
    /// All families.
    pub const ALL: [Self; 2] = [Self::Navigation, Self::Velocity];

    /// Returns the name of the family as the documentation writes it: `navigation` or `velocity`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Navigation => "navigation",
            Self::Velocity => "velocity",
        }
    }
}
