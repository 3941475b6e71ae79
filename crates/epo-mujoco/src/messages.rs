//! What MuJoCo wants to say.
//!
//! By itself it prints warnings and appends them to `MUJOCO_LOG.TXT` in the working folder. Warnings are counted in
//! the data and asked for by [`Sim::trouble`](crate::Sim::trouble), so here they are dropped. After an error MuJoCo
//! cannot go on, and C frames cannot be unwound: the message is printed and the process ends with code 1.

use std::sync::Once;

use mujoco_rs::mujoco_c::{mjLogMessage, mju_setLogHandler};
use mujoco_rs::wrappers::mj_logging::MjtLogLevel;

static INSTALL: Once = Once::new();

/// Takes MuJoCo's messages over, once per process.
pub(crate) fn install() {
    // SAFETY: nothing of this crate uses MuJoCo before this call has returned, on whatever thread: a simulation is
    // only made by compiling a model, which comes here first.
    INSTALL.call_once(|| unsafe {
        mju_setLogHandler(Some(handle));
    });
}

unsafe extern "C" fn handle(message: *const mjLogMessage) {
    // SAFETY: MuJoCo passes a message that lives for the whole call.
    let Some(message) = (unsafe { message.as_ref() }) else { return };
    if message.level() == MjtLogLevel::mjLOG_ERROR {
        eprintln!("error: MuJoCo cannot go on: {}", message.subject());
        std::process::exit(1);
    }
}
