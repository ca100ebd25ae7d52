//! One connection of HTTP/2: its machine, and requests as its streams.

use crate::worker::group::GroupShare;
use crate::worker::request::ChosenPath;
use forebay_http2::{Connection, ErrorCode, FieldLimits, Http2Limits};

/// What is known of one connection.
#[derive(Debug)]
pub(in crate::worker) struct Http2Session {
    pub(in crate::worker) machine: Connection,
    /// The beginning of a frame whose end has not come.
    pub(super) rest: Vec<u8>,
    /// What the server has said goodbye with: the last stream it processes, and why.
    pub(super) goodbye: Option<(u32, ErrorCode)>,
}

impl Http2Session {
    /// A connection that has up to so many streams at once. Its windows are those of a browser: bodies are
    /// read as they come, and a narrow line is felt by what its socket does not take.
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

    /// Appends a request that may be [opened](Connection::can_open); returns its stream.
    #[inline]
    pub(in crate::worker) fn ask(
        &mut self,
        to: &mut Vec<u8>,
        group: &GroupShare<'_>,
        asked: ChosenPath,
    ) -> u32 {
        let has_body = group.plan.body.as_ref().is_some_and(|body| !body.is_empty());
        let write = |block: &mut Vec<u8>| group.append_fields(block, asked);
        // the caller has looked whether there may be one more
        let stream = self.machine.open(to, !has_body, group.is_bodyless(), write).unwrap_or(0);
        if has_body {
            self.machine.offer(stream);
        }
        stream
    }
}
