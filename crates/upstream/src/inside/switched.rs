//! A connection whose protocol a handler has changed, as one stream of bytes.

use super::request::InsideRequest;
use super::response::{InsideResponse, wrong};
use std::io::{self, Read, Write};

/// The bytes in both directions after the protocol was [changed](InsideResponse::switch), as
/// libraries for WebSockets take them. Reading ends when the client has ended its direction. The
/// server's direction ends when the handler returns.
#[derive(Debug)]
pub struct SwitchedStream<'h> {
    request: &'h mut InsideRequest,
    response: &'h mut InsideResponse,
}

impl InsideResponse {
    /// Changes to a protocol that the client [asks for](InsideRequest::upgrade). Sends the head of
    /// such an answer with the fields that were set, and does not wait. From here on the request is
    /// read, and the response written, as bytes of that protocol. The key of a WebSocket is answered,
    /// unless the field for that is set.
    ///
    /// # Errors
    /// `InvalidInput` if the client has not asked for the protocol, the handler takes no upgrades, or
    /// the head was sent already. Another error if the client has left.
    pub fn switch<'h>(
        &'h mut self,
        request: &'h mut InsideRequest,
        protocol: &str,
    ) -> io::Result<SwitchedStream<'h>> {
        let Some(accept) = request.switches_to(protocol) else {
            return Err(wrong(format_args!("the client has not asked for {protocol}")));
        };
        self.begin_switch(protocol, accept)?;
        Ok(SwitchedStream { request, response: self })
    }
}

impl<'h> SwitchedStream<'h> {
    /// Splits the stream into its two directions: one thread may wait for the client while another
    /// sends. The waits of the second thread, too, end with an error when the client leaves.
    pub fn split(self) -> (&'h mut InsideRequest, &'h mut InsideResponse) {
        (self.request, self.response)
    }
}

impl Read for SwitchedStream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.request.read(out)
    }
}

/// Written bytes are sent when there are 16 KiB of them, and when they are flushed.
impl Write for SwitchedStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.response.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.response.flush()
    }
}
