//! The server name in a client hello, with which TLS begins (RFC 8446 §4.1.2, RFC 6066 §3).

use super::{Holds, MOST_HOST, SegmentConditions, is_of_host};

/// How many extensions of a hello are read at most.
pub const MOST_EXTENSIONS: usize = 40;

/// The beginning of a TLS connection, as far as it names the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstHello<'s> {
    /// The name, in small letters.
    pub name: &'s [u8],
}

/// The bytes that are still to be read.
struct HelloReader<'s>(&'s [u8]);

impl<'s> HelloReader<'s> {
    fn take(&mut self, bytes: usize) -> Option<&'s [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take(1).map(|one| usize::from(one[0]))
    }

    fn number(&mut self) -> Option<usize> {
        self.take(2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])))
    }
}

impl<'s> FirstHello<'s> {
    /// Reads the name in the data of a first segment. `None` if the data does not begin with a hello, or if
    /// the whole name does not lie in the segment in plain form. What follows the name may be missing.
    pub fn read(data: &'s [u8]) -> Option<FirstHello<'s>> {
        let mut rest = HelloReader(data);
        // a handshake record, and in it a hello; the versions in both are ignored
        let record = rest.take(5)?;
        let head = rest.take(4)?;
        if record[..2] != [22, 3] || head[0] != 1 {
            return None;
        }
        let in_record = usize::from(u16::from_be_bytes([record[3], record[4]]));
        let in_hello =
            usize::from(head[1]) << 16 | usize::from(u16::from_be_bytes([head[2], head[3]]));
        rest.0 = &rest.0[..rest.0.len().min(in_record.checked_sub(4)?).min(in_hello)];
        // version and random number
        rest.take(34)?;
        let session = rest.byte().filter(|bytes| *bytes <= 32)?;
        rest.take(session)?;
        let suites = rest.number()?;
        rest.take(suites)?;
        let compressions = rest.byte()?;
        rest.take(compressions)?;
        let extensions = rest.number()?;
        rest.0 = &rest.0[..rest.0.len().min(extensions)];
        for _ in 0..MOST_EXTENSIONS {
            let (kind, bytes) = (rest.number()?, rest.number()?);
            let extension = rest.take(bytes)?;
            if kind == 0 {
                return name(extension).map(|name| FirstHello { name });
            }
        }
        None
    }
}

/// The extension's one name.
fn name(extension: &[u8]) -> Option<&[u8]> {
    let mut rest = HelloReader(extension);
    let list = rest.number()?;
    let kind = rest.byte()?;
    let bytes = rest.number()?;
    let name = rest.take(bytes)?;
    let is_one = kind == 0 && rest.0.is_empty() && list == bytes + 3;
    let is_plain =
        (1..=MOST_HOST).contains(&bytes) && name.iter().all(is_of_host) && name[bytes - 1] != b'.';
    (is_one && is_plain).then_some(name)
}

impl SegmentConditions {
    /// Whether the conditions hold, as far as a hello shows: it shows only the host of a request.
    pub fn hold_of_hello(&self, hello: &FirstHello<'_>) -> Holds {
        let host = self.hosts.as_ref().map_or(Holds::Yes, |hosts| hosts.hold(hello.name));
        let asks = [&self.methods, &self.paths, &self.cookies].into_iter().any(Option::is_some);
        let more = self.needs_more || asks;
        host.min(if more { Holds::CannotTell } else { Holds::Yes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with these extensions, each a number and its content.
    fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let of = |(kind, held): &(u16, &[u8])| {
            [&kind.to_be_bytes()[..], &(held.len() as u16).to_be_bytes(), held].concat()
        };
        let extensions: Vec<u8> = extensions.iter().flat_map(of).collect();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([2, 9, 9, 0, 4, 1, 2, 3, 4, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut all = vec![22, 3, 1];
        all.extend((body.len() as u16 + 4).to_be_bytes());
        all.extend([1, 0]);
        all.extend((body.len() as u16).to_be_bytes());
        all.extend(body);
        all
    }

    fn named(name: &[u8]) -> Vec<u8> {
        let length = name.len() as u16;
        [&(length + 3).to_be_bytes()[..], &[0], &length.to_be_bytes(), name].concat()
    }

    fn read(data: &[u8]) -> Option<String> {
        FirstHello::read(data).map(|hello| String::from_utf8(hello.name.to_vec()).unwrap())
    }

    #[test]
    fn the_name_is_found_wherever_it_stands() {
        let name = named(b"a.example");
        let found = Some("a.example".to_owned());
        assert_eq!(read(&hello(&[(0, &name)])), found);
        let behind = hello(&[(51, &[1; 600]), (0, &name), (16, &[2; 900])]);
        assert_eq!(read(&behind), found);
        // the rest of the record is in the next segment
        let whole = 9 + 34 + 11 + 2 + 604 + 4 + name.len();
        assert_eq!(read(&behind[..whole]), found);
        for bytes in 0..whole {
            assert_eq!(read(&behind[..bytes]), None, "{bytes}");
        }
    }

    #[test]
    fn what_is_not_plain_is_not_told() {
        for name in [&b""[..], b"A.example", b"a.example.", b"a\0b", &[b'a'; 64]] {
            assert_eq!(read(&hello(&[(0, &named(name))])), None, "{name:?}");
        }
        assert!(read(&hello(&[(0, &named(&[b'a'; 63]))])).is_some());
        let two = [named(b"a"), named(b"b")].concat();
        assert_eq!(read(&hello(&[(0, &two)])), None);
        assert_eq!(read(&hello(&[])), None);
        let many: Vec<(u16, &[u8])> = (1..=MOST_EXTENSIONS as u16).map(|n| (n, &[][..])).collect();
        let name = named(b"a");
        assert_eq!(read(&hello(&[&many[..], &[(0, &name[..])]].concat())), None);
        assert!(read(&hello(&[&many[1..], &[(0, &name[..])]].concat())).is_some());
        for (at, byte) in [(0, 23), (1, 2), (5, 2)] {
            let mut other = hello(&[(0, &name)]);
            other[at] = byte;
            assert_eq!(read(&other), None, "{at}");
        }
    }
}
