//! What must hold for any bytes given to an HTTP/2 connection, at either end.

use forebay_http2::frame::{FrameHeader, HEADER_BYTES, PREFACE, kind};
use forebay_http2::hpack::encode;
use forebay_http2::{
    Connection, DecodedFields, EndpointRole, Http2Event, Http2Limits, MessagePart,
};

/// Small, so that bounds are met soon.
fn limits() -> Http2Limits {
    let mut limits = Http2Limits {
        streams: 5,
        table_bytes: 200,
        extended_connect: true,
        ..Http2Limits::default()
    };
    limits.fields.bytes = 500;
    limits.fields.fields = 10;
    limits
}

/// Panics if something does not hold for `bytes`.
pub(crate) fn check(bytes: &[u8]) {
    let introduced = [&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0], bytes].concat();
    for (role, bytes) in [
        (EndpointRole::Server, bytes),
        (EndpointRole::Server, &introduced),
        (EndpointRole::Client, bytes),
    ] {
        let whole = play(role, bytes, bytes.len().max(1));
        for piece in [1, 7, 64] {
            assert_eq!(play(role, bytes, piece), whole, "in pieces of {piece}");
        }
    }
}

/// Events and frames that come of `bytes`, given in pieces of `piece`.
fn play(role: EndpointRole, bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let mut connection = match role {
        EndpointRole::Server => Connection::server(limits()),
        EndpointRole::Client => Connection::client(limits()),
    };
    let (mut fields, mut out, mut events) = (DecodedFields::default(), Vec::new(), Vec::new());
    if role == EndpointRole::Client {
        for ends in [true, false, true] {
            connection.open(&mut out, ends, false, |block| encode::field(block, b":path", b"/"));
        }
    }
    let mut held = Vec::new();
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        let mut used = 0;
        loop {
            let received = connection.receive(&held[used..], &mut fields, 0);
            assert!(received.used <= held.len() - used);
            used += received.used;
            assert!(connection.heap_bytes() <= limits().most_heap_bytes());
            let Some(event) = received.event else { break };
            check_fields(event, &fields);
            act(event, &mut connection, &mut out);
            note(event, &mut events);
        }
        held.drain(..used);
        let is_frame = !connection.is_introduced()
            || FrameHeader::read(&held).is_none_or(|header| header.len <= 16_384);
        assert!(is_frame && held.len() < HEADER_BYTES + 16_384, "waits for no frame");
    }
    while let Some(turn) = connection.next() {
        assert!(turn.most > 0 && connection.is_open(turn.stream));
        let Some(header) = connection.data(turn.stream, turn.most.min(9), false) else {
            assert!(connection.fault().is_some());
            break;
        };
        out.extend_from_slice(&header);
        out.extend_from_slice(&b"responses"[..turn.most.min(9) as usize]);
        if out.len() > 2000 {
            break;
        }
    }
    connection.flush(&mut out);
    check_frames(out.strip_prefix(PREFACE).unwrap_or(&out));
    (events, out)
}

/// What a server does: it answers at once.
fn act(event: Http2Event<'_>, connection: &mut Connection, out: &mut Vec<u8>) {
    match event {
        Http2Event::Request { stream, .. } | Http2Event::TooLarge { stream, .. } => {
            assert!(connection.is_open(stream));
            assert!(
                connection.head(out, stream, MessagePart::Head, |block| encode::status(block, 200))
            );
            connection.offer(stream);
        }
        Http2Event::Data { stream, bytes, ends } => {
            assert!(!bytes.is_empty() || ends);
            assert!(stream % 2 == 1);
        }
        Http2Event::Reset { stream, .. } => assert!(!connection.is_open(stream)),
        Http2Event::Failed(fault) => assert_eq!(connection.fault(), Some(fault)),
        _ => {}
    }
}

/// Data that came in pieces is put together.
fn note(event: Http2Event<'_>, events: &mut Vec<String>) {
    let Http2Event::Data { stream, bytes, ends } = event else {
        return events.push(format!("{event:?}"));
    };
    let (start, end) = (format!("data {stream}:"), if ends { "\nends" } else { "" });
    match events.last_mut() {
        Some(last) if last.starts_with(&start) && !last.ends_with("\nends") => {
            *last += &format!("{}{end}", bytes.escape_ascii());
        }
        _ => events.push(format!("{start}{}{end}", bytes.escape_ascii())),
    }
}

fn check_fields(event: Http2Event<'_>, fields: &DecodedFields) {
    if let Http2Event::Request { .. } | Http2Event::Response { .. } | Http2Event::Trailers { .. } =
        event
    {
        assert!(fields.fault().is_none() && !fields.is_over());
        assert!(fields.list().len() <= 10 && fields.values().len() <= 1000);
        for (name, value) in fields.iter() {
            assert!(!name.is_empty() && !name.iter().any(|b| b.is_ascii_uppercase() || *b <= b' '));
            assert!(!name.contains(&b':'));
            assert!(!value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')));
        }
        for field in fields.list() {
            assert!(fields.names().get(field.name.range()).is_some());
        }
    }
    if let Http2Event::Request { .. } = event {
        let is_connect = fields.method() == b"CONNECT";
        assert!(is_connect || matches!(fields.path(), [b'/', ..] | b"*"));
        assert!(is_connect || !fields.scheme().is_empty());
    }
}

/// Whole frames of sizes that everybody takes.
fn check_frames(mut out: &[u8]) {
    while let Some(header) = FrameHeader::read(out) {
        assert!(header.len <= 16_384 && header.kind <= kind::CONTINUATION);
        out = &out[HEADER_BYTES + header.len..];
    }
    assert!(out.is_empty());
}
