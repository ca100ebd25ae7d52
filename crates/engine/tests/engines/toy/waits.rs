//! Many requests under way on one connection: each waits for its own job, turn, time and deadline.

use super::client::{ASK, Answer, Client, RESET, message};
use super::kit::{at_once_on_each, has_helpers, on_each, start};
use super::protocol::{DRAINING, EXPIRED, FAILED, POLICY, UNFIT};
use crate::harness::{BY_RANK, ENGINES, NEVER_FUSED, ran_apart};
use crate::ranks::LOOPS;
use forebay_conn::Settled;
use forebay_engine::control::LoopOrder;
use forebay_engine::ranks::{OrderSettings, Ranks};
use forebay_metrics::{ClassSlot, Counter};

/// Three ranks in strict order, as a share of a rank would let it go before.
fn ranks(reserve: usize) -> Ranks {
    let slots = [0, 1, 2].map(ClassSlot).into();
    Ranks::new(&OrderSettings {
        shares: [0.0; 3].into(),
        slots,
        reserve,
        ..OrderSettings::default()
    })
}

/// The answers to this many requests, in the order in which they were over.
fn answers(client: &mut Client, count: usize) -> Vec<(u32, String)> {
    let mut others = Vec::new();
    (0..count).map(|_| client.answer(&mut others).text()).collect()
}

fn done(id: u32, path: &str) -> (u32, String) {
    (id, format!("done {path}"))
}

#[test]
fn answers_come_in_the_order_in_which_they_are_ready() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        for (id, path) in [(7, "/wait/a"), (3, "/wait/b"), (5, "/x")] {
            client.ask(id, path);
        }
        server.kit.wait_came(1);
        if has_helpers(engine) {
            assert_eq!(answers(&mut client, 1), [(5, "/x".to_owned())]);
            server.kit.open("/wait/b");
            assert_eq!(answers(&mut client, 1), [done(3, "/wait/b")]);
            server.kit.open("/wait/a");
            assert_eq!(answers(&mut client, 1), [done(7, "/wait/a")]);
        } else {
            // jobs of one connection run one at a time
            let came = server.kit.came();
            let first = if came == ["/wait/a"] { done(7, "/wait/a") } else { done(3, "/wait/b") };
            server.kit.open(&came[0]);
            server.kit.wait_came(2);
            server.kit.open_all();
            let answers = answers(&mut client, 3);
            assert_eq!(answers.iter().find(|(id, _)| *id != 5), Some(&first));
        }
        drop(client);
        server.stop();
    });
}

#[test]
fn a_slow_job_does_not_hold_other_requests() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        client.ask(0, "/wait/slow");
        server.kit.wait_came(1);
        let paths = (1..=40).map(|id| (id, if id % 2 == 0 { "/x" } else { "/job" }));
        for (id, path) in paths.clone() {
            client.ask(id, path);
        }
        if !has_helpers(engine) {
            server.kit.open_all();
        }
        let count = if has_helpers(engine) { 40 } else { 41 };
        let mut answers = answers(&mut client, count);
        answers.sort();
        assert!(paths.into_iter().all(|(id, path)| {
            let text = if path == "/x" { "/x" } else { "done /job" };
            answers.contains(&(id, text.to_owned()))
        }));
        server.kit.open_all();
        if has_helpers(engine) {
            let last = client.answer(&mut Vec::new()).text();
            assert_eq!(last, done(0, "/wait/slow"));
        }
        drop(client);
        server.stop();
    });
}

#[test]
fn what_goes_wrong_ends_one_request() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut client = server.client(veiled);
        let paths =
            ["/jobpanic", "/refuse", "/reset", "/away", "/x", "/early", "no path", "/badfile"];
        for (id, path) in (1..).zip(paths) {
            client.ask(id, path);
        }
        let mut answers = answers(&mut client, paths.len());
        answers.sort();
        let reset = |why: u8| format!("reset {why}");
        let texts = [reset(FAILED), String::new(), reset(POLICY), reset(UNFIT)];
        let rest = ["/x".to_owned(), "/early".to_owned(), reset(UNFIT), reset(FAILED)];
        let texts = texts.into_iter().chain(rest);
        assert_eq!(answers, (1..).zip(texts).collect::<Vec<_>>());
        server.expect(Counter::Panics, 2);
        // the connection goes on
        client.ask(1, "/again");
        assert_eq!(client.answer(&mut Vec::new()).text(), (1, "/again".to_owned()));
        client.end();
        assert_eq!(client.next(), None);
        assert_eq!(client.has_ended, veiled, "the transport says that this is the end");
        server.stop();
    });
}

/// A machine that stands still may let the time of what is answered at once pass, too. Then the
/// test is tried again.
#[test]
fn a_deadline_ends_its_request_only() {
    at_once_on_each(|engine, veiled| {
        assert!((0..3).any(|_| ends_its_request_only(engine, veiled)), "{engine}, {veiled}");
    });
}

/// Whether a deadline ended its request only. Whatever it has ended, the connection goes on.
fn ends_its_request_only(engine: &str, veiled: bool) -> bool {
    let server = start(engine, veiled, |setup| setup.pool = 8);
    let mut client = server.client(veiled);
    let mut others = Vec::new();
    // a handshake is a job, too, and must be in time
    client.ask(1000, "/x");
    client.answer(&mut others);
    let mut settings = server.settings.get();
    // long enough for what is answered at once
    settings.timeouts.job_ms = 8_000;
    server.settings.replace(settings);
    client.ask(1, "/wait/for-ever");
    let expired = |id, status| Answer { id, status, body: Vec::new(), reset: Some(EXPIRED) };
    let is_so = if has_helpers(engine) {
        // its time also passes while no helper thread is free for it
        client.ask(2, "/x");
        // this one waits for an upstream
        client.ask(3, "/up/silent");
        let mut over = [(); 3].map(|()| client.answer(&mut others));
        over.sort_by_key(|answer| answer.id);
        let [first, second, third] = over;
        assert_eq!((first.id, second.id, third.id), (1, 2, 3), "{engine}");
        let is_so = second.text() == (2, "/x".to_owned())
            && [&first, &third] == [&expired(1, 0), &expired(3, 200)];
        if is_so {
            server.expect(Counter::TimeoutJob, 2);
            server.kit.wait_settled(Settled::Expired, 2);
        } else {
            println!("{engine}, {veiled}: {first:?} {second:?} {third:?}");
        }
        // a result that comes too late finds no request
        server.kit.open_all();
        client.ask(1, "/after");
        is_so && client.answer(&mut others).text() == (1, "/after".to_owned())
    } else {
        // no deadline is noticed while the thread does the job; the answer comes, or a reset
        server.kit.wait_came(1);
        server.kit.open_all();
        assert_eq!(client.answer(&mut others).id, 1);
        client.ask(3, "/up/silent");
        assert_eq!(client.answer(&mut others).reset, Some(EXPIRED));
        client.ask(4, "/x");
        client.answer(&mut others).text() == (4, "/x".to_owned())
    };
    drop(client);
    server.stop();
    is_so
}

#[test]
fn nobody_works_for_a_client_that_has_left_or_a_request_that_it_gave_up() {
    on_each(|engine, veiled| {
        if !has_helpers(engine) {
            return;
        }
        let server = start(engine, veiled, |setup| {
            setup.ranks = engine.ends_with(BY_RANK).then(|| ranks(0));
        });
        let [mut holder, mut leaver, mut giver] = [(); 3].map(|()| {
            // a handshake computes, too
            let mut client = server.client(veiled);
            client.ask(1000, "/x");
            client.answer(&mut Vec::new());
            client
        });
        // one thread computes, and does this job
        holder.ask(1, "/work/held");
        server.kit.wait_came(1);
        for id in 0..8 {
            leaver.ask(id, "/work/left");
            giver.ask(id, "/work/given-up");
        }
        // all have been seen
        while server.kit.issued() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for id in 0..8 {
            giver.say(id, RESET, &[]);
        }
        giver.ask(99, "/x");
        assert_eq!(giver.answer(&mut Vec::new()).text(), (99, "/x".to_owned()));
        server.expect(Counter::GivenUp, 8);
        leaver.ask(99, "/x");
        assert_eq!(leaver.answer(&mut Vec::new()).text(), (99, "/x".to_owned()));
        leaver.leave();
        server.kit.wait_settled(Settled::Cut, 16);
        server.kit.open_all();
        assert_eq!(holder.answer(&mut Vec::new()).text(), done(1, "/work/held"));
        holder.ask(2, "/work/last");
        assert_eq!(holder.answer(&mut Vec::new()).text(), done(2, "/work/last"));
        assert_eq!(server.kit.came(), ["/work/held", "/work/last"], "{engine}");
        drop((holder, giver));
        server.stop();
    });
}

#[test]
fn a_drain_finishes_what_is_under_way_and_begins_nothing() {
    on_each(|engine, veiled| {
        let server = start(engine, veiled, |_| {});
        let mut idle = server.client(veiled);
        idle.ask(1, "/x");
        idle.answer(&mut Vec::new());
        let mut client = server.client(veiled);
        client.ask(1, "/wait/a");
        if has_helpers(engine) {
            client.ask(2, "/wait/b");
        }
        let count = if has_helpers(engine) { 2 } else { 1 };
        server.kit.wait_came(count);
        server.control.give(LoopOrder::Drain);
        assert_eq!(idle.next(), None);
        client.ask(3, "/x");
        if has_helpers(engine) {
            assert_eq!(client.answer(&mut Vec::new()).text(), (3, format!("reset {DRAINING}")));
        }
        server.kit.open_all();
        let mut rest = answers(&mut client, count);
        rest.sort();
        assert_eq!(rest[0], done(1, "/wait/a"));
        // the last one may get the answer that it came too late
        while client.next().is_some() {}
        assert_eq!(server.stop().aborted(), 0);
    });
}

/// The time is so far away that others are answered before. On a machine that stands still until
/// then the test is tried again.
#[test]
fn a_request_that_may_not_be_answered_yet_keeps_no_other() {
    at_once_on_each(|engine, veiled| {
        assert!((0..3).any(|_| keeps_no_other(engine, veiled)), "{engine}, {veiled}");
    });
}

/// Whether the requests were answered that may be. The others are never answered before their time.
fn keeps_no_other(engine: &str, veiled: bool) -> bool {
    let server = start(engine, veiled, |setup| setup.pool = 8);
    let mut client = server.client(veiled);
    let began = std::time::Instant::now();
    for (id, path) in [(1, "/premature"), (2, "/x"), (3, "/premature"), (4, "/job")] {
        client.ask(id, path);
    }
    let all = answers(&mut client, 4);
    assert!(began.elapsed() >= std::time::Duration::from_secs(8), "too early");
    let (mut first, mut last) = (all[..2].to_vec(), all[2..].to_vec());
    first.sort();
    last.sort();
    let is_so = first == [(2, "/x".to_owned()), done(4, "/job")];
    if is_so {
        assert_eq!(last, [(1, "/premature".to_owned()), (3, "/premature".to_owned())], "{engine}");
    } else {
        println!("{engine}, {veiled}: {all:?}");
    }
    drop(client);
    server.stop();
    is_so
}

/// One request holds all that answers, while those of two connections come.
#[test]
fn the_first_rank_overtakes_within_a_connection_and_between_two() {
    if ran_apart() {
        return;
    }
    let engines = LOOPS.into_iter().chain([NEVER_FUSED]);
    for engine in engines.filter(|engine| ENGINES.contains(engine)) {
        for veiled in [false, true] {
            let ordered = format!("{engine}{BY_RANK}");
            let server = start(&ordered, veiled, |setup| {
                setup.fixed = true;
                // a reserve would answer the first rank at once, where threads are not loops
                setup.ranks = Some(ranks(0));
            });
            let mut clients = [server.client(veiled), server.client(veiled)];
            for client in &mut clients {
                client.ask(0, "/x");
                client.answer(&mut Vec::new());
            }
            let mut holder = server.client(veiled);
            holder.ask(1, "/hang/it.bulk");
            server.kit.wait_came(1);
            for (number, client) in clients.iter_mut().enumerate() {
                let mut bytes = Vec::new();
                for (id, path) in [(1, "1.bulk"), (2, "2.bulk"), (3, "3"), (4, "4.gold")] {
                    message(id, ASK, format!("/{number}/{path}").as_bytes(), &mut bytes);
                }
                client.send(&bytes);
            }
            server.calm();
            server.kit.open_all();
            for client in &mut clients {
                answers(client, 4);
            }
            let order: Vec<String> = server.kit.answered.lock().unwrap().clone();
            let ranks: Vec<&str> = order[3..]
                .iter()
                .map(|path| path.rsplit_once('.').map_or("", |(_, rank)| rank))
                .collect();
            let expected = ["gold", "gold", "", "", "bulk", "bulk", "bulk", "bulk"];
            assert_eq!(ranks, expected, "{engine}: {order:?}");
            drop((clients, holder));
            server.stop();
        }
    }
}
