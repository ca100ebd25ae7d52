//! The request on its way to the upstream: what was sent and what is still to send, kept as long as
//! it fits.

use super::collected::BodyOnDisk;
use super::pace::UploadPace;
use crate::messages::fastcgi;
use crate::spool::SpoolFile;
use forebay_http::body::Encoder;
use forebay_http::framing::Framing;

/// The largest number of unsent bytes, and of sent bytes that are kept.
pub(super) const UP_BYTES: usize = 64 * 1024;

/// How the body of a request is encoded for an application.
pub(super) enum UploadEncoding {
    /// Framed as HTTP/1.1 does.
    Http(Encoder),
    /// In records of FastCGI, up to an empty one.
    Stdin,
    /// As it is; HTTP/2 frames it later.
    Plain,
}

impl UploadEncoding {
    /// The encoding of a body; `None` if there is none.
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

/// The state of the client's direction of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// The client may still send, or there is no tunnel.
    Open,
    /// The client's direction has ended. The direction to the upstream is shut down when all is sent.
    Ended,
    /// The direction to the upstream is shut down.
    Shut,
}

/// The next part of a body on disk.
pub(super) enum NextPart {
    /// The part is ready to send.
    Ready,
    /// The body has no more parts, or the last one is not sent yet.
    None,
    /// The part is being read from the disk.
    Waits,
    /// The disk has failed.
    Failed,
}

/// The head of a request and its body.
pub(super) struct Upload {
    /// The bytes to send; those before `sent` were sent.
    pub(super) to: Vec<u8>,
    pub(super) sent: usize,
    /// The largest number of sent bytes that are kept.
    pub(super) kept: usize,
    /// The number of bytes at the start that only a new connection begins with.
    pub(super) preface: usize,
    /// Whether some of the sent bytes are not kept.
    pub(super) is_gone: bool,
    pub(super) tunnel: TunnelEnd,
    /// The framing of the body, while more of it may come.
    pub(super) encoding: Option<UploadEncoding>,
    /// The trailers of a request over HTTP/2, as lines.
    pub(super) trailers: Option<Vec<u8>>,
    /// The number of bytes that the body may still have.
    pub(super) body_left: u64,
    /// Whether the length of the body is known only at its end.
    pub(super) is_chunked: bool,
    /// Whether the length is not known, and the body could be larger if there were a spool on disk.
    pub(super) has_no_spool: bool,
    /// The part of the body on disk, which follows what is to send.
    pub(super) on_disk: Option<Box<BodyOnDisk>>,
    /// Whether more of the body has come than is allowed, or it cannot be read from the disk.
    pub(super) is_refused: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// How fast the body comes.
    pub(super) pace: UploadPace,
    /// Whether some of it was sent since the time was last known.
    pub(super) has_moved: bool,
    /// The number of bytes of the body that have come.
    pub(super) passed_bytes: u64,
}

impl Upload {
    /// The number of bytes to send.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.to.len() - self.sent
    }

    /// Whether all that has come is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.to.len() && self.on_disk.as_ref().is_none_or(|body| body.is_over())
    }

    /// Whether the whole request is sent.
    pub(super) fn is_whole(&self) -> bool {
        self.encoding.is_none() && self.is_sent()
    }

    /// Whether some of the request has reached an upstream.
    pub(super) fn is_written(&self) -> bool {
        self.sent > 0 || self.is_gone
    }

    /// Drops what was sent: no other attempt can use it.
    pub(super) fn forget_sent(&mut self) {
        self.to.drain(..self.sent);
        (self.sent, self.is_gone) = (0, true);
        // the head was among what was sent
        self.on_disk.iter_mut().for_each(|body| body.head = 0);
        if self.to.is_empty() {
            self.to = Vec::new();
        }
    }

    /// The file of the body, while it must be read before more can be sent.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        let is_sent = self.sent == self.to.len();
        self.on_disk.as_ref().filter(|_| is_sent)?.busy_file()
    }

    /// Makes the next part of a body on disk ready, once all that was ready is sent.
    pub(super) fn next_part(&mut self) -> NextPart {
        let Some(body) = &mut self.on_disk else { return NextPart::None };
        if self.sent < self.to.len() || body.is_over() {
            return NextPart::None;
        }
        match body.take() {
            Err(_) => NextPart::Failed,
            Ok(None) => NextPart::Waits,
            Ok(Some(part)) => {
                self.to.truncate(body.head);
                self.sent = self.to.len();
                fastcgi::stdin(&part, &mut self.to);
                if body.is_over() {
                    fastcgi::end_of_stdin(&mut self.to);
                }
                NextPart::Ready
            }
        }
    }

    /// Goes back to the start for another attempt, as if nothing was sent.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
        if let Some(body) = &mut self.on_disk {
            self.to.truncate(body.head);
            body.rewind();
        }
    }
}
