//! Tests of frames in forbidden places or of wrong sizes (RFC 9113 §3.4, §4, §5.1, §6).

use super::*;

#[test]
fn the_preface_and_settings_come_first() {
    let mut end = End::of(Connection::server(Http2Limits::default()));
    assert!(end.take(&PREFACE[..10]) == (vec![], 0) && !end.connection.is_introduced());
    end.assert_failed(b"GET / HTTP/1.1\r\n\r\n______", ErrorCode::PROTOCOL_ERROR);
    let mut end = End::of(Connection::server(Http2Limits::default()));
    end.assert_failed(b"PRI * HTTP/1.1", ErrorCode::PROTOCOL_ERROR);
    let mut end = End::of(Connection::server(Http2Limits::default()));
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    end.assert_failed(&[PREFACE.to_vec(), ping].concat(), ErrorCode::PROTOCOL_ERROR);
    let mut end = End::of(Connection::server(Http2Limits::default()));
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    end.assert_failed(&[PREFACE.to_vec(), ack].concat(), ErrorCode::PROTOCOL_ERROR);
    assert!(End::server().connection.is_introduced());
}

#[test]
fn what_we_allow_is_said_at_once() {
    let mut end =
        End::of(Connection::server(Http2Limits { table_bytes: 0, ..Http2Limits::default() }));
    let sent = end.sent();
    let said: Vec<_> =
        sent[0].payload.chunks(6).map(|one| (one[1], frame::number31(&one[2..]))).collect();
    assert_eq!(said, [(4, 256 * 1024), (6, 16 * 1024), (1, 0), (3, 128), (9, 1)]);
    assert_eq!(sent[1].payload, (1024 * 1024 - 65_535u32).to_be_bytes());
    assert_eq!(sent.len(), 2);
}

#[test]
fn frames_on_the_wrong_stream_end_the_connection() {
    for (kind, stream, payload) in [
        (kind::DATA, 0, &b"x"[..]),
        (kind::HEADERS, 0, &[0x82]),
        (kind::HEADERS, 2, &[0x82]),
        (kind::PRIORITY, 0, &[0; 5]),
        (kind::RST_STREAM, 0, &[0; 4]),
        (kind::SETTINGS, 1, &[]),
        (kind::PING, 1, &[0; 8]),
        (kind::GOAWAY, 1, &[0; 8]),
        (kind::CONTINUATION, 0, &[0x82]),
        (kind::CONTINUATION, 1, &[0x82]),
        (kind::PUSH_PROMISE, 1, &[0, 0, 0, 2, 0x82]),
        (kind::PRIORITY_UPDATE, 1, &[0, 0, 0, 1]),
        (kind::PRIORITY_UPDATE, 0, &[0, 0, 0, 0]),
        (kind::PRIORITY_UPDATE, 0, &[0, 0, 0, 2]),
    ] {
        let mut end = End::server();
        end.assert_failed(&frame(kind, WHOLE, stream, payload), ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn frames_of_the_wrong_size_end_the_connection() {
    for (kind, flags, stream, len) in [
        (kind::RST_STREAM, 0, 1, 3),
        (kind::RST_STREAM, 0, 1, 5),
        (kind::SETTINGS, 0, 0, 5),
        (kind::SETTINGS, flag::ACK, 0, 6),
        (kind::PING, 0, 0, 7),
        (kind::PING, flag::ACK, 0, 9),
        (kind::GOAWAY, 0, 0, 7),
        (kind::WINDOW_UPDATE, 0, 0, 3),
        (kind::WINDOW_UPDATE, 0, 1, 5),
        (kind::HEADERS, WHOLE | flag::PRIORITY, 3, 4),
        (kind::PRIORITY, 0, 3, 4),
        (kind::PRIORITY_UPDATE, 0, 0, 3),
        (0x77, 0, 0, 16_385),
        (kind::DATA, 0, 1, 16_385),
        (kind::HEADERS, 0, 1, 16_385),
    ] {
        let mut end = End::server();
        end.get(&post(1));
        let bytes = frame(kind, flags, stream, &vec![0; len]);
        end.assert_failed(&bytes, ErrorCode::FRAME_SIZE_ERROR);
    }
    // an error on an open stream ends only that stream
    let mut end = End::server();
    end.get(&post(1));
    end.assert_reset(&frame(kind::PRIORITY, 0, 1, &[0; 4]), 1, ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn padding_is_not_more_than_the_payload() {
    for (kind, payload) in [
        (kind::DATA, &[][..]),
        (kind::DATA, &[1]),
        (kind::DATA, &[5, 1, 2, 3]),
        (kind::HEADERS, &[]),
        (kind::HEADERS, &[5, 0x82]),
    ] {
        let mut end = End::server();
        end.get(&post(1));
        let stream = if kind == kind::DATA { 1 } else { 3 };
        let bytes = frame(kind, WHOLE | flag::PADDED, stream, payload);
        end.assert_failed(&bytes, ErrorCode::PROTOCOL_ERROR);
    }
    let mut end = End::server();
    let padded = [&[3][..], &block(&POST), &[0; 3]].concat();
    end.get(&frame(kind::HEADERS, WHOLE | flag::PADDED, 1, &padded));
    let events = end.get(&data(1, b"\x02abc\0\0", flag::PADDED));
    assert_eq!(events, ["1 data abc"]);
    assert_eq!(end.get(&data(1, b"\x02\0\0", flag::PADDED | END)), ["1 data  ends"]);
}

#[test]
fn idle_streams_get_heads_and_priorities_only() {
    for bytes in [
        data(1, b"x", 0),
        rst(1, ErrorCode::CANCEL),
        window_update(1, 1),
        window_update(2, 1),
        rst(2, ErrorCode::CANCEL),
        data(2, b"x", 0),
    ] {
        End::server().assert_failed(&bytes, ErrorCode::PROTOCOL_ERROR);
    }
    let mut end = End::server();
    let priority = frame(kind::PRIORITY, 0, 5, &[0, 0, 0, 1, 7]);
    assert_eq!(end.get(&[priority, get(1)].concat()), ["1 request ends"]);
}

#[test]
fn streams_count_up() {
    let mut end = End::server();
    end.get(&get(5));
    end.assert_failed(&get(3), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn what_follows_the_end_of_a_message_is_refused() {
    for bytes in [data(1, b"x", 0), get(1)] {
        let mut end = End::server();
        end.get(&get(1));
        end.assert_reset(&bytes, 1, ErrorCode::STREAM_CLOSED);
    }
    let mut end = End::server();
    end.get(&get(1));
    end.assert_failed(&frame(kind::CONTINUATION, WHOLE, 1, &[0x82]), ErrorCode::PROTOCOL_ERROR);
    // these are allowed
    let mut end = End::server();
    end.get(&get(1));
    assert_eq!(end.get(&window_update(1, 5)), Vec::<String>::new());
    assert_eq!(end.get(&rst(1, ErrorCode::CANCEL)), ["1 reset 8"]);
}

#[test]
fn what_follows_the_end_of_a_stream_is_refused() {
    for bytes in [data(1, b"x", 0), get(1)] {
        let mut end = End::server();
        end.get(&get(1));
        assert!(end.answer(1, MessagePart::Last) && !end.connection.is_open(1));
        end.assert_failed(&bytes, ErrorCode::STREAM_CLOSED);
        // the client has reset it
        let mut end = End::server();
        end.get(&[get(1), rst(1, ErrorCode::CANCEL)].concat());
        end.assert_reset(&bytes, 1, ErrorCode::STREAM_CLOSED);
    }
    // late frames on other streams are allowed
    let mut end = End::server();
    end.get(&get(1));
    end.answer(1, MessagePart::Last);
    let late = [window_update(1, 1), rst(1, ErrorCode::CANCEL), get(3)].concat();
    assert_eq!(end.get(&late), ["3 request ends"]);
}

#[test]
fn what_was_on_its_way_to_a_stream_that_we_reset_is_ignored() {
    let mut end = End::server();
    end.get(&post(1));
    end.connection.reset(1, ErrorCode::REFUSED_STREAM);
    end.sent();
    // its trailers add a field to the table, which the next request uses
    let trailers = frame(kind::HEADERS, WHOLE | END, 1, b"\x40\x01a\x01b");
    let mut next = block(&GET);
    next.push(0xbe);
    let next = frame(kind::HEADERS, WHOLE | END, 3, &next);
    let events = end.get(&[data(1, b"x", 0), trailers, next].concat());
    assert_eq!(events, ["3 request ends"]);
    assert_eq!(end.fields.iter().last(), Some((&b"a"[..], &b"b"[..])));
    assert_eq!(end.sent(), []);
}

#[test]
fn a_stream_given_up_within_a_frame_loses_the_rest_of_it() {
    let mut end = End::server();
    end.get(&post(1));
    let bytes = [data(1, b"abcdef", 0), get(3)].concat();
    let (events, used) = end.take(&bytes[..11]);
    assert_eq!((events, used), (vec!["1 data ab".to_owned()], 11));
    end.connection.reset(1, ErrorCode::CANCEL);
    assert_eq!(end.get(&bytes[11..]), ["3 request ends"]);
}

#[test]
fn a_header_block_is_not_interrupted() {
    let begin = frame(kind::HEADERS, END, 1, &block(&GET)[..2]);
    let rest = frame(kind::CONTINUATION, WHOLE, 1, &block(&GET)[2..]);
    let mut end = End::server();
    assert_eq!(end.get(&begin), Vec::<String>::new());
    assert!(end.connection.is_within_head());
    let middle = frame(kind::CONTINUATION, 0, 1, &[]);
    assert_eq!(end.get(&[middle, rest.clone()].concat()), ["1 request ends"]);
    for other in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::PRIORITY, 0, 1, &[0; 5]),
        frame(0x77, 0, 0, &[]),
        data(1, b"", 0),
        get(3),
        frame(kind::CONTINUATION, WHOLE, 3, &[]),
    ] {
        let mut end = End::server();
        end.get(&begin);
        end.assert_failed(&[other, rest.clone()].concat(), ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_damaged_block_ends_the_connection() {
    for bytes in [&[0x80][..], &[0xbe], &[0x41, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x82, 0x20]] {
        let mut end = End::server();
        let bytes = frame(kind::HEADERS, WHOLE | END, 1, bytes);
        end.assert_failed(&bytes, ErrorCode::COMPRESSION_ERROR);
        // also for a stream that is over
        let mut end = End::server();
        end.get(&post(1));
        end.connection.reset(1, ErrorCode::CANCEL);
        end.assert_failed(&bytes, ErrorCode::COMPRESSION_ERROR);
    }
}

#[test]
fn a_stream_does_not_depend_on_itself() {
    let mut end = End::server();
    let head = [&[0, 0, 0, 1, 255][..], &block(&GET)].concat();
    let bytes = frame(kind::HEADERS, WHOLE | END | flag::PRIORITY, 1, &head);
    end.assert_reset(&bytes, 1, ErrorCode::PROTOCOL_ERROR);
    end.get(&post(3));
    end.assert_reset(&frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 3, 0]), 3, ErrorCode::PROTOCOL_ERROR);
    let head = [&[0, 0, 0, 1, 255][..], &block(&GET)].concat();
    let bytes = frame(kind::HEADERS, WHOLE | END | flag::PRIORITY, 5, &head);
    assert_eq!(end.get(&bytes), ["5 request ends"]);
    End::server()
        .assert_failed(&frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn unknown_frames_flags_and_settings_are_ignored() {
    let mut end = End::server();
    let bytes = [
        frame(0x77, 0xff, 9, b"whatever"),
        frame(0xff, 0xff, 0, &[0; 16_384]),
        settings(&[(0x99, 7)]),
        frame(kind::PING, 0xf0, 0, &[7; 8]),
        frame(kind::HEADERS, WHOLE | END | 0xd2, 1, &block(&GET)),
    ];
    assert_eq!(end.get(&bytes.concat()), ["1 request ends"]);
    let pong = Sent { kind: kind::PING, flags: 1, stream: 0, payload: vec![7; 8] };
    assert!(end.sent().contains(&pong));
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let mut end = End::server();
    let pong = frame(kind::PING, flag::ACK, 0, &[0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(end.get(&[settings(&[(4, 5)]), pong].concat()), ["pong 256"]);
    assert_eq!(end.sent(), [Sent { kind: kind::SETTINGS, flags: 1, stream: 0, payload: vec![] }]);
    assert_eq!(end.connection.peer().initial_window_bytes, 5);
    end.connection.ping(256);
    assert_eq!(end.sent()[0].payload, [0, 0, 0, 0, 0, 0, 1, 0]);
    end.assert_failed(&settings(&[(4, 1 << 31)]), ErrorCode::FLOW_CONTROL_ERROR);
}
