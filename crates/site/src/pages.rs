//! Small pages for answers without content: errors and redirects.

use crate::bake::{constant_lines, length_line, line, server_line};
use forebay_conn::Reply;
use forebay_http::status;
use std::io::Write;

/// What the server answers to.
const ALLOWED: &[u8] = b"GET, HEAD, OPTIONS";

/// The pages, each written once.
pub(crate) struct Pages {
    pub(crate) server_line: &'static str,
    /// See [`constant_lines`].
    pub(crate) constant: Vec<u8>,
    missing: Page,
    denied: Page,
    options: Vec<u8>,
    pub(crate) redirect: Vec<u8>,
}

struct Page {
    status: u16,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Page {
    /// `fields` are whole lines.
    fn new(server_line: &str, status: u16, text: &str, fields: &[u8]) -> Page {
        let body = body(status, text);
        let mut head = Vec::with_capacity(256);
        // Writing to a vector cannot fail.
        let _ = write!(head, "HTTP/1.1 {status} {}\r\n", status::reason(status));
        line(&mut head, "Content-Type", b"text/html; charset=utf-8");
        head.extend_from_slice(server_line.as_bytes());
        head.extend_from_slice(fields);
        length_line(&mut head, body.len() as u64);
        Page { status, head, body }
    }

    fn write<B>(&self, reply: &mut Reply<'_, B>) {
        reply.head(self.status, &self.head);
        reply.copy(&self.body);
    }
}

fn body(status: u16, text: &str) -> Vec<u8> {
    let reason = status::reason(status);
    let (first, rest) = text.split_at_checked(1).unwrap_or_default();
    let first = first.to_ascii_uppercase();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<title>{status} {reason}</title>\n\
         <h1>{status} {reason}</h1>\n<p>{first}{rest}.</p>\n</html>\n"
    )
    .into_bytes()
}

impl Pages {
    pub(crate) fn new(is_server_named: bool, cache_control: Option<&str>) -> Pages {
        let server_line = server_line(is_server_named);
        let mut options = b"HTTP/1.1 204 No Content\r\n".to_vec();
        options.extend_from_slice(server_line.as_bytes());
        line(&mut options, "Allow", ALLOWED);
        Pages {
            server_line,
            constant: constant_lines(is_server_named, cache_control),
            missing: Page::new(server_line, 404, "There is nothing at this address", b""),
            denied: Page::new(server_line, 403, "This file may not be read", b""),
            options,
            redirect: body(301, "This is a directory; its address ends in a slash"),
        }
    }

    pub(crate) fn missing<B>(&self, reply: &mut Reply<'_, B>) {
        self.missing.write(reply);
    }

    pub(crate) fn denied<B>(&self, reply: &mut Reply<'_, B>) {
        self.denied.write(reply);
    }

    pub(crate) fn options<B>(&self, reply: &mut Reply<'_, B>) {
        reply.head(204, &self.options);
    }

    /// Any status, with a few words for the client.
    pub(crate) fn plain<B>(&self, status: u16, text: &str, reply: &mut Reply<'_, B>) {
        let mut fields = Vec::new();
        match status {
            405 => line(&mut fields, "Allow", ALLOWED),
            406 => line(&mut fields, "Vary", b"Accept-Encoding"),
            _ => {}
        }
        self.with_fields(status, text, &fields, reply);
    }

    /// The same with more fields, as whole lines.
    pub(crate) fn with_fields<B>(
        &self,
        status: u16,
        text: &str,
        fields: &[u8],
        reply: &mut Reply<'_, B>,
    ) {
        Page::new(self.server_line, status, text, fields).write(reply);
    }
}
