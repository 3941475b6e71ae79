//! Claim: a replay shows the episodes that the evaluation plays and those that training played, for every task.
//! Its page is small and contains nothing that could run.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::{old_run, replay, run};
use epo_core::Env;
use epo_lab::checkpoint;
use epo_lab::config::ResolvedRun;
use epo_lab::evaluate::{ActionMode, EvalPlan, Watch, evaluate, load_policy};
use epo_lab::runs::{read_config, task_maker};
use epo_lab::train::{ResumeOptions, Trainer};
use epo_replay::{ActionSource, Choice, Recording, Request, Theme, TrainingEpisode, training_episodes};
use epo_report::policies::HEADER;
use epo_tasks::Physics;

/// Steps a fresh environment with the recorded actions and compares every pose, reward and cost.
fn check_states(recording: &Recording, physics: Physics) {
    let mut env = epo_tasks::make_with(&recording.task, physics).unwrap();
    let mut obs = vec![0.0; env.spec().obs_len];
    env.reset(recording.seed, &mut obs).unwrap();
    let id = &recording.task;
    assert_eq!(recording.poses.len(), recording.steps() + 1, "{id}");
    for frame in 0..=recording.steps() {
        let want: Vec<[f64; 7]> =
            env.body_poses().map(|([x, y, z], [w, i, j, k])| [x, y, z, w, i, j, k]).collect();
        assert_eq!(recording.poses[frame], want, "{id}: poses at frame {frame}");
        for (lidar, ring) in recording.lidar.iter().zip(env.lidar_rings()) {
            assert_eq!(
                lidar.readings[16 * frame..16 * (frame + 1)],
                obs[ring.entries],
                "{id}: lidar at {frame}"
            );
        }
        if frame < recording.steps() {
            let step = env.step(&recording.actions[frame], &mut obs).unwrap();
            assert_eq!(
                (step.reward, step.cost),
                (recording.rewards[frame], recording.costs[frame]),
                "{id}: {frame}"
            );
            for (term, want) in recording.terms.iter().zip(env.cost_terms()) {
                assert_eq!(term.values[frame], *want, "{id}: {} at step {frame}", term.name);
            }
            let last = frame + 1 == recording.steps();
            assert_eq!(step.outcome.is_done(), last, "{id}: step {frame}");
            assert_eq!(env.goal_met(), recording.goals.contains(&(frame + 1)), "{id}: step {frame}");
        }
    }
}

/// This test fails if an episode has another seed or another stream of actions, if its observations are not normalised, if
/// a frame is missing, or if the ranking has the wrong direction.
#[test]
fn an_episode_is_the_one_that_the_evaluation_plays() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["run.steps=1000", "train.steps_per_epoch=1000", "train.envs=2", "train.passes=2"];
    let config = run(dir.path(), "SafetyPointCircle1-v0", &set, true);
    let make = task_maker(&config.run.task, Physics::Published).unwrap();
    let spec = make().unwrap().spec().clone();
    let (policy, normalizer, _) = load_policy(dir.path(), &config, &spec).unwrap();
    for mode in ActionMode::ALL {
        // more episodes than environments side by side, so that some are the second of their environment
        let plan = EvalPlan { episodes: 34, seed: 7, threads: 2, physics: Physics::Published };
        let played = evaluate(&policy, &normalizer, &make, plan, mode, &Watch::default()).unwrap();
        let base = Request { mode, episodes: 34, seed: 7, ..Request::new(dir.path()) };
        for number in [0, 5, 33] {
            let shown = replay(&Request { choice: Choice::Evaluation(number), ..base.clone() });
            let recording = &shown.episodes[0][0].recording;
            let want = played[number];
            assert_eq!(
                (recording.ret(), recording.cost()),
                (want.ret, want.cost),
                "{mode:?}, episode {number}"
            );
            assert_eq!(recording.steps() as u64, want.len);
            check_states(recording, Physics::Published);
        }
        let worst = replay(&Request { choice: Choice::Worst(3), ..base.clone() });
        let best = replay(&Request { choice: Choice::Best(2), threads: 2, ..base.clone() });
        let mut costs: Vec<f64> = played.iter().map(|e| e.cost).collect();
        costs.sort_by(|a, b| b.total_cmp(a));
        let got: Vec<f64> = worst.episodes.iter().map(|sides| sides[0].recording.cost()).collect();
        assert_eq!(got, costs[..3]);
        let most = played.iter().map(|e| e.ret).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!((best.episodes.len(), best.episodes[0][0].recording.ret()), (2, most));
        let map = worst.map.unwrap();
        assert_eq!(Some(&map), best.map.as_ref(), "the map does not depend on threads or on the ranking");
        assert_eq!(map.cost.iter().sum::<f64>(), costs.iter().sum::<f64>(), "every cost is on the map");
    }
}

/// This test fails if the actions in the checkpoint are not repeated, if the random stream has another position, or if a
/// repetition counts as exact although return or cost differ.
#[test]
fn an_episode_of_training_is_repeated_action_by_action() {
    let dir = tempfile::tempdir().unwrap();
    // 600 steps per environment and epoch: the episodes of 500 steps continue over epochs
    let set =
        ["run.steps=3600", "train.steps_per_epoch=1200", "train.envs=2", "train.passes=2", "run.seed=3"];
    let config = run(dir.path(), "SafetyPointCircle1-v0", &set, true);
    let rows = training_episodes(dir.path(), &config).unwrap();
    assert_eq!(rows.iter().map(|row| row.step).collect::<Vec<_>>(), [1000, 1000, 2000, 2000, 3000, 3000]);
    let shown = |row, retrain| {
        let choice = Choice::Training { row, retrain };
        replay(&Request { choice, ..Request::new(dir.path()) }).episodes.remove(0).remove(0)
    };
    use ActionSource::{Checkpoint, Policy, Recorded, Retrained};
    let (log, aside) = (dir.path().join("policies.bin"), dir.path().join("aside"));
    for (row, retrain, saved, source) in [
        (6, false, true, Checkpoint), // of the last epoch
        (1, false, true, Recorded),
        (2, true, true, Recorded),
        (6, false, false, Checkpoint),
        (2, false, false, Policy),
        (2, true, false, Retrained),
    ] {
        fs::rename(if saved { &aside } else { &log }, if saved { &log } else { &aside }).ok();
        let played = shown(row, retrain);
        let (want, got, exact) = (&rows[row - 1], &played.recording, source.is_exact());
        assert_eq!((played.actions, got.seed), (source, want.seed), "row {row}: {}", played.what);
        assert_eq!((got.ret(), got.cost()) == (want.ret, want.cost), exact, "row {row}");
        assert_eq!((played.recorded.as_ref(), played.command.is_none()), (Some(want), exact), "row {row}");
        check_states(got, Physics::Published);
    }
    assert!(shown(2, false).what.contains("--retrain"), "{}", shown(2, false).what);

    // policies that are damaged are not shown as the episode
    let whole = fs::read(&aside).unwrap();
    let last = HEADER as usize + (whole.len() - HEADER as usize) / 3 - 1; // of the first of three epochs
    let damages: [(&str, usize, &[u8]); 6] = [
        ("magic", 0, b"x"),
        ("number of environments", 8, &[1]),
        ("number of parameters", 16, &[0xff; 8]),
        ("steps of the epoch", 40, &[0xff; 8]),
        ("position of the stream", 48, &[2]),
        ("a NaN in the policy", last - 3, &[0, 0, 0xc0, 0x7f]),
    ];
    for (what, at, bytes) in damages {
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&log, &damaged).unwrap();
        assert_eq!(shown(1, false).actions, Policy, "{what}");
    }
    fs::write(&log, &whole[..last]).unwrap();
    assert_eq!(shown(1, false).actions, Policy, "the first record is not complete");
    fs::write(&log, &whole[..=last]).unwrap();
    assert_eq!((shown(1, false).actions, shown(3, false).actions), (Recorded, Policy), "one record");

    // a record that this program did not write
    let file = dir.path().join("episodes.csv");
    let text = fs::read_to_string(&file).unwrap();
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let cells: Vec<&str> = last.split(',').collect();
    fs::write(&file, format!("{before}\n{},{},0.125,{},{}\n", cells[0], cells[1], cells[3], cells[4]))
        .unwrap();
    assert_eq!(shown(6, false).actions, Policy);
    assert_eq!(shown(6, true).actions, Policy);
    // a row that is being written does not exist yet, and a damaged one is named
    fs::write(&file, format!("{before}\n{},{}", cells[0], cells[1])).unwrap();
    assert_eq!(training_episodes(dir.path(), &config).unwrap().len(), 5);
    fs::write(&file, format!("{before}\nx,1,2,3,4\n")).unwrap();
    let error = training_episodes(dir.path(), &config).unwrap_err().to_string();
    assert!(error.contains("row 6"), "{error}");
    let missing = Request { choice: Choice::Training { row: 0, retrain: false }, ..Request::new(dir.path()) };
    assert!(epo_replay::replay(&missing, &Watch::default()).is_err());
    fs::write(&file, text).unwrap();
    let missing = Request { choice: Choice::Training { row: 7, retrain: false }, ..missing };
    let error = epo_replay::replay(&missing, &Watch::default()).unwrap_err().to_string();
    assert!(error.contains("episodes.csv has the rows 1 to 6"), "{error}");
}

/// Copies a run folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Continues a run to its end.
fn resume(dir: &Path, task: &str, steps: Option<u64>, threads: usize) {
    let make = task_maker(task, Physics::Published).unwrap();
    let options = ResumeOptions { steps, threads: Some(threads), ..ResumeOptions::default() };
    let mut trainer = Trainer::resume(dir, options, &make).unwrap();
    assert!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap().finished);
}

/// This test fails if a policy is recorded after its epoch instead of before, if an episode that continues over epochs keeps
/// its first policy or its first normaliser, if the random stream has another position, if a resumed run writes an epoch
/// twice or not at all, or if an epoch that is shorter than the others is counted as a whole one.
#[test]
fn every_episode_of_training_is_repeated_exactly() {
    for (task, steps_per_epoch, steps) in [
        ("SafetyPointCircle1-v0", 510, 3600), // an episode of 500 steps touches three or four epochs of 170
        ("SafetyHopperVelocity-v1", 210, 1500), // episodes end when the robot falls
        ("SafetyHumanoidVelocity-v1", 210, 1500), // the same, with the largest observation
    ] {
        let dir = tempfile::tempdir().unwrap();
        let [whole, killed] = ["whole", "killed"].map(|name| dir.path().join(name));
        let set = [
            format!("run.task={task}"),
            format!("run.steps={steps}"),
            format!("train.steps_per_epoch={steps_per_epoch}"),
        ];
        let more = ["train.envs=3", "train.save_every=3", "train.hidden=[8]", "train.threads=1"];
        let more = more.into_iter().chain(["train.passes=2", "train.minibatch=50"]).map(str::to_owned);
        let run = ResolvedRun::from_layers(None, &set.into_iter().chain(more).collect::<Vec<_>>()).unwrap();
        let make = task_maker(task, Physics::Published).unwrap();
        let mut epochs = 0;
        Trainer::create(&whole, run, &make)
            .unwrap()
            .train(&AtomicBool::new(false), |_| {
                epochs += 1;
                if epochs == 5 {
                    copy(&whole, &killed); // as if killed here: the checkpoint is that of epoch 3
                }
            })
            .unwrap();
        assert_eq!(epochs, 8, "the last one is shorter");
        resume(&killed, task, None, 2);
        for path in [&whole, &killed] {
            resume(path, task, Some(2 * steps), 1);
        }
        for name in ["policies.bin", "episodes.csv"] {
            let [one, two] = [&whole, &killed].map(|path| fs::read(path.join(name)).unwrap());
            assert!(one == two, "{task}: {name} of the run that was killed");
        }
        let config = read_config(&killed).unwrap();
        let rows = training_episodes(&killed, &config).unwrap();
        let checkpoints = checkpoint::numbers(&killed.join("checkpoint")).unwrap();
        let newest = checkpoints[0];
        for old in &checkpoints[1..] {
            fs::remove_dir_all(killed.join(format!("checkpoint/{old:06}"))).unwrap(); // else it gives the last epoch
        }
        for row in &rows {
            let choice = Choice::Training { row: row.row, retrain: false };
            let played = replay(&Request { choice, ..Request::new(&killed) }).episodes.remove(0).remove(0);
            assert_eq!(played.actions, ActionSource::Recorded, "{task}, row {}: {}", row.row, played.what);
            assert_eq!(played.checkpoint, newest, "the critics");
            let got = &played.recording;
            assert_eq!((got.ret(), got.cost(), got.steps() as u64), (row.ret, row.cost, row.length));
        }
        // episodes begin and end in the middle of epochs, several in one epoch, or in the epochs of the extension
        let epoch_of = |step: u64| step / steps_per_epoch;
        let began = |row: &TrainingEpisode| row.step - 3 * row.length;
        assert!(rows.iter().any(|row| epoch_of(began(row)) < epoch_of(row.step)), "{task}");
        assert!(rows.iter().any(|row| began(row) > steps), "{task}");
        let several = |row: &TrainingEpisode| {
            let mut later = rows[row.row..].iter().filter(|next| next.env == row.env);
            later.any(|next| epoch_of(next.step) == epoch_of(row.step))
        };
        assert_eq!(rows.iter().any(several), task.contains("Velocity"), "{task}");
    }
}

/// This test fails if memory is taken for networks that the configuration asks for and the checkpoint does not have.
#[test]
fn a_configuration_with_huge_networks_is_refused_before_memory_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "SafetyPointGoal1-v0", &["train.envs=1"], false);
    let file = dir.path().join("config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let hostile = text.replace("hidden = [8]", "hidden = [8, 65536, 65536]");
    assert_ne!(text, hostile);
    fs::write(&file, hostile).unwrap();
    let error = epo_replay::replay(&Request::new(dir.path()), &Watch::default()).unwrap_err().to_string();
    assert!(
        error.contains("policy.1.weight has the shape [8, 2], but the configuration needs [8, 65536]"),
        "{error}"
    );
}

#[test]
fn every_task_can_be_replayed_in_less_than_three_megabytes() {
    let mut longest = 0;
    for info in epo_tasks::tasks() {
        let dir = tempfile::tempdir().unwrap();
        let physics = if info.id.contains('2') { Physics::Fast } else { Physics::Published };
        let set =
            [format!("run.physics={physics}"), "train.envs=1".into(), "train.steps_per_epoch=1000".into()];
        run(dir.path(), &info.id, &set.each_ref().map(String::as_str), false);
        let shown = replay(&Request { mode: ActionMode::Sampled, ..Request::new(dir.path()) });
        let recording = &shown.episodes[0][0].recording;
        check_states(recording, physics);
        longest = longest.max(recording.steps());
        let navigation = info.speed_limit.is_none();
        assert_eq!(recording.lidar.is_empty(), info.id.contains("Run") || !navigation, "{}", info.id);
        let goal = ["Goal", "Button", "Push"].iter().any(|kind| info.id.contains(kind));
        assert_eq!(recording.gauge.is_some(), goal || !navigation, "{}", info.id);
        assert_eq!(recording.runs, !navigation, "{}", info.id);
        let named = |object: &str| recording.geoms.iter().any(|geom| geom.name == format!("{object}0"));
        assert!(recording.lidar.iter().all(|ring| named(ring.object)), "{}: the colour of a ring", info.id);
        assert!(recording.terms.iter().all(|term| term.values.len() == recording.steps()), "{}", info.id);
        assert!(recording.values.iter().all(|v| v.values.len() == recording.steps() + 1), "{}", info.id);
        let html = shown.to_html();
        assert!(html.len() < 3_000_000, "{}: {} bytes for {} steps", info.id, html.len(), recording.steps());
    }
    assert!(epo_tasks::tasks().len() >= 38);
    assert_eq!(longest, 1000);
}

#[test]
fn a_run_of_an_earlier_version_is_played_and_gives_the_same_bytes_twice() {
    let request = Request { choice: Choice::Seed(5), ..Request::new(old_run()) };
    let (first, second) = (replay(&request), replay(&Request { threads: 2, ..request.clone() }));
    assert!(first.notes.iter().any(|note| note.contains("0.3.0")), "{:?}", first.notes);
    assert_eq!(first.to_html(), second.to_html());
    let names: Vec<&str> =
        first.episodes[0][0].recording.values.iter().map(|values| values.name.as_str()).collect();
    assert_eq!(names, ["V", "V_N", "√V_F"]);
    let gif = first.to_gif(Theme::Light).unwrap();
    assert!(gif.starts_with(b"GIF89a") && gif.len() < 4_000_000, "{} bytes", gif.len());
    assert_eq!(gif, second.to_gif(Theme::Light).unwrap());
    assert_ne!(gif, first.to_gif(Theme::Dark).unwrap());
    let mut decoder = gif::DecodeOptions::new().read_info(gif.as_slice()).unwrap();
    let mut frames = 0;
    while decoder.next_frame_info().unwrap().is_some() {
        frames += 1;
    }
    assert_eq!(frames, 251, "1000 steps, every fourth, and the start");
}

#[test]
fn two_policies_play_the_same_seed_and_two_tasks_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, other) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    run(&a, "SafetyPointGoal1-v0", &["run.seed=1", "train.envs=1"], false);
    run(&b, "SafetyPointGoal1-v0", &["run.seed=2", "train.envs=1", "run.algo=ppo"], false);
    run(&other, "SafetyPointGoal2-v0", &["train.envs=1"], false);
    let request = Request { against: Some(b), mode: ActionMode::Sampled, ..Request::new(&a) };
    let shown = replay(&request);
    let [first, second] = &shown.episodes[0][..] else { panic!("two policies") };
    assert_eq!(first.recording.seed, second.recording.seed);
    assert_eq!(first.recording.poses[0], second.recording.poses[0], "the same layout");
    assert_ne!(first.recording.actions, second.recording.actions);
    assert_eq!(second.algo, "ppo");
    let error =
        epo_replay::replay(&Request { against: Some(other), ..request }, &Watch::default()).unwrap_err();
    assert!(error.to_string().contains("the same task"), "{error}");
}

#[test]
fn a_missing_checkpoint_and_a_folder_that_is_no_run_are_named() {
    let refuse = |request: Request| epo_replay::replay(&request, &Watch::default()).unwrap_err().to_string();
    let error = refuse(Request { checkpoint: Some(99), ..Request::new(old_run()) });
    assert!(error.contains("there is no checkpoint 99; the run has 4 and 3"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert!(refuse(Request::new(empty.path())).contains("not a run folder"));
    let previous = replay(&Request { checkpoint: Some(3), ..Request::new(old_run()) });
    assert_eq!(previous.episodes[0][0].checkpoint, 3);
    assert_eq!(read_config(&old_run()).unwrap().run.task, previous.episodes[0][0].recording.task);
}

/// Text from a run folder is data: it neither ends a script nor begins an element.
#[test]
fn text_of_a_run_folder_cannot_leave_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let evil = dir.path().join("<img src=x onerror=alert(1)> & <!-- ");
    run(&evil, "SafetyPointRun0-v0", &["train.envs=1"], false);
    let html = replay(&Request::new(&evil)).to_html();
    assert!(
        !html.contains("<img") && html.contains("\\u003cimg"),
        "the name of the folder is in the data only"
    );
    let start = html.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = html[start..].split("</script>").next().unwrap();
    let document: serde_json::Value = serde_json::from_str(data).unwrap();
    let about = &document["episodes"][0][0]["about"];
    assert!(about["run"].as_str().unwrap().contains("<img src=x onerror=alert(1)> & <!--"), "{about}");
    assert!(!data.contains(['<', '>', '&']));
}
