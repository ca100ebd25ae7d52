//! The header in which a proxy states its client, before the connection's own bytes begin. The header is
//! read from the raw bytes, before a transport sees any.

use crate::input::Input;
use crate::proxy::{self, ParsedProxyHeader, ProxyError};
use std::net::SocketAddr;

/// A PROXY header that is being received.
#[derive(Debug, Default)]
pub struct Preface {
    /// Bytes that were received, and are not yet a whole header.
    held: Vec<u8>,
}

impl Preface {
    /// Looks at received bytes. Returns `Some` when the header is complete: the address that it states,
    /// if it states one; bytes behind the header stay in the input. Returns `None` while more is needed.
    ///
    /// # Errors
    /// [`ProxyError`] if the bytes are no PROXY header. An answer would reach nothing that could read it.
    pub fn receive(&mut self, input: &mut Input) -> Result<Option<Option<SocketAddr>>, ProxyError> {
        let before = self.held.len();
        self.held.extend_from_slice(input.bytes());
        match proxy::parse(&self.held)? {
            ParsedProxyHeader::Partial => {
                input.clear();
                Ok(None)
            }
            ParsedProxyHeader::Complete { client, len } => {
                // the bytes held before were no whole header
                input.consume(len - before);
                Ok(Some(client))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n";

    fn give(
        preface: &mut Preface,
        bytes: &[u8],
    ) -> (Result<Option<Option<SocketAddr>>, ProxyError>, Vec<u8>) {
        let mut input = Input::with_capacity(1024);
        input.fill(bytes);
        let result = preface.receive(&mut input);
        (result, input.bytes().to_vec())
    }

    #[test]
    fn a_header_may_come_in_any_pieces_and_leaves_what_follows() {
        let address = "192.0.2.7:4711".parse().ok();
        let whole = [HEADER, b"GET"].concat();
        for cut in 0..=HEADER.len() {
            let mut preface = Preface::default();
            let (first, rest) = give(&mut preface, &whole[..cut]);
            if cut == HEADER.len() {
                assert_eq!((first, rest), (Ok(Some(address)), Vec::new()));
                continue;
            }
            assert_eq!((first, rest), (Ok(None), Vec::new()), "{cut}");
            let (second, rest) = give(&mut preface, &whole[cut..]);
            assert_eq!((second, rest.as_slice()), (Ok(Some(address)), &b"GET"[..]), "{cut}");
        }
    }

    #[test]
    fn a_client_that_is_no_proxy_is_found_out() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PROXY TCP4 ::1 ::1 1 1\r\n"] {
            assert!(give(&mut Preface::default(), bytes).0.is_err());
        }
    }
}
