//! Tests of graceful shutdown (RFC 9113 §6.8).

use super::*;

fn goaway(last: u32, code: u32) -> Sent {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    Sent { kind: kind::GOAWAY, flags: 0, stream: 0, payload }
}

#[test]
fn a_goodbye_has_two_steps() {
    let mut end = End::server();
    end.get(&get(1));
    end.connection.drain();
    end.connection.drain();
    let sent = end.sent();
    assert_eq!((sent.len(), &sent[0]), (2, &goaway(0x7fff_ffff, 0)));
    // a request that was on its way is served
    assert_eq!(end.get(&get(3)), ["3 request ends"]);
    assert!(end.connection.is_draining());
    assert_eq!(end.get(&frame(kind::PING, flag::ACK, 0, &sent[1].payload)), Vec::<String>::new());
    assert_eq!(end.sent(), [goaway(3, 0)]);
    // a later one is not, but its fields are decoded
    let later = [&block(&POST)[..], b"\x40\x01a\x01b"].concat();
    let later = frame(kind::HEADERS, WHOLE, 5, &later);
    let more = [later, data(5, b"x", 0), rst(5, ErrorCode::CANCEL), window_update(5, 1)];
    assert_eq!(end.get(&more.concat()), Vec::<String>::new());
    assert!(!end.connection.is_drained());
    end.answer(1, MessagePart::Last);
    end.answer(3, MessagePart::Last);
    assert!(end.connection.is_drained());
}

#[test]
fn a_goodbye_need_not_wait() {
    let mut end = End::server();
    end.connection.drain();
    end.sent();
    end.connection.drain_now();
    end.connection.drain_now();
    assert_eq!(end.sent(), [goaway(0, 0)]);
    assert!(end.connection.is_drained());
}

#[test]
fn whoever_does_not_answer_a_goodbye_is_not_served_for_ever() {
    let mut end = End::server_with(Http2Limits { streams: 2, ..Http2Limits::default() }, &[]);
    end.get(&get(1));
    end.answer(1, MessagePart::Last);
    end.connection.drain();
    end.sent();
    for stream in [3, 5, 7] {
        assert_eq!(end.get(&get(stream)), [format!("{stream} request ends")]);
        end.answer(stream, MessagePart::Last);
    }
    let sent = end.sent();
    assert!(sent.contains(&goaway(7, 0)), "{sent:?}");
    assert_eq!(end.get(&get(9)), Vec::<String>::new());
    assert!(end.connection.is_drained());
}

#[test]
fn a_failure_names_the_last_stream_and_is_the_last_word() {
    let mut end = End::server();
    end.get(&get(7));
    end.take(&get(2));
    assert_eq!(end.sent(), [goaway(7, 1)]);
    end.connection.drain();
    end.connection.drain_now();
    assert_eq!(end.sent(), []);
}

#[test]
fn a_failure_names_no_stream_that_a_goodbye_has_ruled_out() {
    let mut end = End::server();
    end.get(&get(3));
    end.connection.drain_now();
    assert_eq!(end.sent(), [goaway(3, 0)]);
    end.get(&get(5));
    end.take(&get(2));
    assert_eq!(end.sent(), [goaway(3, 1)]);
}

#[test]
fn a_servers_goodbye_gives_streams_back() {
    let mut end = End::of(Connection::client(Http2Limits::default()));
    end.get(&settings(&[]));
    let mut open = || end.connection.open(&mut Vec::new(), true, false, |_| {}).unwrap();
    assert_eq!([open(), open(), open()], [1, 3, 5]);
    let bytes = frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(end.get(&bytes), ["goaway 1 0", "3 reset 7", "5 reset 7"]);
    assert!(!end.connection.can_open() && end.connection.is_open(1));
}
