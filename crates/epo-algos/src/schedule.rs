//! Distributes the passes of an update over threads. A free thread takes the next pass of the
//! critic that has made the fewest passes.
//!
//! A reader of an algorithm can skip this file. Every critic makes as many passes as the policy, one after another and
//! in the same order of minibatches. Therefore the result does not depend on the number of threads.
//!
//! Critics never read the policy during an epoch. They may lag behind it, and only need to know how many passes it
//! makes. The calling thread runs the policy, so a single thread cannot deadlock: it runs the critics afterwards.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::UpdateError;
use crate::context::UpdateContext;
use crate::critics::CriticJob;

/// Runs `policy` on this thread and the critics on the others. When the policy is done, this thread helps the
/// others.
///
/// The critics may make one pass right away, and one more each time `policy` calls [`Passes::announce`].
///
/// # Errors
/// The error of the policy, or that of the first critic in their order.
pub(crate) fn train_beside(
    critics: Vec<CriticJob<'_>>,
    context: &UpdateContext<'_>,
    policy: impl FnOnce(&Passes<'_, '_>) -> Result<(), UpdateError> + Send,
) -> Result<(), UpdateError> {
    let networks = 1 + critics.len();
    let queue = Queue::new(critics, 1);
    let mut result = Ok(());
    rayon::scope(|scope| {
        for _ in 1..rayon::current_num_threads().min(networks) {
            scope.spawn(|_| queue.work(context));
        }
        result = policy(&Passes(&queue)); // the queue closes when `Passes` is dropped
        queue.work(context);
    });
    result?;
    queue.into_result()
}

/// Trains the critics alone, for `config.passes` passes, on all threads of the pool.
///
/// # Errors
/// The error of the first critic in their order.
pub(crate) fn train_critics(
    critics: Vec<CriticJob<'_>>,
    context: &UpdateContext<'_>,
) -> Result<(), UpdateError> {
    let n = critics.len();
    let queue = Queue::new(critics, context.config.passes);
    queue.close();
    rayon::scope(|scope| {
        for _ in 0..n {
            scope.spawn(|_| queue.work(context));
        }
    });
    queue.into_result()
}

/// The handle with which the policy announces its passes. When it is dropped, even by a panic, the
/// queue is closed and the critics finish.
pub(crate) struct Passes<'q, 'a>(&'q Queue<'a>);

impl Passes<'_, '_> {
    /// Allows the critics one more pass.
    pub(crate) fn announce(&self) {
        self.0.lock().allowed += 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Passes<'_, '_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The critics that no thread is working on, and the number of passes that they may make.
#[derive(Debug)]
struct Queue<'a> {
    state: Mutex<QueueState<'a>>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<'a> {
    idle: Vec<CriticJob<'a>>,
    allowed: usize,
    closed: bool,
    /// The failure of the critic with the lowest index.
    failure: Option<(usize, UpdateError)>,
}

impl<'a> Queue<'a> {
    fn new(critics: Vec<CriticJob<'a>>, allowed: usize) -> Self {
        let state = QueueState { idle: critics, allowed, closed: false, failure: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // rayon reports the panic of another thread
    }

    /// Closes the queue: no further pass will be allowed.
    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Makes passes until none is left and the queue is closed.
    fn work(&self, context: &UpdateContext<'_>) {
        let mut state = self.lock();
        loop {
            let next = (0..state.idle.len())
                .filter(|&j| state.idle[j].done < state.allowed)
                .min_by_key(|&j| (state.idle[j].done, state.idle[j].index));
            if let Some(j) = next {
                let mut job = state.idle.swap_remove(j);
                drop(state);
                let result = job.pass(context);
                state = self.lock();
                match result {
                    Ok(()) => state.idle.push(job),
                    Err(e) if state.failure.as_ref().is_none_or(|(i, _)| job.index < *i) => {
                        state.failure = Some((job.index, e));
                    }
                    Err(_) => {}
                }
                self.changed.notify_all();
            } else if state.closed {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn into_result(self) -> Result<(), UpdateError> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failure.map_or(Ok(()), |(_, e)| Err(e))
    }
}
