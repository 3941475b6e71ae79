//! Ctrl-C and SIGTERM: the first asks a run to stop after its epoch, the second leaves at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that the first Ctrl-C or SIGTERM sets; the second ends the process with code 130.
///
/// Leaving at once is safe at any instant: it is no worse than `kill -9`.
pub fn on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // in this order: the first signal finds the flag unset, and sets it afterwards
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
