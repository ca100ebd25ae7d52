//! The buffer bytes are received into. A loop, thread or fiber owns one.

/// Received bytes that wait to be used, and free memory behind them.
#[derive(Debug, Default)]
pub struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// A buffer of this many bytes. It must be larger than the largest head allowed.
    pub fn with_capacity(bytes: usize) -> Input {
        Input { buffer: vec![0; bytes].into_boxed_slice(), start: 0, end: 0 }
    }

    /// The largest number of bytes that the buffer holds.
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// The bytes received and not yet used.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The number of bytes received and not yet used.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether all received bytes are used.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Marks the first `count` bytes as used.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.start += count.min(self.len());
    }

    /// Forgets all bytes.
    #[inline]
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Replaces the content; what does not fit is left out.
    pub fn fill(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.buffer.len());
        self.buffer[..count].copy_from_slice(&bytes[..count]);
        (self.start, self.end) = (0, count);
    }

    /// Takes back the bytes that were [held](Input::hold), and leaves `held` empty.
    #[inline]
    pub(crate) fn resume(&mut self, held: &mut Vec<u8>) {
        self.clear();
        if !held.is_empty() {
            self.fill(&std::mem::take(held));
        }
    }

    /// Moves the unused bytes into `held`, which is empty.
    #[inline]
    pub(crate) fn hold(&mut self, held: &mut Vec<u8>) {
        if !self.is_empty() {
            *held = self.bytes().to_vec();
            self.clear();
        }
    }

    /// The free memory to receive into; [`received`](Input::received) must be called with how much of it
    /// was used. Empty only if the whole buffer holds unused bytes.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        if self.is_empty() {
            self.clear();
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
        &mut self.buffer[self.end..]
    }

    /// Notes that the first `count` bytes of the free memory now hold received bytes.
    #[inline]
    pub fn received(&mut self, count: usize) {
        self.end += count.min(self.buffer.len() - self.end);
    }
}
