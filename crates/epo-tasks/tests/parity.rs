//! Claim: from id, seed and actions alone, every published task repeats the episodes of the Python package.
//! Costs, cost terms and flags are equal. In the committed episodes observations and rewards agree within 1e-12 at every
//! step, in longer ones within 1e-8: contacts multiply a difference in the last digit of a sine.
//!
//! `tests/recordings` has one short episode per task, and its README says how they are made. `EPO_RECORDINGS` names a
//! folder with more of them, which are then compared too.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::path::{Path, PathBuf};

use epo_tasks::parity::{ReferenceEpisode, compare};
use epo_tasks::tasks;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// Returns how an episode differs from its recording, or `None` if they agree within `tolerance`.
fn difference(file: &Path, tolerance: f64) -> Option<String> {
    let recording = match ReferenceEpisode::open(file) {
        Ok(recording) => recording,
        Err(error) => return Some(format!("{}: {error}", file.display())),
    };
    match compare(&recording) {
        Ok(same) if same.ok && same.max_obs.max(same.max_reward) <= tolerance => {
            assert_eq!(same.steps, recording.steps(), "{}: not every step was compared", file.display());
            None
        }
        Ok(differs) => Some(format!("{}: {differs:?}", file.display())),
        Err(error) => Some(format!("{}: {error}", file.display())),
    }
}

fn check(files: &[PathBuf], tolerance: f64) {
    let wrong: Vec<_> = files.iter().filter_map(|file| difference(file, tolerance)).collect();
    assert!(wrong.is_empty(), "{} of {} episodes differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn every_task_repeats_its_recording() {
    let file = |id: &String| folder().join(format!("{id}.npz"));
    let ids: Vec<_> = tasks().iter().map(|task| task.id.clone()).collect();
    let missing: Vec<_> = ids.iter().filter(|id| !file(id).is_file()).collect();
    assert!(missing.is_empty(), "tests/recordings has no recording of {missing:?}");
    for id in &ids {
        let recording = ReferenceEpisode::open(&file(id)).unwrap();
        assert_eq!(recording.env_id(), id, "the file must have the name of its task");
        assert!(recording.steps() >= 30, "{id}: {} steps are too few", recording.steps());
    }
    check(&ids.iter().map(file).collect::<Vec<_>>(), 1e-12);
}

/// This test fails if no recording has a certain cost term. An error in it would then stay unnoticed.
#[test]
fn the_recordings_show_every_cost_term_and_goals() {
    let all: Vec<_> = tasks()
        .iter()
        .map(|task| ReferenceEpisode::open(&folder().join(format!("{}.npz", task.id))).unwrap())
        .collect();
    let shown = |term: &str| all.iter().any(|recording| recording.charges(term));
    for term in [
        "cost_hazards",
        "cost_vases_contact",
        "cost_vases_velocity",
        "cost_gremlins",
        "cost_buttons",
        "cost_pillars",
        "cost_out_of_boundary",
    ] {
        assert!(shown(term), "no recording has a step with {term}");
    }
    for family in ["Goal", "Button"] {
        let met = |r: &&ReferenceEpisode| r.env_id().contains(family) && r.goals_met() > 0;
        assert!(all.iter().any(|r| met(&r)), "no recording of {family} meets a goal");
    }
    // Versions 0 and 1 of a velocity task differ only in the cost.
    let cost = |id: &str| all.iter().find(|r| r.env_id() == id).unwrap().total_cost();
    for robot in ["Ant", "Hopper", "Swimmer"] {
        let of = |version| cost(&format!("Safety{robot}Velocity-v{version}"));
        assert!(of(0) > of(1), "{robot}: costs {} and {}", of(0), of(1));
    }
}

#[test]
fn further_recordings_are_repeated() {
    let Some(folder) = std::env::var_os("EPO_RECORDINGS").map(PathBuf::from) else { return };
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "npz")).collect();
    files.sort();
    assert!(!files.is_empty(), "EPO_RECORDINGS={} holds no .npz file", folder.display());
    check(&files, epo_tasks::parity::TOLERANCE);
}
