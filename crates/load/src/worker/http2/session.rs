//! The state of one HTTP/2 connection, with requests as its streams.

use crate::worker::group::GroupShare;
use crate::worker::request::ChosenPath;
use forebay_http2::{Connection, ErrorCode, FieldLimits, Http2Limits};

/// The state of one connection.
#[derive(Debug)]
pub(in crate::worker) struct Http2Session {
    pub(in crate::worker) machine: Connection,
    /// The beginning of a frame that is not complete yet.
    pub(super) rest: Vec<u8>,
    /// The GOAWAY of the server: the last stream it processes, and the error.
    pub(super) goodbye: Option<(u32, ErrorCode)>,
}

impl Http2Session {
    /// A connection with up to `streams` streams at once. Its windows are as large as a browser's: bodies are
    /// read as they arrive, and a narrow link shows in what its socket does not take.
    pub(in crate::worker) fn new(streams: u32) -> Http2Session {
        let limits = Http2Limits {
            fields: FieldLimits { bytes: 64 * 1024, fields: 1000 },
            streams,
            stream_window_bytes: 6 * 1024 * 1024,
            connection_window_bytes: 15 * 1024 * 1024,
            ..Http2Limits::default()
        };
        Http2Session { machine: Connection::client(limits), rest: Vec::new(), goodbye: None }
    }

    /// Appends a request, if one may be [opened](Connection::can_open); returns its stream.
    #[inline]
    pub(in crate::worker) fn ask(
        &mut self,
        to: &mut Vec<u8>,
        group: &GroupShare<'_>,
        asked: ChosenPath,
    ) -> u32 {
        let has_body = group.plan.body.as_ref().is_some_and(|body| !body.is_empty());
        let write = |block: &mut Vec<u8>| group.append_fields(block, asked);
        // the caller has checked that there may be one more
        let stream = self.machine.open(to, !has_body, group.is_bodyless(), write).unwrap_or(0);
        if has_body {
            self.machine.offer(stream);
        }
        stream
    }
}
