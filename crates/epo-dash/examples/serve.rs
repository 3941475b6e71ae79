//! Serves the dashboard on the given folders: `cargo run -p epo-dash --example serve -- FOLDER...`

use epo_dash::{Dashboard, Options};

#[allow(clippy::print_stdout, reason = "the address is the result of this program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = std::env::args_os().skip(1).map(Into::into).collect();
    let dashboard = Dashboard::bind(&Options { runs, port: 0, ..Options::default() }, None)?;
    println!("{}", dashboard.url());
    Ok(dashboard.serve()?)
}
