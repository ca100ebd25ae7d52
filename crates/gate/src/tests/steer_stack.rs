//! Tests of handshakes without state together with the stack: its own cookies, and full queues.

use super::filters::soon;
use super::in_namespace;
use super::steer::{PATIENCE, PUBLIC, Steered, gold_and_silver, head, policy, rule};
use crate::Count;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Limit, Over, Rule};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Sets the backlog of a listening socket; its queue holds one connection more.
fn set_backlog(listener: &TcpListener, backlog: i32) {
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), backlog) }, 0);
}

/// Handshakes with the kernel's own cookies while ours are still completed: none of their segments is taken
/// for one that came too early, which would otherwise happen to one in sixteen.
#[test]
fn cookies_of_the_kernel_are_left_to_it() {
    in_namespace(|| {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let steered = Steered::new(&policy(gold_and_silver()));
        let rank_of_one = |family| {
            let (rank, client, mut server) = steered.send(family, &[&head("/silver")]);
            let mut read = vec![0; head("/silver").len()];
            server.read_exact(&mut read).unwrap();
            // the server closes first and has TIME_WAIT, so that a late segment of the client still finds a
            // socket
            drop(server);
            drop(client);
            rank
        };
        assert_eq!(rank_of_one(0), Some(1));
        steered.gate.place(&[]).unwrap();
        assert!(!steered.gate.answers());
        for turn in 0..200 {
            assert_eq!(rank_of_one(turn % 2), None);
        }
        assert_eq!((steered.counted(Count::Answered), steered.counted(Count::Later)), (1, 0));
    });
}

#[test]
fn a_full_queue_of_a_class_refuses_as_its_rule_says() {
    in_namespace(|| {
        let over = |over| Some(Limit { over, ..Limit::new(Rate::parse("1000/s").unwrap(), 1000) });
        let rules = vec![
            rule("gold", "gold", &["/gold"]),
            Rule { requests: over(Over::Drop), ..rule("silver", "silver", &["/silver"]) },
            Rule {
                requests: over(Over::Reject { status: None }),
                ..rule("bulk", "bulk", &["/bulk"])
            },
        ];
        let steered = Steered::new(&policy(rules));
        // each queue holds two connections
        let sockets = steered.classes.iter().flatten().flatten();
        sockets.for_each(|socket| set_backlog(socket, 1));
        let connect = |path: &str| {
            let mut client = TcpStream::connect(PUBLIC[0]).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(&head(path)).unwrap();
            client
        };
        // the number of first segments that were made or refused
        let judged = || -> u64 {
            let outcomes = [Count::Made, Count::FullReset, Count::FullDropped];
            outcomes.into_iter().map(|outcome| steered.counted(outcome)).sum()
        };
        for (path, outcome) in [
            ("/gold", Count::FullReset),
            ("/silver", Count::FullDropped),
            ("/bulk", Count::FullReset),
        ] {
            let before = steered.counted(outcome);
            let mut clients = Vec::new();
            // two sockets, two places each
            while steered.counted(outcome) == before {
                assert!(clients.len() < 200, "{path}");
                let others = judged();
                clients.push(connect(path));
                // the client's segment may be under way
                assert!(soon(|| judged() > others), "{path}: {:?}", steered.gate.counts());
            }
            let mut last = clients.pop().unwrap();
            assert!(clients.len() >= 2, "{path}: {}", clients.len());
            if outcome == Count::FullReset {
                let error = last.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{path}");
                continue;
            }
            // with `drop` the client waits: its data is retransmitted until there is room
            let mut rest = clients.len() + 1;
            while rest > 0 {
                let (rank, mut server) = steered.next(0);
                if rank == Some(1) {
                    server.read_exact(&mut vec![0; head(path).len()]).unwrap();
                    server.write_all(b"a").unwrap();
                    rest -= 1;
                }
            }
            assert_eq!(last.read(&mut [0]).unwrap(), 1);
        }
        assert_eq!(steered.counted(Count::MadePublic), 0);
        // others come to their classes as ever
        assert_eq!(steered.send(1, &[&head("/gold")]).0, Some(0));
    });
}
