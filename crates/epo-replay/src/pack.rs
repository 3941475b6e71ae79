//! Episodes as compact JSON: numbers are quantised and written in base64.
//!
//! Positions are 16-bit fractions of the range of each body and axis. Quaternions are 16-bit
//! fractions, lidar readings are 8-bit fractions, and everything else is 32-bit floating point. All
//! numbers are little-endian. A body that never moves has a single pose.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use epo_core::Outcome;
use epo_tasks::rollout::DrawnGeom;
use serde_json::{Value, json};

use crate::recording::{Recording, Series};
use crate::{PlayedEpisode, Replay};

/// The document that the page holds.
pub(crate) fn document(replay: &Replay) -> Value {
    let episodes: Vec<Value> =
        replay.episodes.iter().map(|sides| sides.iter().map(played).collect()).collect();
    json!({ "format": "epo-replay", "version": 1, "episodes": episodes, "map": replay.map, "notes": replay.notes })
}

fn played(played: &PlayedEpisode) -> Value {
    let PlayedEpisode { run, algo, limit, checkpoint, hash, mode, physics, what, actions, .. } = played;
    let PlayedEpisode { recorded, command, recording, .. } = played;
    let ended = match recording.outcome {
        Outcome::Terminated => "terminated",
        Outcome::Truncated | Outcome::Running => "truncated",
    };
    let mut packed = pack(recording);
    packed["about"] = json!({
        "run": run, "algo": algo, "limit": limit, "checkpoint": checkpoint, "hash": hash, "policy": mode.label(),
        "physics": physics.to_string(), "what": what, "actions": actions.name(), "command": command, "task": recording.task,
        "recorded": recorded.map(|row| json!({ "return": row.ret, "cost": row.cost, "length": row.length })),
        "seed": recording.seed.to_string(), "return": recording.ret(), "cost": recording.cost(), "ended": ended,
    });
    packed
}

fn pack(recording: &Recording) -> Value {
    let first = &recording.poses[0];
    let moves = |body: &usize| recording.poses.iter().any(|frame| frame[*body] != first[*body]);
    let moving: Vec<usize> = (0..first.len()).filter(moves).collect();
    let ranges: Vec<[[f64; 2]; 3]> = moving
        .iter()
        .map(|&body| [0, 1, 2].map(|axis| range(recording.poses.iter().map(|frame| frame[body][axis]))))
        .collect();
    let (mut positions, mut turns) = (Vec::new(), Vec::new());
    for frame in &recording.poses {
        for (&body, range) in moving.iter().zip(&ranges) {
            let pose = &frame[body];
            for axis in 0..3 {
                positions.extend(fraction(pose[axis], range[axis]).to_le_bytes());
            }
            for q in &pose[3..] {
                turns.extend(((q.clamp(-1.0, 1.0) * 32767.0).round() as i16).to_le_bytes());
            }
        }
    }
    let rings: Vec<Value> = recording
        .lidar
        .iter()
        .map(|ring| {
            let bytes: Vec<u8> =
                ring.readings.iter().map(|r| (r.clamp(0.0, 1.0) * 255.0).round() as u8).collect();
            json!({ "object": ring.object, "range": ring.range, "readings": STANDARD.encode(bytes) })
        })
        .collect();
    let gauge = recording.gauge.as_ref().map(|gauge| {
        json!({ "name": gauge.name, "unit": gauge.unit, "limit": gauge.limit, "values": floats(&gauge.values) })
    });
    let actions: Vec<f64> = recording.actions.iter().flatten().copied().collect();
    json!({
        "steps": recording.steps(), "dt": recording.dt, "robot": recording.robot, "runs": recording.runs,
        "geoms": recording.geoms.iter().map(DrawnGeom::from).collect::<Vec<_>>(),
        "still": first.iter().map(|pose| pose.map(|v| v as f32)).collect::<Vec<_>>(),
        "moving": moving, "ranges": ranges,
        "positions": STANDARD.encode(positions), "turns": STANDARD.encode(turns),
        "rewards": floats(&recording.rewards), "costs": floats(&recording.costs),
        "terms": recording.terms.iter().map(series).collect::<Vec<_>>(),
        "values": recording.values.iter().map(series).collect::<Vec<_>>(),
        "actions": { "n": recording.actions.first().map_or(0, Vec::len), "values": floats(&actions) },
        "gauge": gauge, "lidar": rings, "goals": recording.goals,
    })
}

/// Smallest and largest finite value.
fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let found = values
        .filter(|v| v.is_finite())
        .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
    if found[0].is_finite() { found } else { [0.0, 0.0] }
}

fn fraction(value: f64, [low, high]: [f64; 2]) -> u16 {
    let share = if high > low { (value - low) / (high - low) } else { 0.0 };
    (share.clamp(0.0, 1.0) * 65535.0).round() as u16 // NaN becomes 0
}

fn floats(values: &[f64]) -> String {
    STANDARD.encode(values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect::<Vec<u8>>())
}

fn series(series: &Series) -> Value {
    json!({ "name": series.name, "values": floats(&series.values) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_within_half_a_step_of_its_range() {
        let ends = range([3.0, -1.0, f64::NAN, 2.5].into_iter());
        assert_eq!(ends, [-1.0, 3.0]);
        for v in [-1.0, 0.1234, 2.5, 3.0] {
            let back = ends[0] + f64::from(fraction(v, ends)) / 65535.0 * (ends[1] - ends[0]);
            assert!((back - v).abs() <= 0.5 * 4.0 / 65535.0 + 1e-12, "{v}: {back}");
        }
        assert_eq!(fraction(7.0, [7.0, 7.0]), 0, "a body that stays on an axis");
        assert_eq!(range([f64::NAN].into_iter()), [0.0, 0.0]);
    }
}
