//! A request whose client's socket another process has for a while.

use super::{Bench, get};
use crate::front::{Lent, Shared};
use forebay_conn::handler::relay::{ClientPlace, ClientReturn};
use forebay_conn::{Await, Closing, Protocol, Settled};

fn back(place: ClientPlace) -> ClientReturn {
    ClientReturn { place, status: 201, body_bytes: 7 }
}

/// Has the exchange get its place and want the client's socket.
fn wants(shared: &Shared, bench: &mut Bench) {
    shared.wire().wants_client = true;
    bench.go_on();
}

/// Has the other process answer and give the socket back, or keep it.
fn returns(shared: &Shared, bench: &mut Bench, place: ClientPlace) {
    let mut wire = shared.wire();
    (wire.elsewhere, wire.answer) = (Some(back(place)), Some((None, None)));
    drop(wire);
    bench.go_on();
}

#[test]
fn exactly_one_request_leaves_and_the_next_one_stays() {
    let shared = Shared::new(0);
    let mut bench = Bench::new(&[&shared]);
    bench.receive(&[get("/own"), get("/handed"), get("/own")].concat());
    assert_eq!(bench.sent(), "HTTP/1.1 200 Own\r\nContent-Length: 3\r\n\r\nown");
    assert!(shared.wire().is_begun && !bench.conn.is_lent());
    assert!(bench.conn.stays_in_receive());
    wants(&shared, &mut bench);
    let head = get("/handed");
    let lent = Lent { head, body: String::new(), body_left: Some(0), is_last: false };
    assert_eq!(shared.wire().lent, Some(lent));
    assert!(bench.conn.is_lent() && !bench.conn.wants_input());
    assert_eq!(bench.sent(), "", "what follows waits");
    returns(&shared, &mut bench, ClientPlace::Back);
    assert!(bench.sent().ends_with("own") && !bench.conn.is_lent());
    assert!(shared.is_released());
    let handler = bench.end();
    assert_eq!(handler.logged, [(200, 3), (201, 7), (200, 3)]);
    assert!(handler.settled.iter().all(|(_, end)| *end == Settled::Answered));
}

#[test]
fn of_a_body_what_has_come_leaves() {
    for (framing, body, rest, left) in [
        ("Content-Length: 5", "ab", "", Some(3)),
        ("Content-Length: 2", "ab", "GET", Some(0)),
        ("Transfer-Encoding: chunked", "2\r\nab", "", None),
        ("Transfer-Encoding: chunked", "2\r\nab\r\n0\r\n\r\n", "GET", Some(0)),
    ] {
        let shared = Shared::new(0);
        let mut bench = Bench::new(&[&shared]);
        let head = format!("POST /handed HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        bench.receive(&[&head, body, rest].concat());
        wants(&shared, &mut bench);
        let body = body.to_owned();
        let lent = Lent { head, body, body_left: left, is_last: false };
        assert_eq!(shared.wire().lent, Some(lent), "{framing}");
        returns(&shared, &mut bench, ClientPlace::Ended { is_unread: false });
        // bytes behind the end of a connection are read and dropped
        let closing = if rest.is_empty() { Closing::Now } else { Closing::Linger };
        assert_eq!(bench.closed, Some(closing));
        bench.end();
    }
}

#[test]
fn a_client_that_wants_the_end_is_not_kept() {
    let shared = Shared::new(0);
    let mut bench = Bench::new(&[&shared]);
    bench.receive("GET /handed HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    wants(&shared, &mut bench);
    assert!(shared.wire().lent.as_ref().unwrap().is_last);
    returns(&shared, &mut bench, ClientPlace::Back);
    assert_eq!(bench.closed, Some(Closing::Linger));
    bench.end();
}

#[test]
fn a_connection_that_is_gone_is_settled() {
    let shared = Shared::new(0);
    let mut bench = Bench::new(&[&shared]);
    bench.receive(&get("/handed"));
    wants(&shared, &mut bench);
    returns(&shared, &mut bench, ClientPlace::Gone);
    assert!(bench.is_gone);
    assert_eq!(bench.end().logged, [(201, 7)]);
}

/// The other process has not answered: this server does, and closes the connection, because it is unknown
/// how much of the request was read.
#[test]
fn what_was_lent_in_vain_is_the_last() {
    let shared = Shared::new(0);
    let mut bench = Bench::new(&[&shared]);
    bench.receive(&get("/handed"));
    assert_eq!(bench.conn.awaits().what, Await::Answer);
    wants(&shared, &mut bench);
    bench.expire();
    bench.go_on();
    assert!(bench.sent().starts_with("HTTP/1.1 504 No\r\nContent-Length: 0\r\nConnection: close"));
    assert!(bench.closed.is_some());
    bench.end();
}
