//! An optional number in a configuration: a number, or `"auto"` for the value that the algorithm derives.
//!
//! TOML has no null, and a saved configuration contains every key, so `None` is written as `"auto"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The text for `None` in a configuration.
pub(crate) const AUTO: &str = "auto";

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(f64),
    Word(String),
}

/// Writes a number, or `"auto"` for `None`.
pub(crate) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(number) => NumberOrWord::Number(*number),
        None => NumberOrWord::Word(AUTO.to_owned()),
    }
    .serialize(serializer)
}

/// Reads a number, or `"auto"` as `None`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match NumberOrWord::deserialize(deserializer) {
        Ok(NumberOrWord::Number(number)) => Ok(Some(number)),
        Ok(NumberOrWord::Word(word)) if word == AUTO => Ok(None),
        _ => Err(D::Error::custom("must be a number or \"auto\"")),
    }
}
