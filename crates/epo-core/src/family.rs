//! Families of tasks, which decide the presets of a configuration.

/// The family that a task belongs to.
///
/// An algorithm may have other defaults for a family (its presets). A task names its family in the registry; a task
/// that is in no registry belongs to no family and has no preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskFamily {
    /// Robots that reach goals, press buttons, push boxes or circle among hazards.
    Navigation,
    /// Walkers that are rewarded for speed and pay for exceeding a speed limit.
    Velocity,
}

impl TaskFamily {
    /// Every family.
    pub const ALL: [Self; 2] = [Self::Navigation, Self::Velocity];

    /// The name of the family, as documentation writes it: `navigation`, `velocity`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Navigation => "navigation",
            Self::Velocity => "velocity",
        }
    }
}
