//! The address that a redirect leads to, which is the value of `Location`. It is made of a rule,
//! and written for a request.

use crate::routing::hosts::asked_host;
use crate::routing::known::KnownOfRequest;
use crate::rules::{Captures, Host, Redirect, RequestVariable, TemplatePart};
use forebay_conn::Request;
use forebay_http::path;
use std::io::Write;

/// A part of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocationPart {
    Text(Box<[u8]>),
    /// The host that was asked for.
    Host,
    /// The path that was asked for.
    Path,
    /// The client's query with its question mark.
    Query,
    /// The value of a variable, and its place in the address.
    Variable(RequestVariable, TargetPlace),
}

/// The place of a part in an address; each has other bytes that need no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetPlace {
    Host,
    Path,
    Query,
}

impl TargetPlace {
    /// Whether a byte of a client's text needs no encoding there.
    fn takes(self, byte: u8) -> bool {
        let also: &[u8] = match self {
            TargetPlace::Host => b"-.",
            TargetPlace::Path => b"-._~!$&'()*+,;=:@/",
            TargetPlace::Query => b"-._~/:@",
        };
        byte.is_ascii_alphanumeric() || also.contains(&byte)
    }
}

/// The address a redirect leads to.
pub(crate) fn address(
    rule: &Redirect,
    path: &[u8],
    captures: &Captures<'_>,
) -> Box<[LocationPart]> {
    let parts = rule.to().parts();
    let begins =
        |start: &str| matches!(parts, [TemplatePart::Text(text), ..] if text.starts_with(start));
    let is_scheme = matches!(parts.first(), Some(TemplatePart::Of(RequestVariable::Scheme)));
    let mut writer = LocationWriter {
        pieces: Vec::new(),
        text: Vec::new(),
        place: if begins("http") || is_scheme { TargetPlace::Host } else { TargetPlace::Path },
        adds_query: rule.adds_query(),
        keeps_slashes: begins("//"),
    };
    for part in parts {
        match part {
            TemplatePart::Text(text) => writer.plain(text),
            TemplatePart::Capture(number) => writer.variable(captures.get(*number)),
            TemplatePart::Path => writer.path(path),
            TemplatePart::Query => writer.piece(LocationPart::Query),
            TemplatePart::Host => writer.piece(LocationPart::Host),
            TemplatePart::Of(variable) => {
                let place = writer.place;
                writer.piece(LocationPart::Variable(variable.clone(), place));
            }
        }
    }
    writer.end()
}

struct LocationWriter {
    pieces: Vec<LocationPart>,
    text: Vec<u8>,
    place: TargetPlace,
    /// Whether the query must still be added, at the end or before a fragment.
    adds_query: bool,
    /// Whether the address may begin with two slashes, which name a host.
    keeps_slashes: bool,
}

impl LocationWriter {
    /// Appends the operator's text; bytes that cannot be in an address are encoded.
    fn plain(&mut self, text: &str) {
        // the slashes of the scheme do not end the host
        let scheme = match (&self.pieces[..], &self.text[..]) {
            ([], []) => ["http://", "https://"].iter().find(|scheme| text.starts_with(**scheme)),
            ([LocationPart::Variable(RequestVariable::Scheme, _)], []) => {
                ["://"].iter().find(|scheme| text.starts_with(**scheme))
            }
            _ => None,
        };
        let scheme = scheme.map_or("", |scheme| scheme);
        self.text.extend_from_slice(scheme.as_bytes());
        for &byte in &text.as_bytes()[scheme.len()..] {
            match byte {
                b'?' => self.place = TargetPlace::Query,
                b'#' => {
                    self.query();
                    self.place = TargetPlace::Query;
                }
                b'/' if self.place == TargetPlace::Host => self.place = TargetPlace::Path,
                _ => {}
            }
            match byte {
                b'!'..=b'~' if !b"\"<>\\^`{|}".contains(&byte) => self.push(byte),
                byte => self.encoded(byte),
            }
        }
    }

    fn path(&mut self, path: &[u8]) {
        if self.place == TargetPlace::Host {
            self.place = TargetPlace::Path;
        }
        self.variable(path);
    }

    /// Appends a client's text, which never ends the part of the address it is in.
    fn variable(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.place.takes(byte) {
                true => self.push(byte),
                false => self.encoded(byte),
            }
        }
    }

    fn push(&mut self, byte: u8) {
        let is_second_slash = byte == b'/' && self.pieces.is_empty() && self.text == b"/";
        if !is_second_slash || self.keeps_slashes {
            self.text.push(byte);
        }
    }

    fn encoded(&mut self, byte: u8) {
        self.text.extend_from_slice(format!("%{byte:02X}").as_bytes());
    }

    fn query(&mut self) {
        if std::mem::take(&mut self.adds_query) {
            self.piece(LocationPart::Query);
        }
    }

    fn piece(&mut self, piece: LocationPart) {
        if !self.text.is_empty() {
            self.pieces.push(LocationPart::Text(std::mem::take(&mut self.text).into()));
        }
        self.pieces.push(piece);
    }

    fn end(mut self) -> Box<[LocationPart]> {
        self.query();
        // a question mark alone asks for an address without a query
        if self.text.ends_with(b"?") {
            self.text.pop();
        }
        if !self.text.is_empty() {
            self.pieces.push(LocationPart::Text(self.text.into()));
        }
        self.pieces.into()
    }
}

/// Writes an address for a client.
pub(crate) fn write(
    location: &[LocationPart],
    request: &Request<'_>,
    known: &KnownOfRequest,
    hosts: &[Host],
    url: &mut Vec<u8>,
) {
    let start = url.len();
    for part in location {
        match part {
            LocationPart::Variable(variable, place) => {
                known.push(variable, request, &[], |bytes| {
                    for &byte in bytes {
                        match place.takes(byte) {
                            true => url.push(byte),
                            false => push_encoded(url, byte),
                        }
                    }
                })
            }
            LocationPart::Text(text) => url.extend_from_slice(text),
            LocationPart::Host => asked_host(request, hosts, |host| url.extend_from_slice(host)),
            LocationPart::Path => {
                // a target without a path is not redirected
                if let Ok(normal) = request.path() {
                    path::encode(&normal, url);
                }
            }
            LocationPart::Query => {
                // The query is the client's, and is kept as it is.
                if let Some(query) = request.head.query {
                    url.push(b'?');
                    query.iter().for_each(|&byte| push_in_query(url, byte));
                }
            }
        }
    }
    // what the operator wrote may; of what is baked nothing else begins so
    let names_host =
        |part: &LocationPart| matches!(part, LocationPart::Text(text) if text.starts_with(b"//"));
    if !location.first().is_some_and(names_host) {
        path::keep_on_host(url, start);
    }
}

/// Appends a byte of a query as it may stand in a URL (RFC 3986 §3.4); clients send more than that.
fn push_in_query(url: &mut Vec<u8>, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%[]".contains(&byte) {
        url.push(byte);
    } else {
        push_encoded(url, byte);
    }
}

fn push_encoded(url: &mut Vec<u8>, byte: u8) {
    // Writing to a vector cannot fail.
    let _ = write!(url, "%{byte:02X}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Pattern, Template};

    /// The address for a client that asked `host` with `?q`.
    fn address_of(pattern: &str, to: &str, path: &str) -> String {
        let pattern = match pattern.strip_prefix('~') {
            Some(regex) => Pattern::regex(regex).unwrap(),
            None => Pattern::parse(pattern).unwrap(),
        };
        let rule = Redirect::new(pattern, Template::parse(to).unwrap(), 301).unwrap();
        let captures = rule.pattern().captures(path.as_bytes()).unwrap();
        let pieces = address(&rule, path.as_bytes(), &captures);
        let text = |piece: &LocationPart| match piece {
            LocationPart::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            LocationPart::Host => "host".to_owned(),
            LocationPart::Path => "/p".to_owned(),
            LocationPart::Query => "?q".to_owned(),
            LocationPart::Variable(variable, place) => format!("[{variable} {place:?}]"),
        };
        pieces.iter().map(text).collect()
    }

    #[test]
    fn variables_stay_in_their_part_of_the_address() {
        for (pattern, to, path, expected) in [
            ("/old/*", "/new/$1", "/old/a b", "/new/a%20b?q"),
            ("/old/*", "https://$host/new/$1", "/old/x/y", "https://host/new/x/y?q"),
            ("*", "https://www.example$path", "/ü", "https://www.example/%C3%BC?q"),
            ("*", "https://$host$path$query", "/a", "https://host/a?q"),
            ("/a/*", "/b?to=$1", "/a/x&y=z?", "/b?to=x%26y%3Dz%3F"),
            ("/a/*", "/b/$1#end", "/a/x#y", "/b/x%23y?q#end"),
            ("/~*", "https://$1.example/", "/~evil.com/", "https://evil.com%2F.example/?q"),
            ("~^/a(/.*)$", "/$1", "/a/evil.com", "/evil.com?q"),
            ("~^/a/(.*)$", "$path", "/a/x", "/a/x?q"),
            ("/a", "/ü?", "/a", "/%C3%BC"),
            ("/a/*", "/b/$1?", "/a/x?", "/b/x%3F"),
            ("/a", "https://b.example?", "/a", "https://b.example"),
            ("/a", "/b?#c", "/a", "/b?#c"),
            ("/a", "/b?c=d", "/a", "/b?c=d"),
            ("/a", "//other.example/", "/a", "//other.example/?q"),
            ("/a", "https://b.example", "/a", "https://b.example?q"),
            ("/a", "/100$$", "/a", "/100$?q"),
            (
                "/a",
                "$scheme://$cookie.t.example/$header.x?a=$class#$client",
                "/a",
                "[$scheme Host]://[$cookie.t Host].example/[$header.x Path]?a=[$class Query]#[$client Query]",
            ),
        ] {
            assert_eq!(address_of(pattern, to, path), expected, "{pattern} {to} {path}");
        }
    }
}
