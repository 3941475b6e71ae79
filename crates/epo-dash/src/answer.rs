//! Bodies of answers: limits on the memory that unsent answers hold, and on the time that a slow client has.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of bytes of all answers that are being sent.
const MOST_UNSENT: usize = 128 << 20;
/// Number of bytes that are handed to the connection at once.
const PART: usize = 64 << 10;
/// Time that a client has to receive an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Memory for answers that are being sent, in kilobytes.
pub(crate) fn budget() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST_UNSENT >> 10))
}

/// The time at which the current answer of a connection was begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sending(Arc<AtomicU64>);

impl Sending {
    fn begin(&self) {
        self.0.store(BEGUN.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns true if the client has taken longer than [`PATIENCE`] for one answer.
    pub(crate) fn is_overdue(&self) -> bool {
        let begun = self.0.load(Ordering::Relaxed);
        begun > 0 && BEGUN.elapsed() > Duration::from_millis(begun) + PATIENCE
    }
}

/// A body that is sent in parts and holds its share of the budget until the last part.
struct Parts {
    rest: Bytes,
    sending: Sending,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.sending.end();
    }
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let size = self.rest.len().min(PART);
        Poll::Ready((size > 0).then(|| Ok(Frame::data(self.rest.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Returns a body with these bytes; `None` if too many answers are being sent.
pub(crate) fn body(bytes: Bytes, budget: &Arc<Semaphore>, sending: &Sending) -> Option<Body> {
    let size = u32::try_from(bytes.len().div_ceil(1 << 10)).ok()?;
    let permit = budget.clone().try_acquire_many_owned(size).ok()?;
    sending.begin();
    Some(Body::new(Parts { rest: bytes, sending: sending.clone(), _permit: permit }))
}
