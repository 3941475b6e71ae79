//! `epo dash`

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use epo_dash::{Dashboard, DashboardError, Episode, Options, Replays};
use epo_lab::evaluate::Watch;
use epo_replay::{Choice, Request};

use crate::exit::{Code, Exit};
use crate::output;

/// Arguments of `epo dash`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run folders of epo or OmniSafe, or folders that contain them at most eight levels below
    #[arg(default_value = "runs")]
    runs: Vec<PathBuf>,
    /// Port of the page; if it is in use, the next free one is taken. 0 takes any free port
    #[arg(long, default_value_t = 7070)]
    port: u16,
    /// Address to listen on; any other than 127.0.0.1 needs --token
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// Text that every visitor must know: letters, digits, `-` and `_`. It is part of the printed address
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    /// Print only the address
    #[arg(long, short)]
    quiet: bool,
}

/// Number of episodes that a replay without a chosen episode shows.
const WORST: usize = 3;

/// Longest time that a replay may take. It only ends replays of folders that are made to take long.
const LONGEST: Duration = Duration::from_secs(600);

/// The replays of `epo replay`.
struct EpisodeReplays;

impl Replays for EpisodeReplays {
    fn replay(&self, run: &Path, episode: Option<&Episode>) -> Result<String, String> {
        let choice = match episode {
            Some(episode) => Choice::Training { row: episode.row as usize, retrain: false },
            None => Choice::Worst(WORST),
        };
        let watch = Watch::default();
        let stop = Arc::clone(&watch.stop);
        let (done, waiting) = mpsc::channel::<()>();
        let timer = std::thread::spawn(move || {
            let late = waiting.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout);
            stop.store(late, Ordering::Relaxed);
        });
        let made = epo_replay::replay(&Request { choice, ..Request::new(run) }, &watch);
        drop(done); // ends the timer
        let late = timer.join().is_ok() && watch.stop.load(Ordering::Relaxed);
        let too_long = "The replay takes too long. Make it with `epo replay` on the command line.";
        made.map(|replay| replay.to_html()).map_err(|e| if late { too_long.into() } else { e.to_string() })
    }

    fn content_security_policy(&self) -> String {
        epo_replay::content_security_policy()
    }
}

/// Serves the page until the process is ended.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let Args { runs, port, bind, token, quiet } = args;
    let dashboard =
        match Dashboard::bind(&Options { runs, port, bind, token }, Some(Arc::new(EpisodeReplays))) {
            Err(e @ (DashboardError::NeedsToken(_) | DashboardError::BadToken)) => {
                return Err(anyhow::Error::new(Exit(Code::Usage)).context(e.to_string()));
            }
            dashboard => dashboard?,
        };
    if let Some(port) = dashboard.port_in_use() {
        tell!("note: port {port} is in use, so another one is taken");
    }
    output::print(&dashboard.url())?;
    if !quiet {
        tell!("The dashboard is at this address. End it with Ctrl-C.");
    }
    dashboard.serve()?;
    Ok(Code::Done)
}
