//! Many connections with many requests each, of all kinds and at random; some requests are given
//! up, some clients leave. All are accounted for in the end.

use super::client::{Client, DATA, END, RESET};
use super::kit::{on_each, start};
use super::protocol::FAILED;
use forebay_engine::settings::Timeouts;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

const THREADS: usize = 8;

/// The number of connections to each engine.
fn connections() -> usize {
    if std::env::var("FOREBAY_MATRIX").is_ok_and(|matrix| matrix == "full") { 200 } else { 48 }
}

const REQUESTS: u32 = 20;

/// A small generator of random numbers (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The paths that a client has asked for, by number; `None` if it gave the request up.
type Asked = BTreeMap<u32, Option<String>>;

fn ask(client: &mut Client, chance: &mut Chance) -> Asked {
    let mut asked = Asked::new();
    for id in 0..REQUESTS {
        let rank = ["", ".gold", ".bulk"][chance.below(3) as usize];
        let path = match chance.below(12) {
            0 | 1 => format!("/job{rank}"),
            2 => "/early".to_owned(),
            3 => "/refuse".to_owned(),
            4 => "/reset".to_owned(),
            5 => "/file".to_owned(),
            6 => format!("/mem/{}", chance.below(40_000)),
            7 => "/jobpanic".to_owned(),
            8 => "/up/echo".to_owned(),
            9 => format!("/up/gift/{}", chance.below(40_000)),
            _ => format!("/{id}{rank}"),
        };
        client.ask(id, &path);
        if path == "/up/echo" {
            client.say(id, DATA, &[id as u8; 5_000]);
            client.say(id, END, &[]);
        }
        let gives_up = chance.below(10) == 0;
        if gives_up {
            client.say(id, RESET, &[]);
        }
        asked.insert(id, (!gives_up).then_some(path));
    }
    asked
}

fn check(client: &mut Client, mut asked: Asked) {
    let mut others = Vec::new();
    // requests that were given up may have been answered before that was known
    while asked.values().any(Option::is_some) {
        let answer = client.answer(&mut others);
        let path = asked.remove(&answer.id).expect("an answer to nothing");
        let Some(path) = path else { continue };
        let body = answer.body;
        match path.as_str() {
            "/refuse" => assert_eq!((answer.status, answer.reset), (429, None)),
            "/reset" => assert!(answer.reset.is_some()),
            "/jobpanic" => assert_eq!(answer.reset, Some(FAILED)),
            "/file" => assert_eq!(body.len(), super::handler::FILE),
            "/up/echo" => assert_eq!(body, [answer.id as u8; 5_000]),
            path => match path.strip_prefix("/mem/").or(path.strip_prefix("/up/gift/")) {
                Some(len) => assert_eq!(body.len().to_string(), len),
                None if path.starts_with("/job") => {
                    assert_eq!(body, format!("done {path}").as_bytes());
                }
                None => assert_eq!(body, path.as_bytes()),
            },
        }
    }
}

#[test]
fn all_requests_of_many_connections_are_accounted_for() {
    let seed = match std::env::var("TOY_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => RandomState::new().hash_one(0u8) | 1,
    };
    eprintln!("TOY_SEED={seed}");
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |setup| {
            (setup.most, setup.per_client) = (connections() + 50, connections() + 50);
            // a client's answers wait until those of clients before it were read
            let hour_ms = 3_600_000;
            setup.settings.timeouts = Timeouts {
                head_ms: hour_ms,
                body_ms: hour_ms,
                idle_ms: hour_ms,
                job_ms: hour_ms,
                send_window_ms: hour_ms,
                ..Timeouts::default()
            };
        });
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let server = &server;
                let mut chance = Chance(seed.wrapping_mul(2 * thread as u64 + 1) | 1);
                scope.spawn(move || {
                    let open: Vec<_> = (0..connections() / THREADS)
                        .map(|_| {
                            let mut client = server.client(veiled);
                            let asked = ask(&mut client, &mut chance);
                            (client, asked, chance.below(8))
                        })
                        .collect();
                    for (mut client, asked, fate) in open {
                        match fate {
                            0 => client.leave(),
                            1 => {
                                client.end();
                                check(&mut client, asked);
                            }
                            _ => check(&mut client, asked),
                        }
                    }
                });
            }
        });
        server.stop();
    });
}
