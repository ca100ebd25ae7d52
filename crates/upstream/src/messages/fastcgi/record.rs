//! Records (FastCGI 1.0 §3.3) and names with values (§3.4).

/// The largest content of one record: what fits in two bytes, as a multiple of eight.
pub const MOST_CONTENT_BYTES: usize = 65_528;

/// The length of a record's header.
pub(super) const HEADER_BYTES: usize = 8;

/// The number of every request, since each connection has one at a time.
const REQUEST: u16 = 1;

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordKind {
    Begin = 1,
    Abort = 2,
    End = 3,
    Params = 4,
    Stdin = 5,
    Stdout = 6,
    Stderr = 7,
}

/// The header of a received record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) kind: RecordKind,
    pub(super) content: u16,
    pub(super) padding: u8,
}

impl RecordHeader {
    /// Parses a header, or returns what is wrong with it. Only types that an application sends are
    /// accepted.
    pub(super) fn parse(bytes: [u8; HEADER_BYTES]) -> Result<RecordHeader, &'static str> {
        let [version, kind, id_high, id_low, content_high, content_low, padding, _] = bytes;
        if version != 1 {
            return Err("it is not FastCGI 1");
        }
        let kind = match kind {
            3 => RecordKind::End,
            6 => RecordKind::Stdout,
            7 => RecordKind::Stderr,
            _ => return Err("a record has a type that no application sends"),
        };
        if u16::from_be_bytes([id_high, id_low]) != REQUEST {
            return Err("a record is for another request");
        }
        Ok(RecordHeader { kind, content: u16::from_be_bytes([content_high, content_low]), padding })
    }
}

fn header(kind: RecordKind, content: usize, out: &mut Vec<u8>) {
    let [high, low] = (content as u16).to_be_bytes();
    let [id_high, id_low] = REQUEST.to_be_bytes();
    out.extend_from_slice(&[1, kind as u8, id_high, id_low, high, low, 0, 0]);
}

/// Begins a request to a responder. With `keep`, the connection stays open after it.
pub(super) fn begin(keep: bool, out: &mut Vec<u8>) {
    header(RecordKind::Begin, 8, out);
    out.extend_from_slice(&[0, 1, u8::from(keep), 0, 0, 0, 0, 0]);
}

/// Writes a stream in records. Writes none without content, which would end the stream.
fn stream(kind: RecordKind, content: &[u8], out: &mut Vec<u8>) {
    for part in content.chunks(MOST_CONTENT_BYTES) {
        header(kind, part.len(), out);
        out.extend_from_slice(part);
    }
}

/// Appends some of the parameters.
pub(super) fn params(pairs: &[u8], out: &mut Vec<u8>) {
    stream(RecordKind::Params, pairs, out);
}

/// Appends the end of the parameters.
pub(super) fn end_of_params(out: &mut Vec<u8>) {
    header(RecordKind::Params, 0, out);
}

/// Appends some of a request's body.
pub fn stdin(data: &[u8], out: &mut Vec<u8>) {
    stream(RecordKind::Stdin, data, out);
}

/// Appends the end of the body, which must be sent even if there is none.
pub fn end_of_stdin(out: &mut Vec<u8>) {
    header(RecordKind::Stdin, 0, out);
}

/// Appends the record that gives the request up. The application still sends an end of the request.
pub fn abort(out: &mut Vec<u8>) {
    header(RecordKind::Abort, 0, out);
}

/// Appends a name with its value, which is given in parts.
pub(super) fn pair(name: &str, value: &[&[u8]], out: &mut Vec<u8>) {
    length(name.len(), out);
    length(value.iter().map(|part| part.len()).sum(), out);
    out.extend_from_slice(name.as_bytes());
    value.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a length. Heads are always far shorter than the largest that fits.
fn length(length: usize, out: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The names and values, and the body, that an application would get.
    pub(in crate::messages::fastcgi) fn received(bytes: &[u8]) -> (Vec<(String, String)>, Vec<u8>) {
        let (mut pairs, mut body, mut ended) = (Vec::new(), Vec::new(), 0);
        let mut rest = bytes;
        while let [1, kind, 0, 1, high, low, padding, 0, after @ ..] = rest {
            let content = usize::from(u16::from_be_bytes([*high, *low]));
            let (content, after) = after.split_at(content);
            match (*kind, content) {
                (1, content) => assert_eq!(content[..2], [0, 1]),
                (4 | 5, []) => ended += 1,
                (4, content) => pairs.extend_from_slice(content),
                (5, content) => body.extend_from_slice(content),
                other => panic!("{other:?}"),
            }
            rest = &after[usize::from(*padding)..];
        }
        assert!(rest.is_empty() && ended >= 1, "{rest:?}");
        let mut rest = pairs.as_slice();
        let mut found = Vec::new();
        let length = |rest: &mut &[u8]| {
            let (bytes, after) = rest.split_at(if rest[0] < 0x80 { 1 } else { 4 });
            *rest = after;
            match bytes {
                [short] => usize::from(*short),
                long => u32::from_be_bytes(long.try_into().unwrap()) as usize & 0x7fff_ffff,
            }
        };
        while !rest.is_empty() {
            let (name, value) = (length(&mut rest), length(&mut rest));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            found.push((text(&rest[..name]), text(&rest[name..name + value])));
            rest = &rest[name + value..];
        }
        (found, body)
    }

    #[test]
    fn streams_of_any_length_arrive() {
        for len in [0, 1, 127, 128, 65_527, 65_528, 65_529, 200_000] {
            let value: Vec<u8> = (0..len).map(|at| b'a' + (at % 26) as u8).collect();
            let mut pairs = Vec::new();
            pair("NAME", &[&value[..len / 2], &value[len / 2..]], &mut pairs);
            pair("EMPTY", &[], &mut pairs);
            let mut out = Vec::new();
            begin(true, &mut out);
            params(&pairs, &mut out);
            end_of_params(&mut out);
            stdin(&value, &mut out);
            end_of_stdin(&mut out);
            let (found, body) = received(&out);
            let text = String::from_utf8(value.clone()).unwrap();
            assert_eq!(found, [("NAME".to_owned(), text), ("EMPTY".to_owned(), String::new())]);
            assert_eq!(body, value);
        }
    }

    #[test]
    fn only_what_an_application_sends_is_taken() {
        let header = |bytes| RecordHeader::parse(bytes);
        assert_eq!(
            header([1, 6, 0, 1, 1, 2, 3, 0]),
            Ok(RecordHeader { kind: RecordKind::Stdout, content: 258, padding: 3 })
        );
        assert!(header([2, 6, 0, 1, 0, 0, 0, 0]).is_err());
        assert!(header([1, 6, 0, 2, 0, 0, 0, 0]).is_err());
        for kind in [0, 1, 2, 4, 5, 8, 9, 10, 11, 255] {
            assert!(header([1, kind, 0, 1, 0, 0, 0, 0]).is_err(), "{kind}");
        }
    }
}
