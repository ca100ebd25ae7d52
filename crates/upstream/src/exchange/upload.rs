//! The request on its way: what was sent and what is to be, kept as long as it fits.

use super::pace::UploadPace;
use forebay_http::body::Encoder;
use forebay_http::framing::Framing;

/// No more than this waits to be sent; as much is kept of what was sent.
pub(super) const UP_BYTES: usize = 64 * 1024;

/// How the body of a request goes to an application.
pub(super) enum UploadEncoding {
    /// As HTTP frames it.
    Http(Encoder),
    /// In records, up to an empty one.
    Stdin,
    /// As it is: HTTP/2 frames it on its way.
    Plain,
}

impl UploadEncoding {
    /// `None` if nothing is to come.
    pub(super) fn new(framing: Framing, to_script: bool, is_http2: bool) -> Option<UploadEncoding> {
        match framing {
            Framing::None | Framing::Sized(0) => None,
            _ if to_script => Some(UploadEncoding::Stdin),
            _ if is_http2 => Some(UploadEncoding::Plain),
            Framing::Sized(length) => Some(UploadEncoding::Http(Encoder::sized(length))),
            Framing::Chunked => Some(UploadEncoding::Http(Encoder::chunked())),
        }
    }
}

/// The client's end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// It sends, or there is no tunnel.
    Open,
    /// It has ended: our direction is to be when all is sent.
    Ended,
    /// Our direction is ended.
    Shut,
}

/// The head of a request and its body.
pub(super) struct Upload {
    /// What was sent and what is to be; from `sent` on it was not.
    pub(super) to: Vec<u8>,
    pub(super) sent: usize,
    /// As much of what was sent is kept.
    pub(super) kept: usize,
    /// Bytes at its start that only a new connection begins with.
    pub(super) preface: usize,
    /// Some of what was sent is not kept.
    pub(super) is_gone: bool,
    pub(super) tunnel: TunnelEnd,
    /// The framing of the body, while more of it may come.
    pub(super) encoding: Option<UploadEncoding>,
    /// What follows the body of a request over HTTP/2, as lines.
    pub(super) trailers: Option<Vec<u8>>,
    /// Bytes that the body may still have.
    pub(super) body_left: u64,
    /// Its length is told at its end.
    pub(super) is_chunked: bool,
    /// More of the body has come than there may be.
    pub(super) is_too_large: bool,
    /// The client waits to be asked for the body.
    pub(super) expects_continue: bool,
    /// How fast the body comes.
    pub(super) pace: UploadPace,
    /// Some of it was sent since the time was known last.
    pub(super) has_moved: bool,
}

impl Upload {
    /// Bytes that are to be sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.to.len() - self.sent
    }

    /// Whether all that has come is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.to.len()
    }

    /// Whether all that there will be is sent.
    pub(super) fn is_whole(&self) -> bool {
        self.encoding.is_none() && self.is_sent()
    }

    /// Whether something of it has reached an upstream.
    pub(super) fn is_written(&self) -> bool {
        self.sent > 0 || self.is_gone
    }

    /// What was sent is of no use to another attempt.
    pub(super) fn forget_sent(&mut self) {
        self.to.drain(..self.sent);
        (self.sent, self.is_gone) = (0, true);
        if self.to.is_empty() {
            self.to = Vec::new();
        }
    }
}
