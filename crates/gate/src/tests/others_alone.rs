//! Another server, which applies no rules itself: what is judged for it, how clients are refused, and what is
//! left to the stack.

use super::agree::{AskedFirst, agrees, outcome};
use super::filters::soon;
use super::first_packets::{judging, refusing};
use super::in_namespace;
use super::others::{OTHER, ask, here, protecting, send};
use super::packets::{ACK, Packet, RST, sent_back};
use super::steer::{PATIENCE, Steered, first, gold_and_silver, head, hello, policy, rule};
use super::vectors::{DROPPED, REDIRECTED, UNTOUCHED};
use crate::{Count, FirstCount, OtherServer};
use forebay_policy::Policy;
use forebay_policy::condition::Conditions;
use forebay_policy::decision::RefusalAnswer;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::field::FieldCondition;
use forebay_policy::first::{FirstRequest, FirstShown};
use forebay_policy::pattern::SitePattern;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Over, Per, Rule};
use proptest::prelude::*;
use proptest::sample::select;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};

const CLIENT: &str = "127.0.0.9";

fn of_client(name: &str, client: &str) -> Rule {
    let conditions =
        Conditions { client: vec![Endpoint::parse(client).unwrap()], ..Conditions::default() };
    Rule { name: name.to_owned(), conditions, ..Rule::default() }
}

fn of_site(name: &str, site: &str, action: Action) -> Rule {
    let conditions =
        Conditions { site: vec![SitePattern::parse(site).unwrap()], ..Conditions::default() };
    Rule { name: name.to_owned(), conditions, action: Some(action), ..Rule::default() }
}

/// The first segment with this data of a client with this port.
fn begin(steered: &Steered, port: u16, data: &[u8]) -> Packet {
    let client = SocketAddr::new(CLIENT.parse().unwrap(), port);
    steered.begin(client, OTHER.parse().unwrap(), true, data.to_vec())
}

/// A ClientHello that names this server.
fn hello_for(name: &str) -> Vec<u8> {
    let bytes = name.len() as u16;
    let named = [&(bytes + 3).to_be_bytes()[..], &[0], &bytes.to_be_bytes(), name.as_bytes()];
    let named = named.concat();
    let extension = [&[0, 0][..], &(named.len() as u16).to_be_bytes(), &named].concat();
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    body.extend((extension.len() as u16).to_be_bytes());
    body.extend(extension);
    let bytes = body.len() as u16;
    let record = [&[22, 3, 1][..], &(bytes + 4).to_be_bytes(), &[1, 0], &bytes.to_be_bytes()];
    [record.concat(), body].concat()
}

#[test]
fn an_error_of_http_is_for_requests_alone() {
    in_namespace(|| {
        let mut rules = gold_and_silver();
        rules.push(Rule { action: Some(Action::Reject(451)), ..of_client("foe", CLIENT) });
        let (steered, _other) = protecting(rules, 1);
        let answer = |port, data: &[u8]| {
            let segment = begin(&steered, port, data);
            let (verdict, answer) = steered.gate.run_on(&segment.bytes()).unwrap();
            assert_eq!(verdict, REDIRECTED);
            sent_back(&answer, &segment)
        };
        for (port, data) in (1..).zip([&b"GET /a HTTP/1.1\r\n\r\n"[..], b"GET /%61 HTTP/1.0\r\n"]) {
            let page = answer(port, data);
            assert!(page.data.starts_with(b"HTTP/1.1 451 "), "{page:?}");
        }
        let others = [
            &hello_for("a.example")[..],
            b"\x16\x03\x01 cut",
            b"SSH-2.0-OpenSSH_9.2p1\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
        ];
        for (port, data) in (9..).zip(others) {
            let reset = answer(port, data);
            assert_eq!((reset.flags & RST, &reset.data[..]), (RST, &[][..]), "{data:?}");
        }
        assert_eq!(steered.first(FirstCount::Answered), 2);
        assert_eq!(steered.first(FirstCount::Reset), 5);
    });
}

#[test]
fn a_hello_is_judged_by_the_name_in_it() {
    in_namespace(|| {
        let mut rules = gold_and_silver();
        rules.push(of_site("old", "old.example", Action::Reject(410)));
        let mut buyers = of_site("shop", "shop.example", Action::Allow);
        (buyers.action, buyers.class) = (None, Some("gold".to_owned()));
        rules.push(buyers);
        let (steered, _other) = protecting(rules, 1);
        let verdict = |port, name| {
            let segment = begin(&steered, port, &hello_for(name));
            let (verdict, answer) = steered.gate.run_on(&segment.bytes()).unwrap();
            if verdict == REDIRECTED {
                assert_eq!(sent_back(&answer, &segment).flags & RST, RST);
            }
            verdict
        };
        assert_eq!(verdict(1, "old.example"), REDIRECTED);
        assert_eq!(verdict(2, "new.example"), UNTOUCHED);
        let _waiting = send("/other");
        assert!(soon(|| steered.counted(Count::MadeOther) == 1));
        assert_eq!(verdict(3, "new.example"), DROPPED, "it is of the last class");
        assert_eq!(verdict(4, "shop.example"), UNTOUCHED, "it is of the first");
    });
}

#[test]
fn a_rule_that_cannot_be_told_hides_no_other() {
    in_namespace(|| {
        let limit = Limit::new(Rate::parse("1/h").unwrap(), 1);
        let of_each = Limit { per: Per::Client, over: Over::Reset, ..limit };
        let mut perhaps = refusing("perhaps", "/no", Action::Reject(401));
        perhaps.conditions.cookie = vec![FieldCondition::parse("tier=foe").unwrap()];
        perhaps.stop = true;
        let rules = vec![
            Rule { connections: Some(of_each), ..of_client("each", CLIENT) },
            perhaps,
            refusing("no", "/no", Action::Reject(403)),
            rule("gold", "gold", &["/gold/*"]),
        ];
        let (steered, _other) = protecting(rules, 1);
        let page = |data: &[u8], port| {
            let segment = begin(&steered, port, data);
            let (verdict, answer) = steered.gate.run_on(&segment.bytes()).unwrap();
            assert_eq!(verdict, REDIRECTED);
            String::from_utf8(sent_back(&answer, &segment).data).unwrap()
        };
        // only the next segment would show whether the cookie is there
        let cut = page(b"GET /no HTTP/1.1\r\nHost: a\r\n", 1);
        assert!(cut.starts_with("HTTP/1.1 403 "), "{cut}");
        let foe = page(b"GET /no HTTP/1.1\r\nCookie: tier=foe\r\n\r\n", 2);
        assert!(foe.starts_with("HTTP/1.1 401 "), "{foe}");
        assert_eq!(ask(&steered, 3, "/yes"), UNTOUCHED);
    });
}

#[test]
fn a_server_that_speaks_first_is_left_to_the_stack() {
    in_namespace(|| {
        let steered = judging(&policy(gold_and_silver()));
        let other = TcpListener::bind(OTHER).unwrap();
        let speaks = OtherServer { speaks_first: true, ..here(1) };
        steered.gate.protect(&[speaks]).unwrap();
        steered.gate.attach(&[]).unwrap();
        let mut client = TcpStream::connect(OTHER).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut server, _) = other.accept().unwrap();
        server.write_all(b"220 hello\r\n").unwrap();
        let mut greeting = [0; 11];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"220 hello\r\n");
        assert_eq!(steered.counted(Count::Passed), 1);
        assert_eq!(steered.counted(Count::Answered), 0);
    });
}

#[test]
fn who_is_connected_and_silent_stays_when_a_server_is_protected_no_more() {
    in_namespace(|| {
        let (steered, other) = protecting(vec![refusing("no", "/no", Action::Reset)], 1);
        let own: Vec<_> = steered.public.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut silent = TcpStream::connect(OTHER).unwrap();
        silent.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(soon(|| steered.counted(Count::Bare) == 1));
        for _ in 0..2 {
            steered.gate.protect(&[]).unwrap();
            steered.gate.attach(&own).unwrap();
        }
        // the server is not protected any more
        silent.write_all(&head("/no")).unwrap();
        let (mut server, from) = other.accept().unwrap();
        assert_eq!(from, silent.local_addr().unwrap());
        server.read_exact(&mut vec![0; head("/no").len()]).unwrap();
        server.write_all(b"answer").unwrap();
        drop(server);
        let mut answer = String::new();
        silent.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        let syns = steered.counted(Count::Syns);
        let _new = send("/no");
        other.accept().unwrap();
        assert_eq!((steered.counted(Count::Syns), steered.counted(Count::Answered)), (syns, 1));
    });
}

/// The answer to a client that reuses this port, which it had a moment before.
fn ask_from(port: u16, path: &str) -> std::io::Result<String> {
    let address: SocketAddr = OTHER.parse().unwrap();
    // SAFETY: a new descriptor with this as its only owner, and a complete address.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(socket >= 0);
        let mut from: libc::sockaddr_in = std::mem::zeroed();
        from.sin_family = libc::AF_INET as libc::sa_family_t;
        from.sin_port = port.to_be();
        from.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let bytes = size_of_val(&from) as libc::socklen_t;
        let one = 1_i32;
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            (&raw const one).cast(),
            size_of_val(&one) as libc::socklen_t,
        );
        assert_eq!(libc::bind(socket, (&raw const from).cast(), bytes), 0);
        from.sin_port = address.port().to_be();
        if libc::connect(socket, (&raw const from).cast(), bytes) != 0 {
            let error = std::io::Error::last_os_error();
            libc::close(socket);
            return Err(error);
        }
        OwnedFd::from_raw_fd(socket)
    };
    let mut client = TcpStream::from(socket);
    client.set_read_timeout(Some(PATIENCE))?;
    client.write_all(&head(path))?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Accepts a connection, reads a request and closes first, so that TIME_WAIT is on this side; returns the
/// bytes read, or the error.
fn serve(other: &TcpListener) -> std::io::Result<usize> {
    let (mut server, _) = other.accept()?;
    server.set_read_timeout(Some(PATIENCE))?;
    let read = server.read(&mut [0; 1000])?;
    server.write_all(b"answer")?;
    Ok(read)
}

#[test]
fn a_port_that_comes_again_too_soon_comes_past_no_rule() {
    in_namespace(|| {
        let (steered, other) = protecting(vec![refusing("no", "/no", Action::Reject(403))], 1);
        let server = std::thread::spawn(move || [(); 3].map(|()| serve(&other)));
        assert_eq!(ask_from(4321, "/yes").unwrap(), "answer");
        assert_eq!(ask_from(4321, "/yes").unwrap(), "answer");
        assert_eq!(steered.counted(Count::TimeWait), 1);
        let error = ask_from(4321, "/no").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        // the server has received nothing of the refused request
        let [first, second, refused] = server.join().unwrap();
        assert_eq!((first.unwrap(), second.unwrap()), (head("/yes").len(), head("/yes").len()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(steered.gate.tally("no").reset, 1);
        assert_eq!(steered.first(FirstCount::Passed), 2);
    });
}

/// A listening socket of MPTCP, for which the kernel has one of TCP inside.
fn listen_multipath() -> Option<TcpListener> {
    const MPTCP: libc::c_int = 262;
    let address: SocketAddr = OTHER.parse().unwrap();
    // SAFETY: a new descriptor with this as its only owner, and a complete address.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, MPTCP);
        if socket < 0 {
            eprintln!("SKIPPED: this kernel has no MPTCP");
            return None;
        }
        let mut at: libc::sockaddr_in = std::mem::zeroed();
        at.sin_family = libc::AF_INET as libc::sa_family_t;
        at.sin_port = address.port().to_be();
        at.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let bytes = size_of_val(&at) as libc::socklen_t;
        assert_eq!(libc::bind(socket, (&raw const at).cast(), bytes), 0);
        assert_eq!(libc::listen(socket, 16), 0);
        Some(TcpListener::from(OwnedFd::from_raw_fd(socket)))
    }
}

#[test]
fn a_listener_of_mptcp_completes_its_own_handshakes() {
    in_namespace(|| {
        let Some(other) = listen_multipath() else { return };
        let steered = judging(&policy(vec![refusing("no", "/no", Action::Reject(403))]));
        steered.gate.protect(&[here(1)]).unwrap();
        steered.gate.attach(&[]).unwrap();
        let server = std::thread::spawn(move || [(); 2].map(|()| serve(&other)));
        assert_eq!(ask_from(1234, "/yes").unwrap(), "answer");
        let error = ask_from(1235, "/no").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let [served, refused] = server.join().unwrap();
        assert_eq!(served.unwrap(), head("/yes").len());
        assert!(refused.is_err());
        assert_eq!(steered.counted(Count::Answered), 0);
        assert_eq!(steered.gate.tally("no").reset, 1);
    });
}

#[test]
fn a_syn_with_data_is_judged_as_one_without() {
    in_namespace(|| {
        let limit = Limit { over: Over::Drop, ..Limit::new(Rate::parse("1/h").unwrap(), 2) };
        let few = || Rule { connections: Some(limit), ..of_client("few", CLIENT) };
        let (steered, _other) = protecting(vec![few(), rule("gold", "gold", &["/gold"])], 1);
        let syn = |port: u16| Packet {
            data: head("/gold"),
            ..Packet::between(
                SocketAddr::new(CLIENT.parse().unwrap(), port),
                OTHER.parse().unwrap(),
            )
        };
        // a SYN with data is answered as if it had none: the data is retransmitted behind the handshake
        let (verdict, answer) = steered.gate.run_on(&syn(1).bytes()).unwrap();
        assert_eq!(verdict, REDIRECTED);
        assert_eq!(sent_back(&answer, &syn(1)).acknowledged, syn(1).sequence + 1);
        // a SYN that only the stack can answer would bypass the rules with its data, and is retransmitted
        // without
        let small = Packet { options: vec![2, 4, 1, 0], ..syn(2) };
        assert_eq!(steered.gate.run_on(&small.bytes()).unwrap().0, DROPPED);
        let bare = Packet { data: Vec::new(), ..small };
        assert_eq!(steered.gate.run_on(&bare.bytes()).unwrap().0, UNTOUCHED);
        drop(steered);
        // where the stack makes a connection from the SYN, it is charged at once: no acknowledgement need
        // come
        let gate = crate::Gate::load(crate::Charge::AtHandshake).unwrap();
        let policy = Policy::new(&[], vec![few()]).unwrap();
        gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
        gate.protect(&[here(1)]).unwrap();
        gate.attach(&[]).unwrap();
        let verdicts = [1, 2, 3].map(|port| gate.run_on(&syn(port).bytes()).unwrap().0);
        assert_eq!(verdicts, [UNTOUCHED, UNTOUCHED, DROPPED]);
    });
}

#[test]
fn an_address_of_this_machine_is_passed_on_to_no_other() {
    in_namespace(|| {
        let mut rules = gold_and_silver();
        rules.push(Rule { action: Some(Action::Drop), ..of_client("foe", CLIENT) });
        let steered = judging(&policy(rules));
        let own: SocketAddr = steered.public[0].local_addr().unwrap();
        let wrong = OtherServer { forwarded_to: Some(own.ip()), port: own.port(), ..here(1) };
        steered.gate.protect(&[wrong]).unwrap();
        steered.gate.attach(&[own]).unwrap();
        steered.place(&steered.classes[..1], false);
        let friend = SocketAddr::new("127.0.0.8".parse().unwrap(), 1);
        let segment = steered.begin(friend, own, true, head("/gold/a"));
        assert_eq!(segment.flags & ACK, ACK);
        assert_eq!(steered.counted(Count::Answered), 1);
        // an address of this machine that is configured as another machine's: its listener is judged as that
        // one's
        let _other = TcpListener::bind(OTHER).unwrap();
        let named = OtherServer { forwarded_to: Some([127, 0, 0, 1].into()), ..here(1) };
        steered.gate.protect(&[named]).unwrap();
        steered.gate.attach(&[own]).unwrap();
        let foe = SocketAddr::new(CLIENT.parse().unwrap(), 1);
        let syn = Packet::between(foe, OTHER.parse().unwrap());
        assert_eq!(steered.gate.run_on(&syn.bytes()).unwrap().0, DROPPED);
    });
}

#[test]
fn connections_of_another_server_are_in_no_queue_of_ours() {
    in_namespace(|| {
        let (steered, other) = protecting(gold_and_silver(), 4);
        let _one = send("/gold/a");
        other.accept().unwrap();
        assert_eq!(steered.gate.judged(3), (vec![0, 0, 0], 0));
        assert_eq!(steered.counted(Count::MadeOther), 1);
    });
}

/// Whether the program takes `data` for a request of HTTP/1.
fn is_request(data: &[u8]) -> bool {
    let is_method = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    let method = data.iter().take_while(|byte| is_method(byte)).count();
    (1..=15).contains(&method) && data.get(method) == Some(&b' ') && &data[..method] != b"PRI"
}

/// The expected verdict on a first segment for another server, and the counter.
fn expected(steered: &Steered, asked: &AskedFirst<'_>) -> (u32, FirstCount) {
    let AskedFirst { policy, ends, data, degree, full } = *asked;
    let answers = is_request(data);
    let refused = |answer| match answer {
        RefusalAnswer::Drop => (DROPPED, FirstCount::Dropped),
        RefusalAnswer::Reject { .. } if answers => (REDIRECTED, FirstCount::Answered),
        RefusalAnswer::Reset | RefusalAnswer::Reject { .. } => (REDIRECTED, FirstCount::Reset),
    };
    if let FirstRequest::Refuse(_, answer) = policy.first_connection(ends, degree) {
        return refused(answer);
    }
    let found = policy.first_alone(ends, &FirstShown::read(data), degree, |rule| rule == full);
    outcome(steered, policy, found, refused)
}

#[test]
fn the_kernel_judges_for_others_as_the_policy_says() {
    in_namespace(|| {
        let steered = judging(&policy(vec![rule("gold", "gold", &["/gold"])]));
        let _other = TcpListener::bind("[::]:9090").unwrap();
        steered.gate.protect(&[here(1)]).unwrap();
        let own: Vec<_> = steered.public.iter().map(|one| one.local_addr().unwrap()).collect();
        steered.gate.attach(&own).unwrap();
        let client = prop_oneof![
            select(vec!["127.0.0.1", "127.0.0.2"]).prop_map(|client| (client, OTHER)),
            Just(("::1", "[::1]:9090")),
        ];
        let data = prop_oneof![3 => first(), 1 => hello()];
        agrees(&steered, client, data, |asked| expected(&steered, asked));
    });
}
