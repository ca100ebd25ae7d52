//! The examples, as their users see them.

use crate::client::{Client, get};
use forebay::MainThread;

#[path = "../../examples/chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program")]
mod chat;
#[path = "../../examples/hello.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program")]
mod hello;
#[path = "../../examples/main_thread.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program")]
mod main_thread;

#[test]
fn hello_waits_and_answers() {
    let server = hello::hello().start().unwrap();
    let address = server.addresses()[0];
    let mut later = Client::connect(address);
    later.send("GET /later HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(get(address, "/hello?name=Ann").text(), "Hello, Ann!\n");
    assert_eq!(later.answer().text(), "a second later\n");
}

#[test]
fn who_comes_to_the_chat_sees_what_was_said_and_what_is() {
    for engine in ["fibers", "event", "threads"] {
        let server = chat::chat().engine(engine).start().unwrap();
        let address = server.addresses()[0];
        assert!(get(address, "/").text().contains("EventSource"));
        let say = |line: &str| {
            let length = line.len();
            let head =
                format!("POST /say HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(Client::connect(address).ask(&(head + line)).status, 204);
        };
        say("before");
        let mut readers = [Client::connect(address), Client::connect(address)];
        for reader in &mut readers {
            reader.send("GET /events HTTP/1.1\r\nHost: here\r\n\r\n");
            assert!(reader.head().1.contains("text/event-stream"));
            assert_eq!(reader.chunk(), b"data: before\n\n");
        }
        say("now\nand here");
        for reader in &mut readers {
            assert_eq!(reader.chunk(), b"data: now and here\n\n", "{engine}");
        }
        drop(readers);
        say("later");
        server.stop().unwrap();
    }
}

#[test]
fn the_main_thread_switches_lamps() {
    let (main, handle) = MainThread::new().unwrap();
    let server = main_thread::lamps(&handle).start().unwrap();
    drop(handle);
    let address = server.addresses()[0];
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "........");
        assert_eq!(client.get("/switch?lamp=2").status, 403);
        let switch = "GET /switch?lamp=2 HTTP/1.1\r\nHost: here\r\nX-Own-Page: 1\r\n\r\n";
        assert_eq!(client.ask(switch).text(), "on");
        assert_eq!(client.get("/").text(), "..*.....");
        // the handles of its handlers go with the server, which wakes the main thread
        server.stop().unwrap();
    });
    main.serve().unwrap();
    client.join().unwrap();
}
