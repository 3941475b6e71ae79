//! Serves the dashboard on the given folders: `cargo run -p epo-dash --example serve -- FOLDER...`
//!
//! It shows how a program adds its own replays. The browser test uses it.

use std::path::Path;
use std::sync::Arc;

use epo_dash::{Dashboard, Episode, Options, Replays};

/// Shows the numbers of an episode. A real replay draws the scene.
struct Numbers;

impl Replays for Numbers {
    fn replay(&self, _run: &Path, episode: Option<&Episode>) -> Result<String, String> {
        let Episode { row, cost, ret, .. } =
            episode.ok_or("This example replays episodes of training only.")?;
        Ok(format!(
            "<!doctype html><title>replay</title><p>Episode {row}: cost {cost}, return {ret}\
             <p id=script>no script ran<script>document.getElementById('script').textContent = 'script ran'</script>"
        ))
    }

    fn content_security_policy(&self) -> String {
        "default-src 'none'; script-src 'unsafe-inline'".into()
    }
}

#[allow(clippy::print_stdout, reason = "the address is the result of this program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = std::env::args_os().skip(1).map(Into::into).collect();
    let options = Options { runs, port: 0, ..Options::default() };
    let dashboard = Dashboard::bind(&options, Some(Arc::new(Numbers)))?;
    println!("{}", dashboard.url());
    Ok(dashboard.serve()?)
}
