//! An answer, as far as it has come.

use super::script::ScriptAnswer;
use crate::messages::response::ResponseReader;
use forebay_http::body::BodyDecoder;
use forebay_http::response::{KeptResponse, ResponseContext, ResponseHeadLimits};
use forebay_http::websocket::FramePosition;

/// The word in logs for an answer that ended before it was whole.
pub(super) const BROKEN_OFF: &str = "broken_off";

/// How much of an answer is received at a time, where it cannot go to the client at once.
pub(super) const RECEIVE_BYTES: usize = 16 * 1024;

/// The head of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerHead {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
    pub(super) keep_alive: bool,
}

/// The rest of an answer that is still to come.
pub(super) enum Coming {
    Nothing,
    Sized(u64),
    Chunked(Box<BodyDecoder>),
    /// Everything until the connection ends.
    All,
    /// The frames of a WebSocket, and the position in them.
    WebSocket(Box<FramePosition>),
    /// What is left of a script's answer.
    OfScript,
}

impl Coming {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Coming::Nothing => true,
            Coming::Chunked(decoder) => decoder.is_done(),
            Coming::Sized(_) | Coming::All | Coming::WebSocket(_) | Coming::OfScript => false,
        }
    }
}

/// The part of an answer that has come.
pub(super) struct AnswerUnderWay {
    pub(super) reader: ResponseReader,
    /// The answer of an application that speaks FastCGI.
    pub(super) script: Option<Box<ScriptAnswer>>,
    pub(super) received: Vec<u8>,
    /// Where the unused bytes of `received` begin.
    pub(super) at: usize,
    pub(super) interim: Vec<u8>,
    /// The head of the answer, in `received`.
    pub(super) head: Option<AnswerHead>,
    /// The fields of the head, until the handler has looked at them.
    pub(super) fields: Option<KeptResponse>,
    pub(super) coming: Coming,
    /// Whether the handler has looked at the answer, or knows that there is none.
    pub(super) has_told: bool,
    /// Whether the application has broken the answer off.
    pub(super) is_broken_off: bool,
    /// The number of bytes that were passed on as they are.
    pub(super) taken_bytes: u64,
}

impl AnswerUnderWay {
    /// An answer of which nothing has come.
    pub(super) fn new(reader: ResponseReader, script: Option<Box<ScriptAnswer>>) -> AnswerUnderWay {
        AnswerUnderWay {
            reader,
            script,
            received: Vec::new(),
            at: 0,
            interim: Vec::new(),
            head: None,
            fields: None,
            coming: Coming::Nothing,
            has_told: false,
            is_broken_off: false,
            taken_bytes: 0,
        }
    }

    /// The bytes that were received and not used.
    pub(super) fn unused(&self) -> &[u8] {
        &self.received[self.at..]
    }

    /// Starts over for another attempt.
    pub(super) fn again(&mut self, asked: ResponseContext, limits: ResponseHeadLimits) {
        self.received.clear();
        self.at = 0;
        self.reader = ResponseReader::new(asked, limits);
        if let Some(script) = &mut self.script {
            script.again(asked, limits);
        }
    }
}
