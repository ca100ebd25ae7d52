//! Every budget is limited, and honest peers do not come near the limit.

use super::*;
use crate::budget::{Abuse, MOST_CONTINUATIONS, MOST_CONTROL_BYTES, cost};
use crate::closed::Closed;

const CALM: ErrorCode = ErrorCode::ENHANCE_YOUR_CALM;

impl End {
    /// Feeds `bytes(n)` for each n until the connection fails; returns the number of calls.
    fn until_failed(&mut self, most: u32, bytes: impl Fn(u32) -> Vec<u8>) -> u32 {
        for round in 0..most {
            self.take(&bytes(round));
            if let Some(fault) = self.connection.fault() {
                assert_eq!(fault.code, CALM, "{fault:?}");
                return round;
            }
            // the output is taken
            self.sent();
            assert!(self.connection.heap_bytes() <= Http2Limits::default().most_heap_bytes());
        }
        panic!("{most} were not too many");
    }
}

#[test]
fn rapid_reset_ends() {
    let mut end = End::server();
    let burst = Abuse::Resets.bound().burst;
    let rounds = end.until_failed(burst + 1, |round| {
        let stream = 2 * round + 1;
        [get(stream), rst(stream, ErrorCode::CANCEL)].concat()
    });
    assert_eq!(rounds, burst);
    // a page that is left now and then does not count
    let mut end = End::server();
    for round in 0..10_000 {
        let stream = 2 * round + 1;
        end.now_ms += 50;
        end.get(&[get(stream), rst(stream, ErrorCode::CANCEL)].concat());
    }
}

#[test]
fn streams_that_we_are_made_to_reset_are_counted() {
    for fault in [
        &(|stream| window_update(stream, 0)) as &dyn Fn(u32) -> Vec<u8>,
        &|stream| data(stream, b"x", 0),
        &|stream| frame(kind::PRIORITY, 0, stream, &[0; 4]),
        &|stream| window_update(stream, 0x7fff_ffff),
    ] {
        let mut end = End::server();
        let burst = Abuse::MadeResets.bound().burst;
        let made = |round| [get(2 * round + 1), fault(2 * round + 1)].concat();
        assert_eq!(end.until_failed(burst + 1, made), burst);
    }
    // streams above the limit
    let mut end = End::server();
    for stream in 0..128 {
        end.get(&get(2 * stream + 1));
    }
    let burst = Abuse::Resets.bound().burst;
    assert_eq!(end.until_failed(burst + 1, |round| get(1001 + 2 * round)), burst);
}

#[test]
fn frames_that_carry_nothing_end() {
    let burst = Abuse::Overhead.bound().burst;
    let costs = [
        (frame(kind::PING, 0, 0, &[0; 8]), cost::FRAME),
        (frame(kind::SETTINGS, 0, 0, &[]), cost::SETTINGS),
        (frame(kind::PRIORITY, 0, 9, &[0; 5]), cost::FRAME),
        (frame(0x77, 0, 0, &[]), cost::FRAME),
        (window_update(0, 1), cost::FRAME),
        (window_update(1, 1), cost::FRAME),
        (data(1, b"", 0), cost::EMPTY),
        (data(1, &[2, 0, 0], flag::PADDED), cost::EMPTY),
        (frame(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 9, b'i']), cost::PRIORITY_UPDATE),
        (frame(kind::GOAWAY, 0, 0, &[0; 8]), cost::EMPTY),
    ];
    for (bytes, cost) in costs {
        let mut end = End::server();
        end.get(&post(1));
        let rounds = end.until_failed(burst + 20, |_| bytes.clone());
        assert!(rounds.abs_diff(burst / cost) <= 20, "{rounds}");
    }
}

#[test]
fn windows_and_pings_that_go_with_data_are_free() {
    // as Go and gRPC do: two window updates for each 4 KiB, and a PING for each frame
    let mut end = End::server();
    end.get(&get(1));
    end.answer(1, MessagePart::Head);
    end.connection.offer(1);
    for _ in 0..20_000 {
        let turn = end.connection.next().unwrap();
        assert!(end.connection.data(1, turn.most, false).is_some());
        let windows = [window_update(0, 4096), window_update(1, 4096)].concat().repeat(4);
        end.get(&[windows, frame(kind::PING, 0, 0, &[1; 8])].concat());
        end.sent();
    }
}

#[test]
fn messages_of_a_few_bytes_with_a_ping_each_are_free() {
    // a gRPC stream in both directions, as fast as possible
    let mut end = End::server();
    end.get(&post(1));
    end.answer(1, MessagePart::Head);
    for round in 0..30_000u32 {
        end.get(&[data(1, b"ask", 0), frame(kind::PING, 0, 0, &[1; 8])].concat());
        end.connection.consumed(1, 3);
        end.get(&window_update(0, 6));
        assert!(end.connection.data(1, 6, false).is_some(), "{round}");
        if round % 1000 == 0 {
            end.get(&window_update(1, 6000));
        }
        end.sent();
    }
}

#[test]
fn answers_that_are_not_taken_end() {
    let mut end = End::server();
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    let events = end.take(&ping.repeat(MOST_CONTROL_BYTES / ping.len() + 1)).0;
    assert_eq!(events, ["failed 11"]);
    assert_eq!(end.sent().len(), 1, "a flood is not answered");
    assert!(end.connection.heap_bytes() < 4096);
}

#[test]
fn a_header_block_ends() {
    let begin = frame(kind::HEADERS, 0, 1, &block(&GET));
    let mut end = End::server();
    end.get(&begin);
    let rounds = end.until_failed(99, |_| frame(kind::CONTINUATION, 0, 1, &[]));
    assert_eq!(rounds, MOST_CONTINUATIONS);
    let mut end = End::server();
    end.get(&begin);
    let rounds = end.until_failed(99, |_| frame(kind::CONTINUATION, 0, 1, &[0; 16_384]));
    assert_eq!(rounds, 2, "32 KiB and a frame may come");
}

#[test]
fn heads_that_are_too_large_are_counted() {
    let mut end = End::server();
    let large = "x".repeat(18_000);
    let list = [&GET[..], &[("a", &large)]].concat();
    let burst = Abuse::Overhead.bound().burst;
    let rounds = end.until_failed(burst, |round| {
        let stream = 2 * round + 1;
        let mut bytes = frame(kind::HEADERS, END | WHOLE, stream, &block(&list));
        bytes.extend(rst(stream, ErrorCode::CANCEL));
        bytes
    });
    assert!(rounds <= burst / (cost::LARGE_HEAD - crate::budget::EARNED), "{rounds}");
}

/// A field as long as the table, followed by two bytes for each time it is added again.
#[test]
fn fields_that_copy_the_table_again_and_again_end() {
    let name = [b'a'; 3900];
    let once = [&[0x40, 0x7f, 0xbd, 0x1d][..], &name, &[0]].concat();
    let block = |copies: usize| [&once[..], &[0x7e, 0].repeat(copies)].concat();
    let mut end = End::server();
    let head = |stream, copies| frame(kind::HEADERS, END | WHOLE, stream, &block(copies));
    assert_eq!(end.until_failed(1, |_| head(1, 6_000)), 0);
    // a field that is only looked up when there is no room is not copied
    let mut end = End::server();
    end.take(&get(1));
    end.take(&rst(1, ErrorCode::CANCEL));
    let looks = [&once[..], &[0x0f, 0x2f, 0].repeat(4_000)].concat();
    end.take(&frame(kind::HEADERS, END | WHOLE, 1, &looks));
    assert!(end.connection.fault().is_none());
}

#[test]
fn tiny_windows_end() {
    let mut end = End::server_with(Http2Limits::default(), &[(4, 1)]);
    end.get(&get(1));
    end.answer(1, MessagePart::Head);
    end.connection.offer(1);
    let mut sent = 0;
    while let Some(turn) = end.connection.next() {
        if end.connection.data(turn.stream, turn.most, false).is_none() {
            break;
        }
        sent += 1;
        end.get(&window_update(1, 1));
    }
    assert_eq!(sent, Abuse::Crumbs.bound().burst);
    end.assert_failed(b"", CALM);
}

#[test]
fn priorities_of_streams_to_come_are_bounded() {
    let mut end = End::server();
    let update = |stream: u32| {
        let payload = [&stream.to_be_bytes()[..], b"u=1"].concat();
        frame(kind::PRIORITY_UPDATE, 0, 0, &payload)
    };
    end.get(&get(1));
    for stream in 1..128 {
        end.get(&update(2 * stream + 1));
    }
    end.assert_failed(&update(999), ErrorCode::PROTOCOL_ERROR);
}

/// A server that refuses all requests, or answers without a body, does no harm to a client.
#[test]
fn what_a_server_gives_up_costs_a_client_nothing() {
    let mut end = End::of(Connection::client(Http2Limits::default()));
    end.get(&settings(&[]));
    let mut open = || end.connection.open(&mut Vec::new(), true, false, |_| {}).unwrap();
    let streams: Vec<u32> = (0..128).map(|_| open()).collect();
    for stream in &streams {
        assert_eq!(end.get(&rst(*stream, ErrorCode::REFUSED_STREAM)).len(), 1);
    }
    for _ in 0..5_000 {
        let stream = end.connection.open(&mut Vec::new(), true, false, |_| {}).unwrap();
        end.get(&rst(stream, ErrorCode::REFUSED_STREAM));
    }
    for _ in 0..5_000 {
        let stream = end.connection.open(&mut Vec::new(), true, false, |_| {}).unwrap();
        end.get(&window_update(0, 1).repeat(5));
        end.get(&frame(kind::HEADERS, WHOLE | END, stream, &block(&[(":status", "204")])));
    }
    assert_eq!(end.connection.fault(), None);
}

#[test]
fn many_responses_before_the_last_one_end() {
    let mut end = End::of(Connection::client(Http2Limits::default()));
    end.get(&settings(&[]));
    end.connection.open(&mut Vec::new(), true, false, |_| {});
    let early = frame(kind::HEADERS, WHOLE, 1, &block(&[(":status", "103")]));
    end.get(&early.repeat(16));
    end.assert_reset(&early, 1, CALM);
}

#[test]
fn memory_is_bounded_and_little_of_it_stays() {
    let limits = Http2Limits::default();
    // the value of most_heap_bytes, which the manual may state
    assert!(limits.most_heap_bytes() <= 208 * 1024, "{}", limits.most_heap_bytes());
    let mut end = End::server_with(limits, &[]);
    let idle = end.connection.heap_bytes();
    assert!(idle <= 128, "{idle}");
    // a full HPACK table, all streams open and ready, and then a block and pending answers
    let mut random = fastrand::Rng::with_seed(1);
    for stream in 0..128u32 {
        let mut fields = block(&GET);
        for _ in 0..10 {
            fields.extend_from_slice(&[0x40, 1, random.alphabetic().to_ascii_lowercase() as u8, 0]);
        }
        end.get(&frame(kind::HEADERS, WHOLE, 2 * stream + 1, &fields));
        end.answer(2 * stream + 1, MessagePart::Head);
        end.connection.offer(2 * stream + 1);
    }
    end.sent();
    for _ in 0..MOST_CONTROL_BYTES / 17 - 5 {
        end.get(&frame(kind::PING, 0, 0, &[0; 8]));
    }
    end.get(&frame(kind::HEADERS, 0, 999, &[0; 16_384]));
    end.get(&frame(kind::CONTINUATION, 0, 999, &[0; 16_384]));
    let most = end.connection.heap_bytes();
    assert!(most <= limits.most_heap_bytes() && most > 64 * 1024, "{most}");
    assert!(size_of::<Connection>() <= 640, "{}", size_of::<Connection>());
    assert!(Closed::most_heap_bytes(128) < 1024);
}

#[test]
fn requests_behind_the_last_goodbye_are_counted() {
    let mut end = End::server();
    end.connection.drain_now();
    end.sent();
    let most = Abuse::Overhead.bound().burst / cost::EMPTY;
    let rounds = end.until_failed(most + 1, |round| get(2 * round + 1));
    // the first settings have a cost, too
    assert!((most - 2..=most).contains(&rounds), "{rounds}");
}
