//! gRPC's own client and server, in Go, with the server between them: the cases of its interoperability tests, and a
//! stream both ways through reloads.
//! See <https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md>.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::programs::from_go;
use forebay_tests::server::free_at_all_addresses;
use forebay_tests::{Options, Server, http2, on_each_engine, on_isolated, wire};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

on_each_engine! {
    calls_pass_as_without_it,
    calls_pass_over_one_connection,
    a_stream_goes_on_through_reloads,
}

on_isolated! {
    calls_pass_as_without_it,
    calls_pass_over_one_connection,
    a_stream_goes_on_through_reloads,
}

/// The cases that need no accounts, no compression of messages, and no other server.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn calls_pass_as_without_it(engine: &str) {
    calls_pass(engine, "calls_pass_as_without_it", "");
}

fn calls_pass_over_one_connection(engine: &str) {
    calls_pass(engine, "calls_pass_over_one_connection", "http2_connections = 1\n");
}

/// gRPC's own server, where it listens.
fn interop_server(test: &str) -> Option<(SocketAddr, Program)> {
    let application = from_go("grpc-interop-server", test)?;
    // it listens at all addresses
    let at = free_at_all_addresses();
    let mut command = Command::new(application);
    let command = command.args(["-port", &at.port().to_string()]).stderr(Stdio::null());
    let program = Program(command.spawn().unwrap());
    assert!(soon(wire::PATIENCE, || TcpStream::connect(at).is_ok()));
    Some((at, program))
}

/// What passes calls on to it.
fn passes_on(engine: &str, folder: &Folder, at: SocketAddr, keys: &str) -> Server {
    let lines = format!("[[proxy]]\npath = \"/\"\nto = \"http://{at}\"\nhttp2 = true\n{keys}");
    Server::start(&Options::new(folder.path()).engine(engine).config(&lines))
}

fn calls_pass(engine: &str, test: &str, keys: &str) {
    let client = from_go("grpc-interop-client", test);
    let Some((client, (at, _application))) = client.zip(interop_server(test)) else { return };
    let folder = Folder::new();
    let server = passes_on(engine, &folder, at, keys);
    for case in CASES {
        let (host, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
        let mut command = Command::new(&client);
        command.args(["-use_tls=false", "-server_host", &host, "-server_port", &port]);
        let said = command.args(["-test_case", case]).output().unwrap();
        assert!(said.status.success(), "{case}: {}", String::from_utf8_lossy(&said.stderr));
    }
}

/// A message that asks for one of ten bytes: `StreamingOutputCallRequest` with one of `response_parameters`.
const ASKS_FOR_TEN: &[u8] = &[0, 0, 0, 0, 4, 0x12, 2, 0x08, 10];

/// How long the message is that comes: five bytes before it, two heads of fields, ten bytes.
const TEN_LEN: usize = 5 + 2 + 2 + 10;

fn a_stream_goes_on_through_reloads(engine: &str) {
    let started = interop_server("a_stream_goes_on_through_reloads");
    let Some((at, _application)) = started else { return };
    let folder = Folder::new();
    let server = passes_on(engine, &folder, at, "");
    let mut client = http2::Client::connect(server.addr());
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    let path = "/grpc.testing.TestService/FullDuplexCall";
    let stream = client.begin("POST", path, &fields, false);
    for round in 1..=5 {
        assert_eq!(client.send(stream, ASKS_FOR_TEN, false), ASKS_FOR_TEN.len());
        client.until(|client| {
            let so_far = client.so_far(stream);
            so_far.body.len() == round * TEN_LEN || so_far.is_whole || so_far.reset.is_some()
        });
        assert_eq!(client.so_far(stream).body.len(), round * TEN_LEN, "{}", server.stderr());
        assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    }
    client.send(stream, b"", true);
    let answer = client.answer(stream);
    assert!(answer.is_whole, "{answer:?}");
    assert_eq!(answer.trailers.first(), Some(&("grpc-status".to_owned(), "0".to_owned())));
}
