//! Storage that begins on a cache line, in safe code.

use std::ops::{Deref, DerefMut};

/// Floats in a cache line.
pub(crate) const LINE: usize = 16;

/// Zeroed `f32` storage whose first element lies on a cache line.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let data = vec![0.0; len + LINE];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE); // elements
        Self { data, start, len }
    }

    /// At least `len` long; what it held is lost when it grows.
    pub(crate) fn reserve(&mut self, len: usize) {
        if len > self.len {
            *self = Self::new(len);
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len); // its own alignment
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.data[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..][..self.len]
    }
}
