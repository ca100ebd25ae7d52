//! Lines that every head has: the status, the server's name, the length of the body.

use crate::heads::fields::AnswerFields;
use forebay_http::{decimal, status};

/// The line of status.
pub(crate) fn status_line(status: u16) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    status::push_line(status, &mut head);
    head
}

/// Names the server, unless the site keeps the name secret.
pub(crate) fn server(is_named: bool, fields: &mut AnswerFields<'_>) {
    if is_named {
        fields.push("Server", b"Forebay".as_slice());
    }
}

/// Adds `Content-Length`.
pub(crate) fn length_line(head: &mut Vec<u8>, bytes: u64) {
    head.extend_from_slice(b"Content-Length: ");
    decimal::push(bytes, head);
    head.extend_from_slice(b"\r\n");
}
