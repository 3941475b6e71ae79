//! `epo replay`

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use epo_lab::config::threads;
use epo_lab::evaluate::{ActionMode, Watch};
use epo_lab::stop;
use epo_replay::{Choice, Request, Theme, replay};
use epo_tasks::Physics;

use crate::exit::Code;
use crate::output::{count, print};
use crate::progress::with_bar;

/// Arguments of `epo replay`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without --episode, --worst, --best and --training, the first evaluation episode is played.\n\
    \n\
    --episode, --worst and --best play the policy of a checkpoint. --training repeats an episode of training. \
    Its actions are exactly those of training, because the run folder has the policy of every epoch in policies.bin. \
    If policies.bin is missing, they are exact for episodes of the last epoch, or with --retrain. Otherwise the policy \
    of the checkpoint plays the same seed. The page says which case it is."
)]
pub(crate) struct Args {
    /// Run folder
    run: PathBuf,
    /// Run folder of a second policy, which plays the same seeds and is shown beside the first
    #[arg(value_name = "RUN2")]
    against: Option<PathBuf>,
    /// Play the episode with this seed
    #[arg(long, value_name = "SEED", group = "choice")]
    episode: Option<u64>,
    /// Play the N evaluation episodes with the highest costs
    #[arg(long, value_name = "N", group = "choice", value_parser = clap::value_parser!(u32).range(1..=50))]
    worst: Option<u32>,
    /// Play the N evaluation episodes with the highest returns
    #[arg(long, value_name = "N", group = "choice", value_parser = clap::value_parser!(u32).range(1..=50))]
    best: Option<u32>,
    /// Play the training episode in this row of episodes.csv (the first row after the header is 1)
    #[arg(long, value_name = "ROW", group = "choice", value_parser = clap::value_parser!(u64).range(1..))]
    training: Option<u64>,
    /// Repeat the training up to the epoch of the --training episode if the run folder does not give its exact actions
    #[arg(long, requires = "training")]
    retrain: bool,
    /// Number of evaluation episodes behind --worst, --best and --map
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    episodes: u32,
    /// Seed of the evaluation episodes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Sample the actions instead of taking the mean action
    #[arg(long)]
    stochastic: bool,
    /// Add a map of where costs were paid over all evaluation episodes (--worst and --best always have one)
    #[arg(long)]
    map: bool,
    /// Number of the checkpoint [default: the newest intact one]
    #[arg(long, value_name = "N")]
    checkpoint: Option<u64>,
    /// Physics simulation: published or fast [default: that of the run]
    #[arg(long, value_name = "NAME")]
    physics: Option<Physics>,
    /// HTML file to write [default: replay.html, unless --gif is given]
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Write the first episode as an animated picture, and the HTML page only if --out is given
    #[arg(long, value_name = "FILE.gif")]
    gif: Option<PathBuf>,
    /// Draw the picture for a dark background
    #[arg(long, requires = "gif")]
    dark: bool,
    /// Number of threads, at most 1024; does not change the results [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Plays episodes of a run and writes them as one HTML page.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let choice = match (args.episode, args.worst, args.best, args.training) {
        (Some(seed), ..) => Choice::Seed(seed),
        (_, Some(n), ..) => Choice::Worst(n as usize),
        (_, _, Some(n), _) => Choice::Best(n as usize),
        (.., Some(row)) => Choice::Training { row: usize::try_from(row)?, retrain: args.retrain },
        _ => Choice::Evaluation(0),
    };
    let request = Request {
        run: args.run,
        against: args.against,
        checkpoint: args.checkpoint,
        choice,
        mode: if args.stochastic { ActionMode::Sampled } else { ActionMode::Mean },
        physics: args.physics,
        episodes: args.episodes as usize,
        seed: args.seed,
        map: args.map,
        threads: threads("--threads", args.threads)?,
    };
    let stop = stop::on_signals().context("cannot listen for signals")?;
    let watch = Watch { stop, ..Watch::default() };
    let ranks = request.map || matches!(choice, Choice::Worst(_) | Choice::Best(_));
    let bar = if ranks { request.episodes } else { 0 };
    let replay = with_bar(bar, bar == 0, &watch, || replay(&request, &watch))?;
    replay.notes.iter().for_each(|note| tell!("note: {note}"));

    let mut files = Vec::new();
    let page = match (args.out, &args.gif) {
        (Some(out), _) => Some(out),
        (None, None) => Some("replay.html".into()),
        (None, Some(_)) => None,
    };
    if let Some(path) = page {
        save(&path, replay.to_html().as_bytes(), &mut files)?;
    }
    if let Some(path) = args.gif {
        let theme = if args.dark { Theme::Dark } else { Theme::Light };
        save(&path, &replay.to_gif(theme).context("cannot make the picture")?, &mut files)?;
    }
    if args.json {
        print(&serde_json::to_string_pretty(&json(&replay, &files))?)?;
        return Ok(Code::Done);
    }
    for played in replay.episodes.iter().flatten() {
        let recording = &played.recording;
        print(&format!(
            "{} on {}, seed {}: return {:.2}, cost {}, {}. {}",
            played.algo,
            recording.task,
            recording.seed,
            recording.ret(),
            recording.cost(),
            count(recording.steps(), "step"),
            played.what
        ))?;
    }
    for (path, bytes) in &files {
        print(&format!("{} ({:.2} MB)", path.display(), *bytes as f64 / 1e6))?;
    }
    Ok(Code::Done)
}

/// Writes to a temporary file in the same folder and renames it, so `path` never holds an incomplete file.
fn save(path: &Path, data: &[u8], files: &mut Vec<(PathBuf, usize)>) -> anyhow::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let partial = path.with_file_name(format!(".{name}.{}.partial", std::process::id()));
    let written = fs::write(&partial, data).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial); // the error of writing is reported, not this one
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    files.push((path.to_owned(), data.len()));
    Ok(())
}

fn json(replay: &epo_replay::Replay, files: &[(PathBuf, usize)]) -> serde_json::Value {
    let episodes: Vec<_> = replay
        .episodes
        .iter()
        .enumerate()
        .flat_map(|(i, sides)| sides.iter().map(move |played| (i, played)))
        .map(|(i, played)| {
            let recording = &played.recording;
            serde_json::json!({
                "episode": i, "run": played.run, "task": recording.task, "algo": played.algo,
                "checkpoint": played.checkpoint, "hash": played.hash, "policy": played.mode.label(),
                "physics": played.physics.to_string(), "seed": recording.seed, "exact": played.actions.is_exact(),
                "actions": played.actions.name(), "what": played.what, "return": recording.ret(), "cost": recording.cost(),
                "length": recording.steps(), "recorded": played.recorded,
            })
        })
        .collect();
    let files: Vec<_> =
        files.iter().map(|(path, bytes)| serde_json::json!({ "path": path, "bytes": bytes })).collect();
    serde_json::json!({ "episodes": episodes, "files": files, "map": replay.map })
}
