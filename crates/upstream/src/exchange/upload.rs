//! The request on its way: what was sent and what is to be, kept as long as it fits.

use super::collected::BodyOnDisk;
use super::pace::UploadPace;
use crate::messages::fastcgi;
use crate::spool::SpoolFile;
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

/// What of a body is to be sent next.
pub(super) enum NextPart {
    /// It is ready.
    Ready,
    /// There is none, or what was ready is not sent yet.
    None,
    /// The disk is asked.
    Waits,
    /// The disk has failed.
    Failed,
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
    /// Its length is not known, and it could be larger if bodies might be on disk.
    pub(super) has_no_spool: bool,
    /// What follows what is to be sent: most of the body is on disk.
    pub(super) on_disk: Option<Box<BodyOnDisk>>,
    /// More of the body has come than there may be, or it cannot be read from the disk.
    pub(super) is_refused: bool,
    /// The client waits to be asked for the body.
    pub(super) expects_continue: bool,
    /// How fast the body comes.
    pub(super) pace: UploadPace,
    /// Some of it was sent since the time was known last.
    pub(super) has_moved: bool,
    /// Bytes of it that have come.
    pub(super) passed_bytes: u64,
}

impl Upload {
    /// Bytes that are to be sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.to.len() - self.sent
    }

    /// Whether all that has come is sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.to.len() && self.on_disk.as_ref().is_none_or(|body| body.is_over())
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
        // its head went with what was sent
        self.on_disk.iter_mut().for_each(|body| body.head = 0);
        if self.to.is_empty() {
            self.to = Vec::new();
        }
    }

    /// The file of its body, where that must be read before more can be sent.
    pub(super) fn busy_file(&self) -> Option<&SpoolFile> {
        let is_sent = self.sent == self.to.len();
        self.on_disk.as_ref().filter(|_| is_sent)?.busy_file()
    }

    /// Makes the next part of a body on disk ready, where all that was ready is sent.
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

    /// Nothing of it was sent: another attempt begins.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
        if let Some(body) = &mut self.on_disk {
            self.to.truncate(body.head);
            body.rewind();
        }
    }
}
