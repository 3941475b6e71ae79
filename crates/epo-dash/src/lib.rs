//! A web page that shows runs while they train.
//!
//! ```text
//! run folders ──folder, tail──▶ runs ──store──▶ groups ──view, curves──▶ JSON, CSV ──server──▶ the page
//! ```
//! [`Dashboard::bind`] takes a port and [`Dashboard::serve`] answers requests until the process ends. The server reads
//! run folders of this program and of OmniSafe and never writes. It answers only requests for its own address
//! (`guard.rs`), and opens only files of run folders, without following links (`folder.rs`). A request names a run by
//! an id, never by a path.

mod answer;
mod curves;
mod episodes;
mod folder;
mod guard;
mod rows;
mod run;
mod server;
mod store;
mod sweep;
mod tail;
mod view;

pub use episodes::Episode;
pub use server::{Dashboard, DashboardError, LICENCES, Options, routes};

use std::path::Path;

/// Makes replays of episodes.
pub trait Replays: Send + Sync {
    /// Returns a self-contained HTML page that replays an episode of training of the run in the folder `run`.
    ///
    /// Without an episode, the page replays the costliest episodes of an evaluation and shows where costs were paid. The
    /// error is a sentence for the user.
    fn replay(&self, run: &Path, episode: Option<&Episode>) -> Result<String, String>;

    /// Returns the content security policy of the pages. It must allow their scripts and styles and nothing from a network.
    ///
    /// The dashboard adds a sandbox in which scripts run, but belong to no origin.
    fn content_security_policy(&self) -> String;
}
