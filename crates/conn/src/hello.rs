//! The hello with which a client of TLS begins, as far as it names a server (RFC 8446 §4.1.2, RFC 6066 §3): a
//! connection whose bytes are passed on is told apart by that name, and nothing of TLS is spoken here.
//!
//! A hello may lie in several records, and a record may come in any pieces. With an encrypted hello (ECH) the name is
//! that of the outer one, which is all there is to be seen.

/// The longest hello that is looked at. Keys that withstand quantum computers make hellos of 2 KB.
const MOST_BYTES: usize = 16 * 1024;

/// How much is received of a hello, its records included: this must fit into the buffer of a loop
/// together with as much again.
const MOST_RECEIVED: usize = 2 * MOST_BYTES;

/// The longest name in the DNS (RFC 1035 §2.3.4).
const MOST_NAME_BYTES: usize = 253;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// The beginning of a hello; more must be received.
    Partial,
    /// A whole hello, and the name in it, in small letters and without a dot at its end.
    Hello(Option<Box<str>>),
    /// No hello, or a longer one than there should be.
    Other,
}

/// The bytes are no hello of TLS.
struct NotHello;

/// The part of a hello that is left to be read.
struct HelloBytes<'h>(&'h [u8]);

impl<'h> HelloBytes<'h> {
    fn take(&mut self, bytes: usize) -> Option<&'h [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<&'h [u8]> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    fn long(&mut self) -> Option<&'h [u8]> {
        let length = self.take(2)?;
        self.take(usize::from(u16::from_be_bytes([length[0], length[1]])))
    }
}

impl FirstBytes {
    /// Looks at all that was received.
    pub fn look(received: &[u8]) -> FirstBytes {
        match message(received) {
            Ok(None) if received.len() > MOST_RECEIVED => FirstBytes::Other,
            Ok(None) => FirstBytes::Partial,
            Ok(Some(hello)) => FirstBytes::Hello(server_name(&hello)),
            Err(NotHello) => FirstBytes::Other,
        }
    }
}

/// The message of the hello, put together from its records; `None` if it is not whole.
fn message(mut rest: &[u8]) -> Result<Option<Vec<u8>>, NotHello> {
    let mut message = Vec::new();
    loop {
        // a record with a part of a handshake, of whichever version
        if !rest.iter().zip([22, 3]).all(|(byte, expected)| *byte == expected) {
            return Err(NotHello);
        }
        let Some((head, after)) = rest.split_at_checked(5) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        // handshakes have no empty records (RFC 8446 §5.1)
        if length == 0 {
            return Err(NotHello);
        }
        let (part, is_whole) = match after.split_at_checked(length) {
            Some((part, _)) => (part, true),
            None => (after, false),
        };
        message.extend_from_slice(part);
        if message.first().is_some_and(|kind| *kind != 1) {
            return Err(NotHello);
        }
        if let Some(head) = message.get(..4) {
            let end =
                4 + (usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]));
            if end > MOST_BYTES {
                return Err(NotHello);
            }
            if message.len() >= end {
                message.truncate(end);
                message.drain(..4);
                return Ok(Some(message));
            }
        }
        if !is_whole {
            return Ok(None);
        }
        rest = &after[length..];
    }
}

/// The name that a hello asks for; `None` if it asks for none or for several, or cannot be read. A server
/// may choose another of several names than this code would (RFC 8446 §4.2, RFC 6066 §3).
fn server_name(hello: &[u8]) -> Option<Box<str>> {
    let mut rest = HelloBytes(hello);
    // the version, a random number, the session, suites, ways to compress
    rest.take(34)?;
    rest.short()?;
    rest.long()?;
    rest.short()?;
    let mut extensions = HelloBytes(rest.long()?);
    let mut named = None;
    while !extensions.0.is_empty() {
        let kind = extensions.take(2)?;
        let extension = extensions.long()?;
        if kind == [0, 0] {
            if named.is_some() {
                return None;
            }
            let mut names = HelloBytes(HelloBytes(extension).long()?);
            let is_host = names.take(1)? == [0];
            named = Some(names.long().filter(|_| is_host && names.0.is_empty())?);
        }
    }
    named.and_then(host)
}

/// A name in the form in which names are compared.
fn host(name: &[u8]) -> Option<Box<str>> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_of_host = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = (1..=MOST_NAME_BYTES).contains(&name.len()) && name.iter().all(is_of_host);
    let has_labels = !name.split(|byte| *byte == b'.').any(<[u8]>::is_empty);
    let text = std::str::from_utf8(name).ok().filter(|_| is_name && has_labels)?;
    Some(text.to_ascii_lowercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of a hello that asks for this name.
    fn hello_for(name: Option<&[u8]>) -> Vec<u8> {
        let names: Vec<_> = name.into_iter().collect();
        hello_with(&names.iter().map(std::slice::from_ref).collect::<Vec<_>>())
    }

    /// The message of a hello with these names, in an extension for each list.
    fn hello_with(lists: &[&[&[u8]]]) -> Vec<u8> {
        let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
        let mut extensions = [&[0, 43][..], &sized(&[2, 3, 4])].concat();
        for names in lists {
            let names = names.iter().map(|name| [&[0][..], &sized(name)].concat());
            let list = sized(&names.collect::<Vec<_>>().concat());
            extensions.extend([&[0, 0][..], &sized(&list)].concat());
        }
        extensions.extend([&[0, 51][..], &sized(&[1; 600])].concat());
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([2, 9, 9, 0, 4, 1, 2, 3, 4, 1, 0]);
        body.extend(sized(&extensions));
        let length = (body.len() as u32).to_be_bytes();
        [&[1][..], &length[1..], &body].concat()
    }

    /// A message in records of at most `most` bytes.
    fn records(message: &[u8], most: usize) -> Vec<u8> {
        let record =
            |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        message.chunks(most).flat_map(record).collect()
    }

    fn named(name: &str) -> FirstBytes {
        FirstBytes::Hello(Some(name.into()))
    }

    #[test]
    fn a_hello_may_lie_in_any_records_and_come_in_any_pieces() {
        let message = hello_for(Some(b"Db.Example."));
        for most in [1, 3, 100, 16 * 1024] {
            let sent = records(&message, most);
            assert_eq!(FirstBytes::look(&sent), named("db.example"), "{most}");
            let more = [&sent[..], b"\x17\x03\x03 what follows"].concat();
            assert_eq!(FirstBytes::look(&more), named("db.example"), "{most}");
            for cut in 0..sent.len() {
                assert_eq!(FirstBytes::look(&sent[..cut]), FirstBytes::Partial, "{most} {cut}");
            }
        }
    }

    #[test]
    fn a_hello_may_ask_for_no_name() {
        assert_eq!(FirstBytes::look(&records(&hello_for(None), 9)), FirstBytes::Hello(None));
        for odd in [&b""[..], b".", b"a b", b"\xff", &[b'a'; 254]] {
            let sent = records(&hello_for(Some(odd)), 16 * 1024);
            assert_eq!(FirstBytes::look(&sent), FirstBytes::Hello(None), "{odd:?}");
        }
    }

    #[test]
    fn of_two_names_none_counts() {
        let (one, other) = (&b"a.example"[..], &b"b.example"[..]);
        for lists in [&[&[one][..], &[other]][..], &[&[one], &[one]], &[&[one, other]]] {
            let sent = records(&hello_with(lists), 16 * 1024);
            assert_eq!(FirstBytes::look(&sent), FirstBytes::Hello(None));
        }
    }

    #[test]
    fn other_beginnings_are_found_out_by_their_first_bytes() {
        for other in [
            &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
            b"GET / HTTP/1.1\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\x16\x02",
            b"\x16\x03\x01\0\0",
            // a handshake, and no hello
            b"\x16\x03\x01\0\x04\x02\0\0\0",
            // longer than any
            b"\x16\x03\x01\0\x04\x01\x01\0\0",
        ] {
            assert_eq!(FirstBytes::look(other), FirstBytes::Other, "{other:?}");
        }
    }
}
