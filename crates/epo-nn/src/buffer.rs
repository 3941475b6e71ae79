//! Storage that begins on a cache line, and prefetching of rows, both without `unsafe`.

use std::ops::{Deref, DerefMut};

/// Number of `f32` in a cache line.
pub(crate) const LINE: usize = 16;

/// Zeroed `f32` storage whose first element is at the start of a cache line.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Returns a buffer of `len` zeros.
    pub(crate) fn new(len: usize) -> Self {
        let data = vec![0.0; len + LINE];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE); // elements
        Self { data, start, len }
    }

    /// Makes the buffer at least `len` long. If it has to grow, its contents are replaced by zeros.
    pub(crate) fn reserve(&mut self, len: usize) {
        if len > self.len {
            *self = Self::new(len);
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len); // the copy is aligned too
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

/// Prefetches the rows `index` of `source` (`[n][width]`) into the cache, without waiting for them.
///
/// Does nothing on processors other than x86-64.
///
/// # Panics
/// If an index is out of range.
pub fn prefetch_rows(source: &[f32], width: usize, index: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(sse) = pulp::core_arch::x86::Sse::try_new() {
        use std::arch::x86_64::_MM_HINT_T1;
        for &i in index {
            let row = &source[i as usize * width..][..width];
            for line in row.chunks(LINE) {
                sse._mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
            }
            sse._mm_prefetch::<_MM_HINT_T1>(row[width - 1..].as_ptr().cast()); // a row may begin in the middle of a cache line
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (source, width, index);
}
