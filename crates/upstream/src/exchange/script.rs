//! The answer of an application that speaks FastCGI, as far as it was read.

use crate::messages::fastcgi::{FastCgiError, FastCgiPiece, FastCgiReader, RecordsRead};
use forebay_http::response::{ResponseContext, ResponseHeadLimits};

/// A function that takes the messages of a script for the log.
pub type ScriptLog = Box<dyn Fn(&[u8]) + Send>;

/// The answer of a script, as far as it was read.
pub(super) struct ScriptAnswer {
    reader: FastCgiReader,
    /// Whether some of the answer has come.
    pub(super) has_begun: bool,
    /// Whether all of the answer has come.
    pub(super) is_over: bool,
    log: Option<ScriptLog>,
}

impl ScriptAnswer {
    pub(super) fn new(
        asked: ResponseContext,
        limits: ResponseHeadLimits,
        log: Option<ScriptLog>,
    ) -> ScriptAnswer {
        ScriptAnswer {
            reader: FastCgiReader::new(asked, limits),
            has_begun: false,
            is_over: false,
            log,
        }
    }

    /// Starts over for another attempt.
    pub(super) fn again(&mut self, asked: ResponseContext, limits: ResponseHeadLimits) {
        self.say();
        (self.reader, self.has_begun) = (FastCgiReader::new(asked, limits), false);
    }

    /// The head of the answer, as one of HTTP.
    pub(super) fn head(&self) -> &[u8] {
        self.reader.head()
    }

    pub(super) fn read<'b>(&mut self, bytes: &'b [u8]) -> Result<RecordsRead<'b>, FastCgiError> {
        self.has_begun |= !bytes.is_empty();
        let read = self.reader.read(bytes)?;
        self.is_over |= matches!(read.piece, FastCgiPiece::End { .. });
        Ok(read)
    }

    /// Passes the script's messages for the log on.
    fn say(&self) {
        let said = self.reader.stderr();
        if let Some(log) = self.log.as_ref().filter(|_| !said.is_empty()) {
            log(said);
        }
    }
}

impl Drop for ScriptAnswer {
    fn drop(&mut self) {
        self.say();
    }
}
