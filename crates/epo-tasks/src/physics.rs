//! How the bodies of a task are simulated.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the bodies of a task are simulated. Layouts, rewards, costs and observations come from the same code for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Physics {
    /// The physics of the published tasks: every body is simulated in every step.
    #[default]
    Published,
    /// Vases and boxes that have come to rest sleep until something touches them, so they cost no time. Only motions
    /// too small to be charged for differ from [`Published`](Self::Published). Tasks without such bodies are the same to
    /// the last bit.
    Fast,
}

impl Physics {
    /// Every value, in the order in which they are listed.
    pub const ALL: [Self; 2] = [Self::Published, Self::Fast];

    /// Whether this is [`Published`](Self::Published).
    pub fn is_published(&self) -> bool {
        *self == Self::Published
    }

    /// Name in configurations, on the command line and in JSON.
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

/// The name of a physics that does not exist.
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
