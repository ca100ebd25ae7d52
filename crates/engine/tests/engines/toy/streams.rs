//! Bodies and tunnels: to an upstream and from it, with slow readers on either side, where only a
//! bounded amount is held.

use super::client::{ANSWER, CHUNK, DATA, END, UPGRADE};
use super::handler::{FILE, file_byte};
use super::kit::{Server, on_each, start};
use super::protocol::FAILED;
use super::upstream::{counted, flooded, gift_byte};
use crate::harness::ran_apart;
use forebay_conn::Settled;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const MANY: usize = 8 << 20;

fn check_held(server: &Server) {
    // the bound, and what was added last
    let held = server.kit.most_held.load(Relaxed) as usize;
    assert!(held <= 2 * 64 * 1024, "{held} bytes were held");
}

#[test]
fn an_upload_goes_to_an_upstream_that_takes_it_slowly() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        client.ask(1, "/up/slow");
        let mut writer = client.writer();
        let upload = std::thread::spawn(move || {
            for _ in 0..MANY / 16_384 {
                writer.say(1, DATA, &[7; 16_384]);
            }
            writer.say(1, END, &[]);
        });
        let answer = client.answer(&mut Vec::new());
        upload.join().unwrap();
        assert_eq!((answer.status, answer.text()), (200, (1, MANY.to_string())), "{engine}");
        check_held(&server);
        drop(client);
        server.stop();
    });
}

#[test]
fn an_answer_comes_from_an_upstream_as_fast_as_its_client_takes_it() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        client.ask(1, &format!("/up/gift/{MANY}"));
        // until all sides wait for this client, or are about to
        std::thread::sleep(Duration::from_millis(50));
        let answer = client.answer(&mut Vec::new());
        assert_eq!((answer.status, answer.body.len()), (200, MANY), "{engine}");
        assert!(answer.body.iter().enumerate().all(|(at, byte)| *byte == gift_byte(at)));
        check_held(&server);
        drop(client);
        server.stop();
    });
}

/// The upstream returns what it gets, and the client reads only when it has sent a lot: the server
/// reads from it while it takes nothing.
#[test]
fn both_directions_go_on_at_once_beside_other_requests() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        client.ask(1, "/up/echo");
        client.ask(2, "/up/count");
        let mut writer = client.writer();
        let upload = std::thread::spawn(move || {
            for at in 0..MANY / 16_384 {
                writer.say(1, DATA, &[at as u8; 16_384]);
                if at % 8 == 0 {
                    writer.ask(100 + at as u32, "/x");
                    writer.say(2, DATA, b"some");
                }
            }
            writer.say(1, END, &[]);
            writer.say(2, END, &[]);
        });
        let mut others = Vec::new();
        let (mut small, mut echo, mut count) = (0, None, None);
        while echo.is_none() || count.is_none() || small < MANY / 16_384 / 8 {
            let answer = client.answer(&mut others);
            match answer.id {
                1 => echo = Some(answer.body),
                2 => count = Some(answer.text().1),
                _ => {
                    assert_eq!(answer.text().1, "/x");
                    small += 1;
                }
            }
        }
        upload.join().unwrap();
        let echo = echo.unwrap();
        assert_eq!(echo.len(), MANY, "{engine}");
        assert!(echo.chunks(16_384).enumerate().all(|(at, part)| part == [at as u8; 16_384]));
        assert_eq!(count.unwrap(), (MANY / 16_384 / 8 * 4).to_string());
        check_held(&server);
        drop(client);
        server.stop();
    });
}

/// The client takes nothing of an answer that never ends. What it sends meanwhile is received, and
/// passed on to the end.
#[test]
fn a_client_that_takes_nothing_is_still_heard() {
    if ran_apart() {
        return;
    }
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |setup| {
            // the client must not be cut for that before this has been seen
            setup.settings.timeouts.send_window_ms = 60_000;
        });
        let mut client = server.client(veiled);
        let key = format!("{engine}{veiled}").replace([',', ' '], "-");
        // while the server holds as much of an answer as it may, it begins no other
        let path = format!("/up/count/{key}");
        client.ask(2, &path);
        assert_eq!(client.next().unwrap().kind, ANSWER);
        client.ask(1, &format!("/up/flood/{key}"));
        // until the kernel holds all it can
        loop {
            let before = flooded(&key);
            server.calm();
            if before > 0 && flooded(&key) == before {
                break;
            }
        }
        for _ in 0..MANY / 16_384 {
            client.say(2, DATA, &[1; 16_384]);
        }
        client.say(2, END, &[]);
        assert_eq!(counted(&path), MANY as u64, "{engine}");
        check_held(&server);
        client.leave();
        server.kit.wait_settled(Settled::Cut, 1);
        server.stop();
    });
}

#[test]
fn bodies_from_memory_and_from_cold_files_are_read_in_pieces_beside_one_another() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        for (id, path) in [(1, "/file"), (2, "/mem/3000000"), (3, "/file"), (4, "/mem/0")] {
            client.ask(id, path);
        }
        let mut others = Vec::new();
        let mut answers: Vec<_> = (0..4).map(|_| client.answer(&mut others)).collect();
        answers.sort_by_key(|answer| answer.id);
        for answer in [&answers[0], &answers[2]] {
            assert_eq!((answer.reset, answer.body.len()), (None, FILE), "{engine}");
            assert!(answer.body.iter().enumerate().all(|(at, byte)| *byte == file_byte(at)));
        }
        assert!(answers[1].body == vec![b'm'; 3_000_000]);
        assert_eq!(answers[3].body, b"");
        drop(client);
        server.stop();
    });
}

#[test]
fn an_upstream_that_breaks_ends_its_request() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        client.ask(1, "/up/breaks");
        let answer = client.answer(&mut Vec::new());
        assert!(answer.body.is_empty() && answer.reset.is_none_or(|why| why == FAILED));
        client.ask(2, "/x");
        assert_eq!(client.answer(&mut Vec::new()).text().1, "/x");
        // the client of this one leaves, and its upstream sees the end
        client.ask(3, "/up/first/10/left");
        while client.next().unwrap().kind != CHUNK {}
        client.leave();
        assert_eq!(counted("/up/first/10/left"), 0);
        server.kit.wait_settled(Settled::Answered, 2);
        server.stop();
    });
}

/// After the upgrade all bytes are passed on as they are.
#[test]
fn a_connection_becomes_a_tunnel() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        client.ask(1, "/x");
        assert_eq!(client.answer(&mut Vec::new()).text().1, "/x");
        client.say(2, UPGRADE, b"/up/echo");
        let upgraded = client.next().unwrap();
        assert_eq!(
            (upgraded.kind, upgraded.payload.as_slice()),
            (ANSWER, &101u16.to_be_bytes()[..])
        );
        let mut writer = client.writer();
        let bytes: Vec<u8> = (0..MANY).map(gift_byte).collect();
        let upload = {
            let bytes = bytes.clone();
            std::thread::spawn(move || {
                bytes.chunks(100_000).for_each(|part| writer.send(part));
                // the client ends first, and what is under way still arrives
                writer.end();
            })
        };
        let echo = client.receive_all();
        upload.join().unwrap();
        assert!(echo == bytes, "{engine}: {} bytes", echo.len());
        assert_eq!(client.has_ended, veiled);
        check_held(&server);
        server.kit.wait_settled(Settled::Answered, 2);
        server.stop();
    });
}

/// The upstream ends first. The client sees that, and what it sends afterwards still arrives.
#[test]
fn the_end_of_one_direction_of_a_tunnel_is_not_that_of_the_other() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        let path = format!("/up/first/3000000/{engine}{veiled}").replace([',', ' '], "-");
        client.say(1, UPGRADE, path.as_bytes());
        assert_eq!(client.next().unwrap().kind, ANSWER);
        let given = client.receive_all();
        assert_eq!((given.len(), client.has_ended), (3_000_000, veiled), "{engine}");
        for _ in 0..MANY / 16_384 {
            client.send(&[3; 16_384]);
        }
        client.end();
        drop(client);
        assert_eq!(counted(&path), MANY as u64, "{engine}");
        server.kit.wait_settled(Settled::Answered, 1);
        server.stop();
    });
}
