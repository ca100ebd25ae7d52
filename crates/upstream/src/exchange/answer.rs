//! The answer, as far as it has come.

use super::script::ScriptAnswer;
use crate::messages::response::ResponseReader;
use forebay_http::body::BodyDecoder;
use forebay_http::response::{KeptResponse, ResponseContext, ResponseHeadLimits};
use forebay_http::websocket::FramePosition;

/// An answer has ended before it was whole, in a word.
pub(super) const BROKEN_OFF: &str = "broken_off";

/// So much of an answer is received at a time, where it cannot go to the client at once.
pub(super) const RECEIVE_BYTES: usize = 16 * 1024;

/// What is known of the head of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerHead {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
    pub(super) keep_alive: bool,
}

/// What is still to come of an answer.
pub(super) enum Coming {
    Nothing,
    Sized(u64),
    Chunked(Box<BodyDecoder>),
    /// Whatever comes.
    All,
    /// The frames of a WebSocket, which has come so far.
    WebSocket(Box<FramePosition>),
    /// What is left of what a script says.
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

/// What has come of an answer.
pub(super) struct AnswerUnderWay {
    pub(super) reader: ResponseReader,
    /// That of an application that speaks FastCGI.
    pub(super) script: Option<Box<ScriptAnswer>>,
    pub(super) received: Vec<u8>,
    /// Of it, what is not used yet.
    pub(super) at: usize,
    pub(super) interim: Vec<u8>,
    /// The head of the answer, in `received`.
    pub(super) head: Option<AnswerHead>,
    /// Its fields, until the handler has looked at them.
    pub(super) fields: Option<KeptResponse>,
    pub(super) coming: Coming,
    /// The handler has looked at it, or knows that there is none.
    pub(super) has_told: bool,
    /// The application has broken it off.
    pub(super) is_broken_off: bool,
    /// Bytes of it that were taken as they are.
    pub(super) taken_bytes: u64,
}

impl AnswerUnderWay {
    /// Nothing has come.
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

    /// What was received and not used.
    pub(super) fn unused(&self) -> &[u8] {
        &self.received[self.at..]
    }

    /// It is asked for once more.
    pub(super) fn again(&mut self, asked: ResponseContext, limits: ResponseHeadLimits) {
        self.received.clear();
        self.at = 0;
        self.reader = ResponseReader::new(asked, limits);
        if let Some(script) = &mut self.script {
            script.again(asked, limits);
        }
    }
}
