//! `epo bench update`

use epo_nn::bench::{UpdateBench, update, zero_target_ratio};
use serde::Serialize;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo bench update`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Layer sizes and minibatch size of each measured network.
///
/// In this order: a policy and a critic of the navigation tasks, the same policy with large
/// minibatches, a policy with many observations and actions, and a policy with wide layers.
const NETS: [(&[usize], usize); 5] = [
    (&[60, 64, 64, 2], 64),
    (CRITIC, 64),
    (&[60, 64, 64, 2], 4096),
    (&[376, 64, 64, 17], 64),
    (&[60, 256, 256, 2], 64),
];

const CRITIC: &[usize] = &[60, 64, 64, 1];

#[derive(Serialize)]
struct UpdateTiming {
    net: String,
    batch: usize,
    us_per_update: f64,
    gflops: f64,
    peak_fraction: f64,
    /// Time of an update with zero targets divided by that of an update with random targets. Only for critics.
    #[serde(skip_serializing_if = "Option::is_none")]
    zero_target_ratio: Option<f64>,
}

/// Measures the time of an update for each network in [`NETS`].
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let measure = |(sizes, batch): (&[usize], usize)| {
        let UpdateBench { us_per_update, gflops, peak_fraction } = update(sizes, batch);
        let net = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join("-");
        let zero_target_ratio = (sizes == CRITIC).then(|| zero_target_ratio(sizes, batch));
        UpdateTiming { net, batch, us_per_update, gflops, peak_fraction, zero_target_ratio }
    };
    let rows: Vec<UpdateTiming> = NETS.into_iter().map(measure).collect();
    if args.json {
        print(&serde_json::to_string_pretty(&rows)?)?;
        return Ok(Code::Done);
    }
    let mut text = "net           batch  µs/update  Gflop/s  of the peak".to_owned();
    for UpdateTiming { net, batch, us_per_update, gflops, peak_fraction, .. } in &rows {
        let percent = 100.0 * peak_fraction;
        text += &format!("\n{net:<12}  {batch:>5}  {us_per_update:>9.1}  {gflops:>7.1}  {percent:>9.1} %");
    }
    for (net, ratio) in rows.iter().filter_map(|row| row.zero_target_ratio.map(|ratio| (&row.net, ratio))) {
        text += &format!("\n{net} with zero targets: {ratio:.2} × the time of random targets");
    }
    print(&text)?;
    Ok(Code::Done)
}
