//! Tests of the client's side.

use super::*;

fn client() -> End {
    let mut end = End::of(Connection::client(Http2Limits::default()));
    assert!(end.connection.has_pending());
    assert_eq!(end.get(&settings(&[(3, 2)])), Vec::<String>::new());
    end.connection.flush(&mut end.out);
    assert!(end.out.starts_with(PREFACE));
    end.out.clear();
    end
}

fn open(end: &mut End, ends: bool, is_head: bool) -> Option<u32> {
    let fields = block(&GET);
    end.connection.open(&mut end.out, ends, is_head, |block| block.extend_from_slice(&fields))
}

fn response(stream: u32, flags: u8, list: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, WHOLE | flags, stream, &block(list))
}

#[test]
fn a_hundred_streams_are_opened_before_the_server_is_heard() {
    let mut end = End::of(Connection::client(Http2Limits::default()));
    let opened = (0..200).filter_map(|_| open(&mut end, true, false)).count();
    assert_eq!(opened, 100);
    end.get(&settings(&[]));
    assert_eq!((0..200).filter_map(|_| open(&mut end, true, false)).count(), 28);
}

#[test]
fn requests_are_answered() {
    let mut end = client();
    assert_eq!((open(&mut end, true, false), open(&mut end, false, false)), (Some(1), Some(3)));
    assert_eq!(open(&mut end, true, false), None, "the server takes two");
    let bytes = [
        response(1, 0, &[(":status", "103"), ("link", "x")]),
        response(1, 0, &[(":status", "200"), ("content-length", "2")]),
        data(1, b"ok", END),
        response(3, END, &[(":status", "404")]),
    ];
    let events = end.get(&bytes.concat());
    assert_eq!(events, ["1 informational", "1 response", "1 data ok ends", "3 response ends"]);
    assert_eq!(end.heads, ["103  1", "200  1", "404  0"]);
    assert!(!end.connection.is_open(1) && end.connection.is_open(3));
    // the request is not complete yet
    assert!(end.connection.data(3, 0, true).is_some() && !end.connection.is_open(3));
    assert_eq!(open(&mut end, true, false), Some(5));
    let head = &end.sent()[0];
    assert_eq!((head.kind, head.flags, head.stream), (kind::HEADERS, WHOLE | END, 1));
}

#[test]
fn responses_without_a_body_may_have_a_length() {
    let length = ("content-length", "5");
    for (is_head, status, flags, is_good) in [
        (true, "200", END, true),
        (false, "304", END, true),
        (false, "200", END, false),
        (false, "204", END, true),
    ] {
        let mut end = client();
        open(&mut end, true, is_head);
        let bytes = response(1, flags, &[(":status", status), length]);
        match is_good {
            true => assert_eq!(end.get(&bytes), ["1 response ends"]),
            false => end.assert_reset(&bytes, 1, ErrorCode::PROTOCOL_ERROR),
        }
    }
    let mut end = client();
    open(&mut end, true, true);
    let bytes = [response(1, 0, &[(":status", "200"), length]), data(1, b"abcde", END)].concat();
    end.assert_reset(&bytes, 1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn malformed_responses_are_reset() {
    for bytes in [
        response(1, END, &[]),
        response(1, END, &[(":status", "200"), (":path", "/")]),
        response(1, END, &[(":status", "100")]),
        response(1, 0, &[(":status", "101")]),
        data(1, b"x", 0),
        [response(1, 0, &[(":status", "200")]), response(1, 0, &[(":status", "200")])].concat(),
    ] {
        let mut end = client();
        open(&mut end, true, false);
        end.assert_reset(&bytes, 1, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn what_only_a_client_does_ends_the_connection() {
    for bytes in [
        frame(kind::PUSH_PROMISE, WHOLE, 1, &[0, 0, 0, 2, 0x88]),
        response(2, END, &[(":status", "200")]),
        response(3, END, &[(":status", "200")]),
        frame(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1]),
        settings(&[(2, 1)]),
    ] {
        let mut end = client();
        open(&mut end, true, false);
        end.assert_failed(&bytes, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_reset_is_told() {
    let mut end = client();
    open(&mut end, false, false);
    assert_eq!(end.get(&rst(1, ErrorCode::REFUSED_STREAM)), ["1 reset 7"]);
    assert!(end.connection.data(1, 0, true).is_none());
    open(&mut end, false, false);
    end.connection.reset(3, ErrorCode::CANCEL);
    // frames that were on their way
    let bytes = [response(3, 0, &[(":status", "200")]), data(3, b"x", END)].concat();
    assert_eq!(end.get(&bytes), Vec::<String>::new());
}
