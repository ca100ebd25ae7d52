//! gRPC's own client and server in Go, with Forebay between them: the cases of its interoperability
//! tests. See <https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md>.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::programs::from_go;
use forebay_tests::server::free_at_all_addresses;
use forebay_tests::{Options, Server, on_each_engine, on_isolated, wire};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

on_each_engine!(calls_pass_as_without_it, calls_pass_over_one_connection);

on_isolated!(calls_pass_as_without_it, calls_pass_over_one_connection);

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

fn calls_pass(engine: &str, test: &str, keys: &str) {
    let client = from_go("grpc-interop-client", test);
    let Some((client, application)) = client.zip(from_go("grpc-interop-server", test)) else {
        return;
    };
    // the program listens at all addresses
    let (at, folder) = (free_at_all_addresses(), Folder::new());
    let mut command = Command::new(application);
    let command = command.args(["-port", &at.port().to_string()]).stderr(Stdio::null());
    let _application = Program(command.spawn().unwrap());
    assert!(soon(wire::PATIENCE, || TcpStream::connect(at).is_ok()));
    let lines = format!("[[proxy]]\npath = \"/\"\nto = \"http://{at}\"\nhttp2 = true\n{keys}");
    let server = Server::start(&Options::new(folder.path()).engine(engine).config(&lines));
    for case in CASES {
        let (host, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
        let mut command = Command::new(&client);
        command.args(["-use_tls=false", "-server_host", &host, "-server_port", &port]);
        let said = command.args(["-test_case", case]).output().unwrap();
        assert!(said.status.success(), "{case}: {}", String::from_utf8_lossy(&said.stderr));
    }
}
