//! Tests of requests and responses (RFC 9113 §8).

use super::*;
use crate::fields::FieldLimits;
use crate::priority::Priority;
use crate::settings::id;

fn head(stream: u32, flags: u8, list: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, WHOLE | flags, stream, &block(list))
}

#[test]
fn a_request_has_head_body_and_trailers() {
    let mut end = End::server();
    let bytes =
        [post(1), data(1, b"abc", 0), data(1, b"def", 0), head(1, END, &[("x-sum", "1")]), get(3)];
    let events = end.get(&bytes.concat());
    let expected = ["1 request", "1 data abc", "1 data def", "1 trailers", "3 request ends"];
    assert_eq!(events, expected);
    assert_eq!(end.heads, ["POST / 0", "  1", "GET / 0"]);
}

#[test]
fn malformed_requests_are_reset() {
    let with = |more: &[(&'static str, &'static str)]| [&GET, more].concat();
    for list in [
        with(&[("X", "y")]),
        with(&[("connection", "close")]),
        with(&[("te", "gzip")]),
        with(&[(":path", "/")]),
        with(&[("x", "y"), (":authority", "a")]),
        with(&[("host", "b")]),
        with(&[("content-length", "1")]),
        GET[..2].to_vec(),
    ] {
        let mut end = End::server();
        end.assert_reset(&head(1, END, &list), 1, ErrorCode::PROTOCOL_ERROR);
        // the connection continues
        assert_eq!(end.get(&get(3)), ["3 request ends"]);
    }
}

#[test]
fn a_body_is_as_long_as_its_head_says() {
    let posted = |length| head(1, 0, &[&POST[..], &[("content-length", length)]].concat());
    let end_of = |bytes: &[u8]| {
        let mut end = End::server();
        end.assert_reset(bytes, 1, ErrorCode::PROTOCOL_ERROR);
    };
    end_of(&[posted("3"), data(1, b"ab", END)].concat());
    end_of(&[posted("3"), data(1, b"abcd", END)].concat());
    end_of(&[posted("3"), data(1, b"ab", 0), data(1, b"cd", 0)].concat());
    end_of(&[posted("3"), data(1, b"ab", 0), head(1, END, &[])].concat());
    let mut end = End::server();
    let bytes = [posted("3"), data(1, b"ab", 0), data(1, b"c", END)].concat();
    assert_eq!(end.get(&bytes), ["1 request", "1 data ab", "1 data c ends"]);
    let mut end = End::server();
    let bytes = [posted("0"), data(1, b"", END)].concat();
    assert_eq!(end.get(&bytes), ["1 request", "1 data  ends"]);
}

#[test]
fn trailers_end_the_message_and_have_no_pseudo_fields() {
    for trailers in [head(1, 0, &[("a", "b")]), head(1, END, &[(":path", "/")])] {
        let mut end = End::server();
        end.assert_reset(&[post(1), trailers].concat(), 1, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_head_that_is_too_large_is_told_and_the_next_is_read() {
    let limits =
        Http2Limits { fields: FieldLimits { bytes: 300, fields: 10 }, ..Http2Limits::default() };
    let large = "x".repeat(300);
    let mut end = End::server_with(limits, &[]);
    let bytes = [head(1, END, &[&GET[..], &[("a", &large)]].concat()), get(3)].concat();
    assert_eq!(end.get(&bytes), ["1 too large ends", "3 request ends"]);
    assert!(end.answer(1, MessagePart::Last));
    // twice the limit and a frame: that counts as a flood
    let begin = frame(kind::HEADERS, 0, 5, &block(&GET));
    let more = frame(kind::CONTINUATION, 0, 5, &[0; 9000]);
    end.assert_failed(&[begin, more.clone(), more].concat(), ErrorCode::ENHANCE_YOUR_CALM);
    // trailers are limited as well
    let mut end = End::server_with(limits, &[]);
    let bytes = [post(1), head(1, END, &[("a", &large)])].concat();
    end.assert_reset(&bytes, 1, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut end = End::server_with(Http2Limits { streams: 2, ..Http2Limits::default() }, &[]);
    end.get(&[get(1), get(3)].concat());
    end.assert_reset(&get(5), 5, ErrorCode::REFUSED_STREAM);
    assert!(end.answer(1, MessagePart::Last));
    assert_eq!(end.get(&get(7)), ["7 request ends"]);
    assert_eq!(end.connection.open_streams(), 2);
}

#[test]
fn heads_come_in_order() {
    let mut end = End::server();
    end.get(&post(1));
    assert!(end.answer(1, MessagePart::Informational) && end.answer(1, MessagePart::Informational));
    assert!(end.answer(1, MessagePart::Head));
    assert!(!end.answer(1, MessagePart::Informational) && !end.answer(1, MessagePart::Head));
    assert!(end.answer(1, MessagePart::Last), "trailers");
    assert!(!end.answer(1, MessagePart::Last) && !end.answer(99, MessagePart::Head));
    let flags: Vec<_> = end.sent().iter().map(|frame| frame.flags).collect();
    assert_eq!(flags, [WHOLE, WHOLE, WHOLE, WHOLE | END]);
    // the request is not complete
    assert!(end.connection.is_open(1));
    assert_eq!(end.get(&data(1, b"x", END)), ["1 data x ends"]);
    assert!(!end.connection.is_open(1));
}

#[test]
fn a_head_larger_than_a_frame_is_continued() {
    let mut end = End::server();
    end.get(&get(1));
    let value = "\0".repeat(40_000);
    let write = |block: &mut Vec<u8>| {
        encode::status(block, 200);
        encode::field(block, b"a", value.as_bytes());
    };
    end.connection.head(&mut end.out, 1, MessagePart::Last, write);
    let sent = end.sent();
    let shape: Vec<_> = sent.iter().map(|f| (f.kind, f.flags, f.payload.len())).collect();
    let last = shape[2].2;
    let expected = [
        (kind::HEADERS, END, 16_384),
        (kind::CONTINUATION, 0, 16_384),
        (kind::CONTINUATION, WHOLE, last),
    ];
    assert_eq!(shape, expected);
    let mut whole = Vec::new();
    write(&mut whole);
    assert_eq!(sent.iter().flat_map(|frame| frame.payload.clone()).collect::<Vec<_>>(), whole);
}

#[test]
fn a_smaller_table_is_acknowledged_once() {
    let mut end = End::server_with(Http2Limits::default(), &[(1, 100)]);
    end.get(&[get(1), get(3)].concat());
    end.answer(1, MessagePart::Last);
    end.answer(3, MessagePart::Last);
    let payloads: Vec<_> = end.sent().into_iter().map(|frame| frame.payload).collect();
    assert_eq!(payloads, [vec![0x20, 0x88], vec![0x88]]);
    let mut end = End::server_with(Http2Limits::default(), &[(1, 65_536)]);
    end.get(&get(1));
    end.answer(1, MessagePart::Last);
    assert_eq!(end.sent()[0].payload, [0x88]);
}

#[test]
fn priorities_are_of_the_head_unless_an_update_says_otherwise() {
    let mut end = End::server();
    let with = |stream, value| head(stream, END, &[&GET[..], &[("priority", value)]].concat());
    let update = |stream: u32, value: &[u8]| {
        frame(kind::PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value].concat())
    };
    let bytes = [
        get(1),
        with(3, "u=1"),
        update(5, b"u=6"),
        update(5, b"u=7, i"),
        update(9, b"u=0"),
        with(5, "u=2"),
        update(3, b"u=2"),
        with(7, "i"),
        get(9),
    ];
    assert_eq!(end.get(&bytes.concat()).len(), 5);
    let of = |stream| {
        let Priority { urgency, is_incremental } =
            end.connection.streams.get(stream).unwrap().priority;
        (urgency, is_incremental)
    };
    let all = [1, 3, 5, 7, 9].map(of);
    assert_eq!(all, [(3, true), (2, false), (7, true), (3, true), (0, false)]);
    assert!(end.connection.early.is_empty());
}

/// Frames a head that is in the output already, with a body after it.
fn in_place(client: &[(u16, u32)], fields: &[u8]) -> (Vec<Sent>, Vec<u8>) {
    let mut end = End::server_with(Http2Limits::default(), client);
    end.get(&get(1));
    end.connection.flush(&mut end.out);
    let start = end.out.len();
    end.out.extend_from_slice(&[0; HEADER_BYTES]);
    end.out.extend_from_slice(fields);
    let place = start..end.out.len();
    end.out.extend_from_slice(b"body");
    let framed = end.connection.head_at(&mut end.out, 1, MessagePart::Head, place.clone()).unwrap();
    let body = end.out.split_off(framed);
    assert_eq!(end.connection.head_at(&mut end.out, 1, MessagePart::Head, place), None);
    (parse(&end.out[start..]), body)
}

#[test]
fn a_head_becomes_frames_where_it_stands() {
    let (sent, body) = in_place(&[], b"fields");
    assert_eq!(body, b"body");
    let [head] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((head.kind, head.flags, head.stream), (kind::HEADERS, WHOLE, 1));
    assert_eq!(head.payload, b"fields");
    // without a table, which is announced first
    let (sent, body) = in_place(&[(id::HEADER_TABLE_SIZE, 0)], b"fields");
    assert_eq!((&sent[0].payload[..], &body[..]), (&b"\x20fields"[..], &b"body"[..]));
    // larger than a frame
    let (sent, body) = in_place(&[], &[7; 40_000]);
    let sizes: Vec<_> = sent.iter().map(|sent| (sent.kind, sent.payload.len())).collect();
    let continued = kind::CONTINUATION;
    assert_eq!(sizes, [(kind::HEADERS, 16_384), (continued, 16_384), (continued, 7232)]);
    assert_eq!(sent.iter().map(|sent| sent.flags).collect::<Vec<_>>(), [0, 0, WHOLE]);
    assert_eq!(body, b"body");
}

#[test]
fn a_head_that_stands_nowhere_is_none() {
    let mut end = End::server();
    end.get(&get(1));
    let mut out = vec![0; HEADER_BYTES];
    for place in [0..HEADER_BYTES + 1, 1..HEADER_BYTES] {
        assert_eq!(end.connection.head_at(&mut out, 1, MessagePart::Last, place), None);
    }
    assert!(end.answer(1, MessagePart::Last), "it may still have one");
}

/// Extended CONNECT is allowed only for clients that received the setting (RFC 8441 §3 and §4).
#[test]
fn an_extended_connect_is_for_who_was_told_of_it() {
    let list = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat"),
        (":authority", "a"),
    ];
    let enabled = |extended_connect| {
        let mut server =
            Connection::server(Http2Limits { extended_connect, ..Http2Limits::default() });
        let mut out = Vec::new();
        server.flush(&mut out);
        let mut client = Connection::client(Http2Limits::default());
        client.receive(&out, &mut DecodedFields::default(), 0);
        client.peer().extended_connect
    };
    assert_eq!((enabled(false), enabled(true)), (false, true));
    End::server().assert_reset(&head(1, 0, &list), 1, ErrorCode::PROTOCOL_ERROR);
    let limits = Http2Limits { extended_connect: true, ..Http2Limits::default() };
    let mut end = End::server_with(limits, &[]);
    let bytes = [head(1, 0, &list), data(1, b"abc", 0), data(1, b"", END)].concat();
    assert_eq!(end.get(&bytes), ["1 request", "1 data abc", "1 data  ends"]);
    assert_eq!(end.fields.protocol(), Some(&b"websocket"[..]));
}
