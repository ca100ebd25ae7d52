//! Answers that the kernel gives in this server's place: which ones it learns, and when it drops them.
//!
//! In: answers of the data cache that are asked for again and again, from the loop that has just given
//! one. Out: the answers that the kernel keeps ([`AnswerKeeper`]), and for an operator the others, with
//! the reason.
//!
//! | module | what it holds |
//! |---|---|
//! | [`learner`] | the kept answers, within limits, and the order in which they are dropped |
//!
//! Each answer of the kernel comes back as a record, which
//! [`RequestHandler::record`](crate::RequestHandler::record) counts and logs.

pub mod learner;

use forebay_policy::first;
use forebay_site::{FixedAnswer, NotFixed};
use std::fmt;
use std::net::SocketAddr;

/// The largest sum of the bytes of host and path.
pub const MOST_KEY_BYTES: usize = 192;

/// The largest sum of the bytes of head and body: one segment of Ethernet, with TCP timestamps.
pub const MOST_ANSWER_BYTES: usize = 1448;

/// The bytes added to each head: `Date`, the longest `Connection` field, and the empty line.
pub const ADDED_BYTES: usize =
    "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n".len();

/// The key by which the kernel finds an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AnswerKey {
    /// The address that the listener is bound to.
    pub listener: SocketAddr,
    /// The host in small letters, as the client sends it: with or without a port.
    pub host: Box<[u8]>,
    /// The path as the client sends it, without a query.
    pub path: Box<[u8]>,
}

impl AnswerKey {
    /// The key of requests at this listener for this host, path and query; `None` if the kernel does not read them.
    pub fn of(
        listener: SocketAddr,
        host: &[u8],
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Option<AnswerKey> {
        let is_short = host.len() + path.len() <= MOST_KEY_BYTES && path.len() <= first::MOST_PATH;
        let host = host.to_ascii_lowercase();
        let is_read = query.is_none() && is_short && first::is_plain(path) && is_plain_host(&host);
        is_read.then(|| AnswerKey { listener, host: host.into(), path: path.into() })
    }

    /// The bytes of memory that the key takes.
    fn bytes(&self) -> usize {
        self.host.len() + self.path.len()
    }
}

/// Whether a host is a name or an IPv4 address, perhaps with a port.
fn is_plain_host(host: &[u8]) -> bool {
    let (name, port) = match host.iter().position(|byte| *byte == b':') {
        Some(at) => (&host[..at], &host[at + 1..]),
        None => (host, &b"80"[..]),
    };
    (1..=first::MOST_HOST).contains(&name.len())
        && name.iter().all(first::is_of_host)
        && !name.ends_with(b".")
        && (1..=5).contains(&port.len())
        && port.iter().all(u8::is_ascii_digit)
}

impl fmt::Display for AnswerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AnswerKey { listener: _, host, path } = self;
        write!(f, "{}{}", String::from_utf8_lossy(host), String::from_utf8_lossy(path))
    }
}

/// A keeper of answers, which gives them in this server's place.
pub trait AnswerKeeper: Send + Sync {
    /// Gives this answer from now on, on connections that have at most `requests` requests. Returns a
    /// number that no other answer has.
    ///
    /// # Errors
    /// The reason why the kernel cannot keep it.
    fn keep(&self, key: &AnswerKey, answer: &FixedAnswer, requests: u32) -> Result<u32, String>;

    /// Drops this answer: when the call returns, no request is answered by it any more.
    fn let_go(&self, key: &AnswerKey);

    /// Drops all answers at once.
    fn let_all_go(&self);
}

/// A request that the kernel has answered.
#[derive(Clone, Copy, Debug)]
pub struct GivenAnswer<'g> {
    /// The number of the answer.
    pub number: u32,
    /// The client.
    pub client: SocketAddr,
    /// The address that the client has reached.
    pub local: SocketAddr,
    /// The time of the answer, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// The head of the request.
    pub head: &'g [u8],
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub body_bytes: u64,
    /// Bytes of head and body.
    pub sent_bytes: u64,
}

/// Why the kernel does not give an answer that is asked for again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLearned {
    /// The answer is not the same for every client, or cannot be kept, for this reason.
    NotFixed(NotFixed),
    /// The site has settings that prevent it.
    Site,
    /// There is no room, and the kept answers are asked for more often.
    Full,
    /// The kernel refuses the answer, with this message.
    Kernel(String),
}

impl fmt::Display for NotLearned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLearned::NotFixed(why) => why.fmt(f),
            NotLearned::Site => {
                f.write_str("settings of its site stand in the way (forebay check --gate)")
            }
            NotLearned::Full => {
                f.write_str("there is no room, and what is kept is asked for more often")
            }
            NotLearned::Kernel(why) => write!(f, "the kernel refuses it: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_the_kernel_reads() {
        let listener = "192.0.2.1:80".parse().unwrap();
        let of = |host: &str, path: &str| {
            AnswerKey::of(listener, host.as_bytes(), path.as_bytes(), None)
        };
        let text = |host: &str, path: &str| of(host, path).map(|key| key.to_string());
        assert_eq!(text("A.Example:8080", "/a/B.css").as_deref(), Some("a.example:8080/a/B.css"));
        assert!(of("192.0.2.1", "/").is_some());
        assert_eq!(AnswerKey::of(listener, b"a", b"/", Some(b"")), None);
        let long = format!("/{}", "a".repeat(first::MOST_PATH));
        for (host, path) in [
            ("", "/"),
            ("a.", "/"),
            ("a:", "/"),
            ("a:123456", "/"),
            ("a:b", "/"),
            ("[::1]", "/"),
            ("a_b c", "/"),
            ("a", "/%61"),
            ("a", "//"),
            ("a", "/.a"),
            ("a", "/a;b"),
            ("a", "/a.gz"),
            ("a", "*"),
            ("a", &long),
            (&"a".repeat(64), "/"),
        ] {
            assert_eq!(of(host, path), None, "{host}{path}");
        }
    }
}
