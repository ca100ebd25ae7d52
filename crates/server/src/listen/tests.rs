//! Tests of the listening sockets.

use super::*;
use forebay_sys::file::try_lock;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;

const ANY: Listen = Listen::At(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));

fn tcp(address: &ListenAddress) -> SocketAddr {
    match address {
        ListenAddress::Tcp(address) => *address,
        ListenAddress::Unix(path) => panic!("{path}"),
    }
}

/// A path at which nothing exists yet.
fn path() -> Listen {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("forebay-listen-{}-{number}", std::process::id());
    Listen::Unix(UnixAddress::Path(std::env::temp_dir().join(name)))
}

fn file(listen: &Listen) -> &std::path::Path {
    match listen {
        Listen::Unix(at) => at.path().unwrap(),
        other => panic!("{other}"),
    }
}

/// Accepts all connections that wait at a socket.
fn arrived(socket: &AcceptSocket) -> usize {
    let accept = || match socket::accept(socket.socket.as_fd()).unwrap() {
        socket::Accepted::Connection(socket, _) => Some(socket),
        _ => None,
    };
    std::iter::from_fn(accept).count()
}

#[test]
fn a_second_server_on_the_same_address_is_refused() {
    for loops in [1, 2] {
        let mut listeners = Listeners::default();
        assert_eq!(listeners.take(&[ANY], loops).unwrap().len(), loops);
        let address = Listen::At(tcp(&listeners.addresses(&[ANY])[0]));
        let refused = Listeners::default().take(&[address], loops).unwrap_err();
        assert!(refused.to_string().contains("stop what uses it"), "{refused}");
    }
    let wanted = [path()];
    let mut listeners = Listeners::default();
    listeners.take(&wanted, 1).unwrap();
    let refused = Listeners::default().take(&wanted, 1).unwrap_err();
    assert!(refused.to_string().contains("stop what uses it"), "{refused}");
}

/// A client that connects while an address is being opened is refused or waits in the queue.
#[test]
fn nobody_is_lost_who_comes_while_an_address_is_opened() {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    // an address that only this process uses
    let any = Listen::At(SocketAddr::from(([127, a | 64, b, c], 0)));
    let mut listeners = Listeners::default();
    listeners.take(std::slice::from_ref(&any), 1).unwrap();
    let address = tcp(&listeners.addresses(&[any])[0]);
    drop(listeners);
    for round in 0..20 {
        // a child of another test holds copies of the descriptors until its exec
        let begun = Instant::now();
        while Listeners::default().probe(address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: not free");
            sleep(Duration::from_millis(1));
        }
        let connect = move || loop {
            if let Ok(stream) = TcpStream::connect(address) {
                return stream;
            }
        };
        let client = std::thread::spawn(connect);
        let mut listeners = Listeners::default();
        // only this call is made once for an address: the moment is short
        for _ in 0..1_000 {
            listeners.probe(address).unwrap();
        }
        let by_loop = listeners.take(&[Listen::At(address)], 1).unwrap();
        let mut client = client.join().unwrap();
        // the kernel reports the connection only once the client has sent something
        let _ = client.write_all(b"x");
        let begun = Instant::now();
        while arrived(&by_loop[0][0]) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: lost");
            sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn sockets_stay_and_are_dealt_out_anew() {
    let mut listeners = Listeners::default();
    let sizes = |by_loop: Vec<Vec<AcceptSocket>>| by_loop.iter().map(Vec::len).collect::<Vec<_>>();
    for (loops, expected) in [(2, vec![1, 1]), (3, vec![1, 1, 1]), (2, vec![2, 1]), (1, vec![3])] {
        assert_eq!(sizes(listeners.take(&[ANY], loops).unwrap()), expected);
    }
    assert_eq!(listeners.addresses(&[ANY]).len(), 1);
}

/// Engines accept from one socket; those for further loops must be closed again, or clients would
/// wait there for ever.
#[test]
fn sockets_for_loops_that_do_not_come_are_closed() {
    let mut listeners = Listeners::default();
    let by_loop = listeners.take(&[ANY], 1).unwrap();
    listeners.settle();
    let address = tcp(&listeners.addresses(&[ANY])[0]);
    drop(listeners.take(&[ANY], 8).unwrap());
    listeners.undo(&[ANY]);
    let clients: Vec<_> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    clients.iter().for_each(|mut client| client.write_all(b"x").unwrap());
    let mut count = 0;
    while count < clients.len() {
        count += arrived(&by_loop[0][0]);
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn opening_is_timed_step_by_step() {
    let mut listeners = Listeners::default();
    assert_eq!(listeners.times().get(), OpenSteps::default());
    listeners.take(&[ANY], 1).unwrap();
    let one = listeners.times().get();
    let steps =
        |times: OpenSteps| [times.socket_ns, times.options_ns, times.bind_ns, times.listen_ns];
    assert!(steps(one).iter().all(|ns| *ns > 0), "{one:?}");
    // an open socket is not opened again
    listeners.take(&[ANY], 1).unwrap();
    assert_eq!(listeners.times().get(), one);
    listeners.take(&[ANY], 2).unwrap();
    let two = listeners.times().get();
    assert!(steps(one).iter().zip(steps(two)).all(|(one, two)| *one < two), "{two:?}");
}

#[test]
fn one_address_may_take_the_place_of_all_and_back() {
    let mut listeners = Listeners::default();
    listeners.take(&[Listen::All(0)], 2).unwrap();
    let port = listeners.addresses(&[Listen::All(0)])[0].port().unwrap();
    let (all, one) = ([Listen::All(port)], [Listen::At((Ipv4Addr::LOCALHOST, port).into())]);
    let v4 = [Listen::At((Ipv4Addr::UNSPECIFIED, port).into())];
    // the IPv4 wildcard is a part of both wildcards, and stays open
    let versions = listeners.addresses(&all).len();
    listeners.take(&v4, 2).unwrap();
    assert_eq!(listeners.leave(&v4), versions > 1);
    assert_eq!(listeners.addresses(&v4).len(), 1);
    // one address beside the wildcards, which are left, closed and opened again
    for (next, count) in [(&one, 1), (&all, versions)] {
        listeners.take(next, 2).unwrap();
        assert!(listeners.leave(next));
        listeners.left_long_ago();
        listeners.close();
        assert_eq!((listeners.addresses(next).len(), listeners.open.len()), (count, count));
    }
}

#[test]
fn a_port_that_is_chosen_is_the_same_for_both_versions() {
    let mut listeners = Listeners::default();
    let all = [Listen::All(0)];
    let by_loop = listeners.take(&all, 1).unwrap();
    let ports: Vec<_> = listeners.addresses(&all).iter().map(|at| at.port().unwrap()).collect();
    assert!(ports.iter().all(|port| *port == ports[0] && *port != 0), "{ports:?}");
    // a reload uses the same sockets
    assert_eq!(listeners.take(&all, 1).unwrap()[0].len(), by_loop[0].len());
    assert!(!listeners.leave(&all));
}

#[test]
fn what_is_left_takes_nothing_new_but_loses_nothing() {
    let mut listeners = Listeners::default();
    let by_loop = listeners.take(&[ANY], 1).unwrap();
    let address = tcp(&listeners.addresses(&[ANY])[0]);
    let early: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(listeners.leave(&[]));
    assert!(!listeners.leave(&[]));
    let brief = Duration::from_millis(300);
    TcpStream::connect_timeout(&address, brief).expect_err("a new connection was taken");
    // silent clients are reported, too, when the kernel asks them again
    sleep(ARRIVAL);
    let (mut count, deadline) = (0, Instant::now() + Duration::from_secs(30));
    while count < early.len() && Instant::now() < deadline {
        count += arrived(&by_loop[0][0]);
        sleep(Duration::from_millis(5));
    }
    assert_eq!(count, early.len());
    listeners.left_just_now();
    listeners.close();
    assert_eq!(listeners.open.len(), 1, "too early");
    listeners.take(&[ANY], 1).unwrap();
    drop(TcpStream::connect(address).expect("it was taken again"));
}

#[test]
fn a_unix_socket_is_one_for_all_loops_and_its_file_goes() {
    let wanted = [path()];
    let mut listeners = Listeners::default();
    let by_loop = listeners.take(&wanted, 3).unwrap();
    assert!(by_loop.iter().all(|of_loop| of_loop.len() == 1 && of_loop[0].shared));
    assert!(by_loop.iter().all(|of_loop| of_loop[0].local == forebay_conn::Peer::UNIX));
    let client = UnixStream::connect(file(&wanted[0])).unwrap();
    assert!(listeners.leave(&[]));
    assert!(!file(&wanted[0]).exists());
    assert_eq!(arrived(&by_loop[2][0]), 1);
    drop(client);
    // while the old socket exists, a new one can be opened
    assert!(!listeners.take(&wanted, 1).unwrap()[0][0].shared);
    listeners.left_long_ago();
    listeners.close();
    assert_eq!(listeners.open.len(), 1);
    assert!(file(&wanted[0]).exists(), "the old one took the new one's file along");
    listeners.end(&[]);
    assert!(!file(&wanted[0]).exists());
}

#[test]
fn the_end_of_others_leaves_a_unix_socket_its_file() {
    let (site, admin) = (path(), path());
    let mut listeners = Listeners::default();
    listeners.take(&[site.clone(), admin.clone()], 1).unwrap();
    listeners.end(std::slice::from_ref(&admin));
    assert!(!file(&site).exists());
    drop(UnixStream::connect(file(&admin)).expect("it is still there"));
    listeners.end(&[]);
    assert!(!file(&admin).exists());
}

/// A user who may read a directory may also lock it.
#[test]
fn a_directory_that_stays_locked_is_waited_for_once_by_all_sockets_in_it() {
    let folder = file(&path()).to_owned();
    std::fs::create_dir(&folder).unwrap();
    let lock = File::open(&folder).unwrap();
    assert!(try_lock(&lock).unwrap());
    let wanted =
        ["first", "second", "third"].map(|name| Listen::Unix(UnixAddress::Path(folder.join(name))));
    let mut listeners = Listeners::default();
    *listeners.lock_wait() = WaitBudget::new(Duration::from_millis(50));
    listeners.take(&wanted, 1).unwrap();
    assert_eq!(*listeners.lock_wait(), WaitBudget::new(Duration::ZERO));
    for socket in &wanted {
        drop(UnixStream::connect(file(socket)).expect("it is there all the same"));
    }
    drop(listeners);
    std::fs::remove_dir(folder).unwrap();
}

impl Listeners {
    /// Makes the moment of leaving so late that it does not become long ago during the test.
    fn left_just_now(&mut self) {
        for open in self.open.iter_mut().filter(|open| open.left.is_some()) {
            open.left = Instant::now().checked_add(Duration::from_secs(3600));
        }
    }

    fn left_long_ago(&mut self) {
        for open in self.open.iter_mut().filter(|open| open.left.is_some()) {
            open.left = Instant::now().checked_sub(3 * ARRIVAL);
        }
    }

    /// Adds a socket as if a service manager had opened it.
    fn pass(&mut self, listen: &Listen, name: &str) {
        let address = ListenAddress::try_from(listen).unwrap();
        let (socket, bound) = match &address {
            ListenAddress::Tcp(address) => {
                let options = ListenOptions { backlog: 16, reuse_port: false, owner: None };
                let socket = socket::listen(*address, options).unwrap();
                let address = socket::local_address(&socket).unwrap();
                (socket, InheritedAddress::Internet { address, with_ipv4: false })
            }
            ListenAddress::Unix(unix) => {
                let path = unix.path().unwrap();
                let (socket, file) = unix::listen(path, 16, &mut self.lock_wait).unwrap();
                std::mem::forget(file);
                (socket, InheritedAddress::Unix(unix.clone()))
            }
        };
        self.inherited.push(Inherited { socket, name: name.to_owned(), bound });
    }
}

/// A socket such as `ListenStream=80` makes where the machine has IPv6.
#[test]
fn one_socket_for_both_families_is_for_both_addresses() {
    let both = || loop {
        let mut listeners = Listeners::default();
        let any = Listen::At((Ipv6Addr::UNSPECIFIED, 0).into());
        listeners.pass(&any, "web");
        let passed = listeners.inherited.last_mut().unwrap();
        let InheritedAddress::Internet { address, with_ipv4 } = &mut passed.bound else {
            unreachable!()
        };
        // a socket for IPv6 alone leaves the IPv4 half free, so another socket takes that place
        *with_ipv4 = true;
        let port = address.port();
        let taken = socket::listen(
            (Ipv4Addr::UNSPECIFIED, port).into(),
            ListenOptions { backlog: 16, reuse_port: false, owner: None },
        );
        match taken {
            Ok(taken) => break (listeners, port, taken),
            // the kernel chose a port that is free for IPv6: another process may have its IPv4 half
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        }
    };
    let at = |ip: IpAddr, port| Listen::At((ip, port).into());
    let v4 = |port| at(Ipv4Addr::UNSPECIFIED.into(), port);
    let v6 = |port| at(Ipv6Addr::UNSPECIFIED.into(), port);
    for is_first in [true, false] {
        let (mut listeners, port, _taken) = both();
        let mut wanted = vec![v6(port), v4(port)];
        wanted.rotate_left(usize::from(is_first));
        for _ in 0..2 {
            let by_loop = listeners.take(&wanted, 2).unwrap();
            assert!(by_loop.iter().all(|sockets| sockets.len() == 1));
            listeners.check_inherited(&wanted).unwrap();
        }
        // a listener of another kind gets nothing from it
        let loopback = at(Ipv4Addr::LOCALHOST.into(), port);
        for other in [v4(port), loopback] {
            let error = listeners.take(&[other], 2).unwrap_err().to_string();
            let expected = format!("passed for [::]:{port} (web) takes IPv4 as well");
            assert!(error.contains(&expected), "{error}");
        }
        listeners.take(&[Listen::All(port)], 2).unwrap();
    }
}

#[test]
fn what_was_passed_on_is_taken_and_must_be_named() {
    let mut listeners = Listeners::default();
    let unix = path();
    listeners.pass(&ANY, "web");
    listeners.pass(&unix, "local");
    let passed = Listen::At(tcp(&address_of(&listeners.inherited[0].bound).unwrap()));
    let wanted = [passed.clone(), unix.clone()];
    let by_loop = listeners.take(&wanted, 2).unwrap();
    assert!(by_loop.iter().flatten().all(|socket| socket.shared));
    listeners.check_inherited(&wanted).unwrap();
    let error = listeners.check_inherited(&wanted[1..]).unwrap_err().to_string();
    assert!(error.contains(&format!("{passed} (web)")), "{error}");
    drop(listeners);
    assert!(file(&unix).exists(), "the file is the service manager's");
    std::fs::remove_file(file(&unix)).unwrap();

    let mut listeners = Listeners::default();
    listeners.pass(&ANY, "web");
    assert!(listeners.check_inherited(&[ANY]).unwrap_err().to_string().contains("(web)"));
}
