//! The handshake of a WebSocket that is asked for over HTTP/2 (RFC 8441) from an application that speaks
//! HTTP/1.1. The client sends no key and does not see the answer to one (RFC 8441 §5), so this server
//! makes the key and checks the answer.

use base64ct::{Base64, Encoding};
use forebay_http::response::Response;
use sha1::{Digest, Sha1};

/// The field with the key.
pub(crate) const KEY: &str = "Sec-WebSocket-Key";

/// The field with the answer to the key.
pub(crate) const ACCEPT: &str = "Sec-WebSocket-Accept";

/// The constant of the WebSocket handshake (RFC 6455 §1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request with this number: 16 bytes that never come again (RFC 6455 §4.1). The key keeps
/// nothing secret: the answer to it shows that the application has understood the handshake.
pub(crate) fn key(request: u128) -> String {
    Base64::encode_string(&request.to_be_bytes())
}

/// The right answer to a key (RFC 6455 §4.2.2).
pub(crate) fn accept(key: &str) -> String {
    Base64::encode_string(&Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// Whether a 101 changes to a WebSocket, and answers the key of the request with this number.
pub(crate) fn is_accepted(answer: &Response<'_>, request: u128) -> bool {
    let has = |name, is: &dyn Fn(&[u8]) -> bool| {
        let mut values = answer.values(name);
        values.next().is_some_and(is) && values.next().is_none()
    };
    has("Upgrade", &|value| value.eq_ignore_ascii_case(b"websocket"))
        && has(ACCEPT, &|value| value == accept(&key(request)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::Lines;
    use forebay_http::response::{ParsedResponse, ResponseContext, ResponseHeadLimits};

    /// RFC 6455 §1.3
    #[test]
    fn a_key_has_one_answer() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key(1), "AAAAAAAAAAAAAAAAAAAAAQ==");
    }

    #[test]
    fn only_the_right_answer_makes_a_tunnel() {
        let is_fine = |fields: &str| {
            let text = format!("HTTP/1.1 101 x\r\nConnection: upgrade\r\n{fields}\r\n");
            let mut lines = Lines::new();
            let asked = ResponseContext { is_head: false, upgrade: true };
            match Response::parse(
                text.as_bytes(),
                &mut lines,
                asked,
                &ResponseHeadLimits::default(),
            ) {
                Ok(ParsedResponse::Complete(answer)) => is_accepted(&answer, 1),
                _ => false,
            }
        };
        let (upgrade, right) = ("Upgrade: websocket\r\n", accept(&key(1)));
        let accepts = format!("Sec-WebSocket-Accept: {right}\r\n");
        assert!(is_fine(&format!("{upgrade}{accepts}")));
        assert!(!is_fine(upgrade));
        assert!(!is_fine(&format!("Upgrade: chat\r\n{accepts}")));
        assert!(!is_fine(&format!("{upgrade}{accepts}{accepts}")));
        assert!(!is_fine(&format!("{upgrade}Sec-WebSocket-Accept: {}\r\n", accept(&key(2)))));
    }
}
