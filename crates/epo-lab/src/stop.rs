//! Signals: Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 ask a run to save and stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;

/// A flag that the first Ctrl-C, SIGTERM, SIGHUP (the terminal was closed) or SIGUSR1 sets; the run then finishes its
/// epoch, saves and stops. A second signal ends the process at once with code 130.
///
/// SIGUSR1 is what `mpirun` passes on to the ranks of a run; on other signals it kills them.
///
/// Ending at once is safe at any time: no more is lost than by `kill -9`. A run on a cluster ignores a second
/// SIGTERM, because Slurm sends it to the script and to every process below it.
///
/// SIGXFSZ (a file grew past the limit of the process) is caught as well, so that the write fails with an error
/// instead of killing the process.
pub fn on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1] {
        // in this order: the first signal finds the flag unset and sets it afterwards
        if signal != SIGTERM || !crate::sweep::is_patient() {
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        }
        flag::register(signal, Arc::clone(&stop))?;
    }
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(stop)
}
