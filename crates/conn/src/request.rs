//! One request: as the handler sees it, and as it is kept while it waits.

use crate::peer::Peer;
use crate::rank::Rank;
use forebay_http::body::BodyDecoder;
use forebay_http::head::Head;
use forebay_http::owned::OwnedHead;
use forebay_http::path::{NormalPath, PathError};
use forebay_http::readings::PathReadings;
use forebay_http::trace_context::RequestTrace;
use std::cell::Ref;
use std::net::IpAddr;
use std::sync::Arc;

/// The number of a request on its connection: HTTP/1 has one request under way, other protocols have
/// many. A connection never reuses a number, so that a late event finds no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

impl RequestId {
    /// No request: work for the beginning of the connection.
    pub const OPENING: RequestId = RequestId(u32::MAX);
    /// No request: work for what is being sent, which may be answers to many.
    pub const SENDING: RequestId = RequestId(u32::MAX - 1);
}

/// When a request came, by the clock of [`Journal::tick`](crate::Journal::tick).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalTimes {
    /// When its first bytes were there.
    pub begun_ns: u64,
    /// When all of it was there, its body too. The same as `begun_ns` if its head came in one piece and
    /// it has no body.
    pub complete_ns: u64,
}

/// The name and value of a field that replaces the client's; without a value, the client's is only left
/// out.
pub type GivenField = (Box<str>, Option<Box<[u8]>>);

/// What other servers have decided about a request before it is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The identifier of the request under which they were asked.
    pub id: Option<u128>,
    /// The rules whose server was asked and has let the request through: the content of each rule, and its
    /// number there.
    pub allowed: Vec<(u64, u16)>,
    /// Fields that an application gets instead of the client's; without a value, the client's is only
    /// left out.
    pub given: Vec<GivenField>,
    /// Further field lines of the answer, each with its CR LF: cookies of servers that have let the
    /// request through. They make the answer one for a single client.
    pub further: Option<Arc<[u8]>>,
    /// The internal redirect that an application wants to be sent instead of its answer.
    pub sent: Option<InternalRedirect>,
    /// The status of the error that is answered in place of an application, which is not asked again.
    pub refused: Option<u16>,
    /// The request's place in a trace, if the servers were given one.
    pub trace: Option<RequestTrace>,
}

impl Passed {
    /// How often the server asked by this rule of this content has let the request through: once for each
    /// reading of its path.
    pub fn times_allowed(&self, content: u64, rule: u16) -> usize {
        self.allowed.iter().filter(|&&asked| asked == (content, rule)).count()
    }
}

/// A path whose content is sent in place of an application's answer (`X-Accel-Redirect` and the like).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalRedirect {
    /// The path, percent-encoded.
    pub path: Box<[u8]>,
    /// The query.
    pub query: Option<Box<[u8]>>,
    /// Field lines of the application, each with its CR LF, that replace those of the content.
    pub fields: Arc<[u8]>,
    /// The server that has asked for it, for the log.
    pub by: Answerer,
}

/// Another server that has answered, and how long that took. The exchange is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answerer {
    /// The server's name in logs.
    pub name: Box<str>,
    /// The status of its answer.
    pub status: u16,
    /// How many servers were asked, this one last.
    pub attempts: u32,
    /// Microseconds for which the request has waited for its turn at a server.
    pub queue_us: u64,
    /// Microseconds until there was a connection.
    pub connect_us: Option<u64>,
    /// Microseconds until the head of its answer was there.
    pub head_us: Option<u64>,
}

/// One request, as the handler sees it. It borrows the received bytes, or those that were kept.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The head that the client sent.
    pub head: &'r Head<'r>,
    /// The client, and the address that it has reached.
    pub peer: &'r Peer,
    /// What other servers have decided about the request.
    pub passed: Option<&'r Passed>,
    path: &'r NormalPath,
}

impl<'r> Request<'r> {
    /// `path` is a buffer for the normal form of this request's path, or holds it already.
    pub fn new(head: &'r Head<'r>, peer: &'r Peer, path: &'r NormalPath) -> Request<'r> {
        Request { head, peer, passed: None, path }
    }

    /// The same request, with what other servers have decided about it.
    #[must_use]
    pub fn with(self, passed: Option<&'r Passed>) -> Request<'r> {
        Request { passed, ..self }
    }

    /// The path, decoded and in normal form (without detours such as `..`). Made once, however often it
    /// is asked for.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn path(&self) -> Result<Ref<'r, [u8]>, PathError> {
        self.path.of(self.head.path)
    }

    /// The paths for which applications may take this one, if they may read its separators in several
    /// ways. Also made once.
    #[inline]
    pub fn readings(&self) -> Option<Ref<'r, PathReadings>> {
        self.path.readings(self.head.path)
    }
}

/// The grant of an admitted request, which it owns until it is over.
#[derive(Debug)]
pub struct Grant<T> {
    /// The rank in which it is served.
    pub rank: Rank,
    /// The client whose turn it takes; `None` stands for the connection's own client.
    pub client: Option<IpAddr>,
    /// How many milliseconds must pass before it is answered.
    pub wait_ms: u32,
    /// The ticket, which is given back by [`settle`](crate::Admission::settle).
    pub ticket: T,
}

/// The normal form of a path, as far as it is kept.
#[derive(Debug)]
enum KeptPath {
    /// The normal form was not made.
    Unmade,
    /// The normal form is the path as it was sent, as it mostly is.
    AsSent,
    /// The normal form differs from the path as it was sent.
    Other(Box<[u8]>),
}

impl KeptPath {
    fn of(normal: &NormalPath, sent: &[u8]) -> KeptPath {
        match normal.made() {
            None => KeptPath::Unmade,
            Some(normal) if *normal == *sent => KeptPath::AsSent,
            Some(normal) => KeptPath::Other((*normal).into()),
        }
    }
}

/// An admitted request that is kept: its head, its grant, and what it waits for.
#[derive(Debug)]
pub struct KeptRequest<T, S> {
    /// The number of the request on its connection.
    pub id: RequestId,
    /// The head; it is not parsed again.
    pub head: OwnedHead,
    /// The normal form of the path.
    normal: KeptPath,
    /// The grant of the request.
    pub grant: Grant<T>,
    /// When the request came.
    pub stages: ArrivalTimes,
    /// The decoder of its body, if that is to be passed on; it stands behind the bytes taken from the
    /// input.
    pub body: Option<Box<BodyDecoder>>,
    /// What other servers have decided about the request.
    pub passed: Option<Box<Passed>>,
    /// How many answers to the request were [withdrawn](crate::Protocol::withdraw).
    pub withdrawn: u8,
    /// What the request waits for; each protocol has its own type.
    pub stage: S,
}

impl<T, S> KeptRequest<T, S> {
    /// Keeps `request`, whose head was parsed from the front of `received`.
    pub fn keep(
        id: RequestId,
        request: &Request<'_>,
        received: &[u8],
        grant: Grant<T>,
        stages: ArrivalTimes,
        stage: S,
    ) -> KeptRequest<T, S> {
        let head = OwnedHead::new(request.head, received);
        let normal = KeptPath::of(request.path, request.head.path);
        KeptRequest {
            id,
            head,
            normal,
            grant,
            stages,
            body: None,
            passed: None,
            withdrawn: 0,
            stage,
        }
    }

    /// Calls `act` with the request, its grant, and what it waits for.
    pub fn with<R>(
        &mut self,
        peer: &Peer,
        path: &NormalPath,
        act: impl FnOnce(&Request<'_>, &mut Grant<T>, &mut S) -> R,
    ) -> R {
        let head = self.head.view();
        match &self.normal {
            KeptPath::AsSent => path.remember(head.path),
            KeptPath::Other(normal) => path.remember(normal),
            KeptPath::Unmade => path.forget(),
        }
        let request = Request::new(&head, peer, path).with(self.passed.as_deref());
        let result = act(&request, &mut self.grant, &mut self.stage);
        if let KeptPath::Unmade = self.normal {
            self.normal = KeptPath::of(path, head.path);
        }
        result
    }
}
