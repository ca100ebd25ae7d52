//! The cost of a silent WebSocket: memory of the process and of the kernel, beside nginx if that is
//! installed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::ALONE;
use forebay_tests::faults::crowd::{allow_descriptors, client_address, connect_from};
use forebay_tests::faults::process::resident_kib;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::http2::Client;
use forebay_tests::server::free_addr;
use forebay_tests::websocket::{TunnelEnd, accept, begin};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, is_full_matrix};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

/// The process memory in bytes that a WebSocket over HTTP/1.1 may take.
const MOST_BYTES: usize = 6 * 1024;
/// The process memory in bytes that one of many WebSockets on a connection of HTTP/2 may take.
const MOST_STREAM_BYTES: usize = 6 * 1024;

/// An application that changes the protocol and keeps what comes, without a thread for each.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut reader = BufReader::with_capacity(2048, stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    break;
                }
            }
            let key = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("sec-websocket-key").then_some(value)
            });
            let stream = reader.into_inner();
            let answer = accept(key.unwrap_or_default());
            let text = format!(
                "HTTP/1.1 101 Yes\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {answer}\r\n\r\n"
            );
            _ = (&stream).write_all(text.as_bytes());
            kept.push(stream);
        }
    });
    addr
}

/// The memory in KiB that the kernel keeps for itself and does not give away, sockets among it, of the
/// whole machine.
fn kernel_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("SUnreclaim:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The bytes of the process and of the kernel for each WebSocket, measured with `count` of them over
/// HTTP/1.1.
fn cost(name: &str, addr: SocketAddr, pid: u32, count: usize) -> usize {
    let open = |at: usize| {
        let stream = connect_from(client_address(at / 5000), addr).unwrap();
        TunnelEnd::by_http1(stream, "/ws")
    };
    // what is needed once is there before the measurement
    let mut tunnels: Vec<_> = (0..100).map(open).collect();
    let (before_kib, kernel_before_kib) = (resident_kib(pid), kernel_kib());
    tunnels.extend((0..count).map(open));
    let grown = resident_kib(pid).saturating_sub(before_kib) as usize * 1024 / count;
    let kernel = kernel_kib().saturating_sub(kernel_before_kib) as usize * 1024 / count;
    println!(
        "{name}: {count} idle WebSockets, each {grown} bytes of the process, {kernel} of the kernel (with both their ends)"
    );
    grown
}

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn nginx(folder: &Folder, addr: SocketAddr, to: SocketAddr) -> Result<Nginx, String> {
    let text = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/log; worker_rlimit_nofile 50000;\n\
         events {{ worker_connections 40000; }}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/b;\n\
         fastcgi_temp_path {at}/b; uwsgi_temp_path {at}/b; scgi_temp_path {at}/b;\n\
         server {{ listen {addr}; location / {{ proxy_pass http://{to}; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;\n\
         proxy_read_timeout 1h; proxy_send_timeout 1h; }} }} }}\n",
        at = folder.path().display()
    );
    let file = folder.write("nginx.conf", text);
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file).arg("-p").arg(folder.path()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| format!("nginx: {error}"))?;
    let nginx = Nginx(child);
    match soon(PATIENCE, || TcpStream::connect(addr).is_ok()) {
        true => Ok(nginx),
        false => Err("nginx does not listen".to_owned()),
    }
}

fn start(to: SocketAddr, folder: &Folder) -> Server {
    let lines = format!(
        "limits.connections = 30000\nlimits.connections_per_client = 30000\nlimits.streams = 128\n\
         [[proxy]]\npath = \"/ws\"\nto = \"http://{to}\"\ntimeouts.silence = \"1h\"\n"
    );
    Server::start(&Options::new(folder.path()).engine("event").config(&lines))
}

/// A silent WebSocket costs as much as its head and its exchange, by either version, and no more than
/// with nginx.
#[test]
fn an_idle_websocket_costs_little() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // a few descriptors each, in this process and in the server; many machines allow 20,000
    let count = if is_full_matrix() { 4_000 } else { 1_000 };
    let enough = allow_descriptors(2 * count as u64 + 1_000);
    let Some(()) = has(enough, "an_idle_websocket_costs_little") else { return };
    let (folder, to) = (Folder::new(), application());
    folder.write("index.html", "a");
    let server = start(to, &folder);
    let ours = cost("forebay", server.addr(), server.pid(), count);
    assert!(ours <= MOST_BYTES, "{ours} bytes for each");

    // a hundred on each connection of HTTP/2
    let open = |_| {
        let mut client = Client::connect(server.addr());
        let streams: Vec<_> = (0..100).map(|_| begin(&mut client, "/ws")).collect();
        let are_open = |client: &Client| streams.iter().all(|it| client.so_far(*it).status == 200);
        client.until(are_open);
        client
    };
    let mut clients = vec![open(0)];
    let before_kib = resident_kib(server.pid());
    clients.extend((0..count / 100).map(open));
    let grown = resident_kib(server.pid()).saturating_sub(before_kib) as usize * 1024 / count;
    println!("forebay, HTTP/2: {count} idle WebSockets, each {grown} bytes of the process");
    assert!(grown <= MOST_STREAM_BYTES, "{grown} bytes for each");
    drop((clients, server));

    if is_full_matrix() {
        let addr = free_addr();
        let Some(nginx) = has(nginx(&folder, addr, to), "nginx beside it") else { return };
        std::thread::sleep(Duration::from_millis(200));
        let theirs = cost("nginx", addr, nginx.0.id(), count);
        assert!(ours <= theirs, "{ours} bytes for each, {theirs} with nginx");
    }
}
