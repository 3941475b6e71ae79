//! The two physics simulations of a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Physics simulation of a task. Layouts, rewards, costs and observations are computed by the same code for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Physics {
    /// The physics of the published tasks: every body is simulated in every step.
    #[default]
    Published,
    /// Vases and boxes at rest are not simulated until something touches them, which saves time. Only motions that
    /// are too small to cause a cost differ from [`Published`](Self::Published). Tasks without such bodies give
    /// identical results with both. Contacts are not searched while none is possible, which changes no result.
    Fast,
}

impl Physics {
    /// All values, in the order of lists and tables.
    pub const ALL: [Self; 2] = [Self::Published, Self::Fast];

    /// Returns true for [`Published`](Self::Published).
    pub fn is_published(&self) -> bool {
        *self == Self::Published
    }

    /// Returns the name that configurations, the command line and JSON use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Fast => "fast",
        }
    }
}

impl fmt::Display for Physics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is neither `published` nor `fast`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no physics `{0}`; choose `published` or `fast`")]
pub struct UnknownPhysics(String);

impl FromStr for Physics {
    type Err = UnknownPhysics;

    fn from_str(name: &str) -> Result<Self, UnknownPhysics> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| UnknownPhysics(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_physics_has_the_same_name_everywhere() {
        for physics in Physics::ALL {
            assert_eq!(physics.to_string().parse(), Ok(physics));
            assert_eq!(serde_json::to_value(physics).unwrap(), physics.name());
        }
        let error = "slow".parse::<Physics>().unwrap_err().to_string();
        assert!(error.contains("`slow`") && Physics::ALL.iter().all(|p| error.contains(p.name())), "{error}");
    }
}
