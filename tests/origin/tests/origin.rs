//! The program serves in the place of `forebay`.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::server::{Options, Origin, Server};
use forebay_tests::{ENGINES, fixture};

#[test]
fn a_handler_answers_for_files() {
    let folder = std::env::temp_dir().join(format!("forebay-origin-test-{}", std::process::id()));
    fixture::build(&folder);
    for engine in ENGINES {
        let options = Options { origin: Origin::Handler, ..Options::new(folder.join("root")) };
        let server = Server::start(&options.engine(engine));
        let asked = b"GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let answer = String::from_utf8(server.exchange(asked)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{engine}: {answer}");
        assert!(answer.ends_with("\r\n\r\nabcdefghijklmnopqrstuvwxyz"), "{engine}: {answer}");
    }
    fixture::open_up(&folder);
    std::fs::remove_dir_all(folder).unwrap();
}
