//! Requests as bytes: prepared once per group, appended to a buffer for each request.

use crate::mix::MixPath;
use crate::plan::{ClientGroup, StatedVersion};
use forebay_http2::hpack::encode;

/// The parts of a group's requests around the path.
#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate {
    prefix: Vec<u8>,
    /// The text after the path in HTTP/1.1, on a connection that is kept and in its last request.
    modern: RequestEndings,
    /// The same in HTTP/1.0.
    old: RequestEndings,
}

#[derive(Clone, Debug)]
struct RequestEndings {
    keep: Vec<u8>,
    last: Vec<u8>,
}

impl RequestTemplate {
    pub(crate) fn new(group: &ClientGroup) -> RequestTemplate {
        let end = |version: &str, connection: &str| {
            let mut end = format!(" HTTP/{version}\r\n");
            // a configured `Host` stands for a virtual host of the target
            if !group.headers.iter().any(|line| is_host(line)) {
                end.push_str(&format!("Host: {}\r\n", group.target.authority));
            }
            for header in &group.headers {
                end.push_str(header);
                end.push_str("\r\n");
            }
            if let Some(body) = &group.body {
                end.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            end.push_str(connection);
            end.push_str("\r\n");
            let mut end = end.into_bytes();
            end.extend_from_slice(group.body.as_deref().unwrap_or_default());
            end
        };
        RequestTemplate {
            prefix: format!("{} ", group.method()).into_bytes(),
            modern: RequestEndings {
                keep: end("1.1", ""),
                last: end("1.1", "Connection: close\r\n"),
            },
            old: RequestEndings {
                keep: end("1.0", "Connection: keep-alive\r\n"),
                last: end("1.0", ""),
            },
        }
    }

    /// Appends one request. With `last`, it asks for the connection to be closed.
    #[inline]
    pub(crate) fn append(&self, to: &mut Vec<u8>, path: &str, version: StatedVersion, last: bool) {
        let ends = if version == StatedVersion::Http11 { &self.modern } else { &self.old };
        to.extend_from_slice(&self.prefix);
        to.extend_from_slice(path.as_bytes());
        to.extend_from_slice(if last { &ends.last } else { &ends.keep });
    }
}

/// The encoded fields of HTTP/2 requests, without use of the dynamic table: those around the path,
/// and each path of the group's mix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    before: Vec<u8>,
    paths: Vec<Box<[u8]>>,
    behind: Vec<u8>,
}

impl Blocks {
    /// The blocks of a group; none if it speaks another version.
    pub(crate) fn new(group: &ClientGroup) -> Blocks {
        let mut blocks = Blocks::default();
        if group.version != StatedVersion::Http2 {
            return blocks;
        }
        let before = [
            (":method", group.method()),
            (":scheme", group.target.scheme()),
            (":authority", group.authority()),
        ];
        for (name, value) in before {
            encode::field(&mut blocks.before, name.as_bytes(), value.as_bytes());
        }
        let path = |entry: &MixPath| {
            let mut path = Vec::new();
            encode::field(&mut path, PATH, entry.path.as_bytes());
            path.into_boxed_slice()
        };
        blocks.paths = group.mix.entries().iter().map(path).collect();
        let lines = group.headers.iter().filter_map(|line| line.split_once(':'));
        for (name, value) in lines.filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            let name = name.trim().to_ascii_lowercase();
            encode::field(&mut blocks.behind, name.as_bytes(), value.trim().as_bytes());
        }
        if let Some(body) = &group.body {
            let length = body.len().to_string();
            encode::field(&mut blocks.behind, b"content-length", length.as_bytes());
        }
        blocks
    }

    /// Appends the fields of a request for an entry of the mix, given by its index.
    #[inline]
    pub(crate) fn append(&self, to: &mut Vec<u8>, place: usize) {
        to.extend_from_slice(&self.before);
        to.extend_from_slice(&self.paths[place]);
        to.extend_from_slice(&self.behind);
    }

    /// Appends the fields of a request for another path.
    pub(crate) fn append_path(&self, to: &mut Vec<u8>, path: &str) {
        to.extend_from_slice(&self.before);
        encode::field(to, PATH, path.as_bytes());
        to.extend_from_slice(&self.behind);
    }
}

const PATH: &[u8] = b":path";

fn is_host(line: &str) -> bool {
    line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("host"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::LoadTarget;

    #[test]
    fn a_request_has_its_lines() {
        let mut group = ClientGroup::new("a", LoadTarget::parse("http://127.0.0.1:81/").unwrap());
        group.headers.push("Cookie: tier=gold".to_owned());
        let template = RequestTemplate::new(&group);
        let text = |version, last| {
            let mut bytes = Vec::new();
            template.append(&mut bytes, "/a", version, last);
            String::from_utf8(bytes).unwrap()
        };
        let lines = "Host: 127.0.0.1:81\r\nCookie: tier=gold\r\n";
        assert_eq!(text(StatedVersion::Http11, false), format!("GET /a HTTP/1.1\r\n{lines}\r\n"));
        assert_eq!(
            text(StatedVersion::Http11, true),
            format!("GET /a HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")
        );
        assert_eq!(
            text(StatedVersion::Http10, false),
            format!("GET /a HTTP/1.0\r\n{lines}Connection: keep-alive\r\n\r\n")
        );
        assert_eq!(text(StatedVersion::Http10, true), format!("GET /a HTTP/1.0\r\n{lines}\r\n"));
    }

    #[test]
    fn fields_of_http_2_are_those_of_the_lines() {
        let mut group = ClientGroup::new("a", LoadTarget::parse("https://127.0.0.1:81/x").unwrap());
        group.version = StatedVersion::Http2;
        group.headers = ["Cookie: tier=gold", "hOST: a.example"].map(str::to_owned).to_vec();
        group.body = Some(b"x=1".to_vec());
        let (mut bytes, mut same, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        let blocks = Blocks::new(&group);
        blocks.append(&mut bytes, 0);
        blocks.append_path(&mut same, "/x");
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "a.example"),
            (":path", "/x"),
            ("cookie", "tier=gold"),
            ("content-length", "3"),
        ] {
            encode::field(&mut expected, name.as_bytes(), value.as_bytes());
        }
        assert_eq!((&bytes, &same), (&expected, &expected));
    }

    #[test]
    fn a_body_comes_with_its_length_and_a_method() {
        let mut group = ClientGroup::new("a", LoadTarget::parse("http://127.0.0.1:81/").unwrap());
        group.body = Some(b"x=1".to_vec());
        let text = |group: &ClientGroup| {
            let mut bytes = Vec::new();
            RequestTemplate::new(group).append(&mut bytes, "/a", StatedVersion::Http11, false);
            String::from_utf8(bytes).unwrap()
        };
        let rest = "/a HTTP/1.1\r\nHost: 127.0.0.1:81\r\nContent-Length: 3\r\n\r\nx=1";
        assert_eq!(text(&group), format!("POST {rest}"));
        group.method = Some("PUT".to_owned());
        assert_eq!(text(&group), format!("PUT {rest}"));
    }
}
