//! Tests of windows (RFC 9113 §6.9), and of the order of sending.

use super::*;
use crate::priority::Priority;

impl End {
    /// Answers a stream and offers its body.
    fn offer(&mut self, stream: u32) {
        assert!(self.answer(stream, MessagePart::Head));
        self.connection.offer(stream);
    }

    /// Sends what may be sent, up to `frames` frames; returns stream and length of each.
    fn send(&mut self, frames: usize) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        while sent.len() < frames
            && let Some(turn) = self.connection.next()
        {
            assert!(self.connection.data(turn.stream, turn.most + 1, false).is_none());
            assert!(self.connection.data(turn.stream, turn.most, false).is_some());
            sent.push((turn.stream, turn.most));
        }
        sent
    }
}

#[test]
fn frames_are_bounded_by_windows_and_chunks() {
    let mut end = End::server();
    end.get(&[get(1), get(3)].concat());
    end.offer(1);
    // the connection's window is used up first
    let all = end.send(99);
    assert_eq!(all.iter().map(|(_, len)| len).sum::<u32>(), 65_535);
    assert!(all.iter().all(|(_, len)| *len <= 16_384));
    assert!(end.connection.is_blocked(1) && end.connection.is_closed());
    assert!(end.connection.next().is_none());
    end.offer(3);
    assert_eq!(end.send(99), []);
    end.get(&window_update(0, 10));
    assert_eq!(end.send(99), [(3, 10)]);
    assert_eq!(end.connection.send_capacity(3), 0);
    end.get(&[window_update(1, 7), window_update(0, 100_000)].concat());
    assert_eq!(end.send(1), [(1, 7)]);

    let limits = Http2Limits { chunk_bytes: 1000, ..Http2Limits::default() };
    let mut end = End::server_with(limits, &[(5, 20_000)]);
    end.get(&get(1));
    end.offer(1);
    assert_eq!(end.send(1), [(1, 1000)]);
}

#[test]
fn a_first_window_changes_those_of_all_streams() {
    let mut end = End::server_with(Http2Limits::default(), &[(4, 0)]);
    end.get(&get(1));
    end.offer(1);
    assert_eq!(end.send(9), []);
    end.get(&settings(&[(4, 1)]));
    assert_eq!(end.send(9), [(1, 1)]);
    // below zero, and the next updates make up for that
    end.get(&settings(&[(4, 10)]));
    assert_eq!(end.send(9), [(1, 9)]);
    end.get(&settings(&[(4, 3)]));
    end.get(&window_update(1, 7));
    assert_eq!(end.send(9), []);
    end.get(&window_update(1, 2));
    assert_eq!(end.send(9), [(1, 2)]);
    end.get(&window_update(1, 0x7fff_ffff));
    end.assert_failed(&settings(&[(4, 4)]), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn windows_grow_to_their_bound_and_not_by_nothing() {
    let mut end = End::server();
    end.get(&post(1));
    end.assert_reset(&window_update(1, 0), 1, ErrorCode::PROTOCOL_ERROR);
    end.get(&post(3));
    end.assert_reset(&window_update(3, 0x7fff_ffff), 3, ErrorCode::FLOW_CONTROL_ERROR);
    end.assert_failed(&window_update(0, 0), ErrorCode::PROTOCOL_ERROR);
    let mut end = End::server();
    end.assert_failed(&window_update(0, 0x7fff_ffff), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn more_data_than_allowed_is_refused() {
    let limits = Http2Limits {
        stream_window_bytes: 65_535,
        connection_window_bytes: 65_535 + 16_384,
        ..Http2Limits::default()
    };
    let chunk = [0; 16_384];
    let mut end = End::server_with(limits, &[]);
    let four = [&post(1)[..], &data(1, &chunk, 0).repeat(3), &data(1, &chunk[1..], 0)].concat();
    end.get(&four);
    end.assert_reset(&data(1, &chunk[..1], 0), 1, ErrorCode::FLOW_CONTROL_ERROR);
    // when the stream is over, what it held is given back to the connection
    end.get(&[&post(3)[..], &data(3, &chunk, 0).repeat(3), &data(3, &chunk[1..], 0)].concat());
    end.get(&[&post(5)[..], &data(5, &chunk, 0)].concat());
    end.assert_failed(&data(5, &chunk, 0), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn windows_are_given_back_as_bodies_are_used() {
    let mut end = End::server();
    end.get(&post(1));
    let chunk = [0; 16_000];
    for _ in 0..8 {
        end.get(&data(1, &chunk, 0));
        end.connection.consumed(1, 8_000);
    }
    assert_eq!(end.sent(), [], "64 of 256 KB are used");
    end.connection.consumed(1, 64_000);
    end.connection.consumed(1, 64_000);
    end.get(&data(1, &[0; 8_000], 0));
    end.connection.consumed(1, 8_000);
    let updates = end.sent();
    assert_eq!((updates.len(), updates[0].stream), (1, 1));
    assert_eq!(updates[0].payload, 136_000u32.to_be_bytes());
    // no window update for a message that is complete
    end.get(&data(1, &chunk, END));
    end.connection.consumed(1, 16_000);
    assert_eq!(end.sent(), []);
    // padding, of which only the client knows
    end.get(&post(3));
    let padded = [&[255][..], &[0; 255]].concat();
    let mut updates = Vec::new();
    for _ in 0..2200 {
        end.now_ms += 10;
        end.get(&data(3, &padded, flag::PADDED));
        updates.extend(end.sent());
    }
    let of = |stream| updates.iter().filter(|update| update.stream == stream).count();
    assert_eq!((of(3), of(0)), (4, 1));
}

#[test]
fn a_class_goes_first_then_urgency_then_turns() {
    let mut end = End::server();
    end.get(&window_update(0, 1 << 30));
    for stream in [1, 3, 5, 7, 9, 11] {
        end.get(&get(stream));
    }
    let of = |urgency, is_incremental| Priority { urgency, is_incremental };
    for (stream, rank, priority) in [
        (1, 1, of(0, false)),
        (3, 0, of(4, true)),
        (5, 0, of(4, true)),
        (7, 0, of(3, false)),
        (9, 0, of(3, false)),
        (11, 0, of(7, false)),
    ] {
        end.connection.set_rank(stream, rank);
        end.connection.set_priority(stream, priority);
        end.offer(stream);
    }
    let streams: Vec<_> = end.send(99).into_iter().map(|(stream, _)| stream).collect();
    let expected = [[7; 4], [9; 4], [3, 5, 3, 5], [3, 5, 3, 5], [11; 4], [1; 4]].concat();
    assert_eq!(streams, expected);
    // a paused stream lets others pass
    end.get(&[window_update(3, 99), window_update(5, 99)].concat());
    end.connection.pause(3);
    assert_eq!(end.connection.next().unwrap().stream, 5);
    end.connection.set_rank(5, 2);
    end.connection.offer(3);
    assert_eq!(end.connection.next().unwrap().stream, 3);
}

#[test]
fn a_short_body_goes_at_once_if_no_other_goes_first() {
    let mut end = End::server();
    end.get(&[get(1), get(3), get(5)].concat());
    assert_eq!(end.connection.send_capacity(1), 0, "no head yet");
    end.answer(1, MessagePart::Head);
    assert_eq!(end.connection.send_capacity(1), 16_384);
    let header = end.connection.data(1, 5, true).unwrap();
    assert_eq!(
        FrameHeader::read(&header),
        Some(FrameHeader { len: 5, kind: 0, flags: END, stream: 1 })
    );
    assert!(!end.connection.is_open(1));
    end.offer(3);
    end.answer(5, MessagePart::Head);
    assert_eq!(end.connection.send_capacity(5), 0);
    end.connection.set_priority(5, Priority { urgency: 2, is_incremental: true });
    assert_eq!(end.connection.send_capacity(5), 16_384);
    // an empty frame may only end a body, and needs no window
    assert!(end.connection.data(5, 0, false).is_none());
    assert!(end.connection.data(5, 0, true).is_some() && end.connection.data(5, 0, true).is_none());
}
