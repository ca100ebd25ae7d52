//! The bytes that a connection sends next: heads and short bodies as bytes, and a long body behind them.

/// The bytes that one connection sends next. A loop, thread or fiber owns one `Out` and uses it for every
/// connection in turn.
#[derive(Debug)]
pub struct Out<B> {
    /// Heads and short bodies, ready to go.
    pub bytes: Vec<u8>,
    /// How many of these bytes were sent already.
    pub sent: usize,
    /// The body behind these bytes. While it is there, nothing more is written.
    pub body: Option<B>,
    /// Where in `bytes` the last answer begins; `None` once some of it may have been sent.
    begins: Option<usize>,
}

impl<B> Default for Out<B> {
    fn default() -> Out<B> {
        Out { bytes: Vec::with_capacity(64 * 1024), sent: 0, body: None, begins: None }
    }
}

impl<B> Out<B> {
    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.body.is_none()
    }

    /// Bytes of heads and short bodies that are left to be sent.
    pub fn unsent_bytes(&self) -> u64 {
        (self.bytes.len() - self.sent) as u64
    }

    /// Bytes that are left to be sent, those of the body included; `of_body` says how many the body has.
    pub fn left(&self, of_body: impl FnOnce(&B) -> u64) -> u64 {
        self.unsent_bytes() + self.body.as_ref().map_or(0, of_body)
    }

    /// Forgets everything, but keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.body = None;
        self.begins = None;
    }

    /// Notes that an answer begins here.
    #[inline]
    pub(crate) fn begin_answer(&mut self) {
        self.begins = Some(self.bytes.len());
    }

    /// How many bytes of earlier answers wait before the last one; `None` if some of the last one
    /// was sent.
    #[inline]
    pub fn earlier(&self) -> Option<usize> {
        self.begins?.checked_sub(self.sent)
    }

    /// Takes out the last answer, of which nothing was sent.
    pub(crate) fn withdraw(&mut self) {
        if let Some(earlier) = self.earlier() {
            self.bytes.truncate(self.sent + earlier);
            (self.body, self.begins) = (None, None);
            if earlier == 0 {
                self.clear();
            }
        }
    }

    /// Puts back what [`take_rest`](Out::take_rest) took.
    pub fn put_back(&mut self, rest: Out<B>) {
        self.clear();
        self.bytes.extend_from_slice(&rest.bytes[rest.sent..]);
        self.begins = rest.earlier();
        self.body = rest.body;
    }

    /// Moves what is not sent yet to a place of its own and leaves nothing behind.
    pub fn take_rest(&mut self) -> Out<B> {
        let bytes = self.bytes[self.sent..].to_vec();
        let rest = Out { bytes, sent: 0, begins: self.earlier(), body: self.body.take() };
        self.clear();
        rest
    }
}
