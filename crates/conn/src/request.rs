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

/// Which request of a connection: HTTP/1 has one under way, other protocols have many. A connection
/// never gives the same number again, so that what comes too late finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

impl RequestId {
    /// No request's: what is done for it is done for the beginning of the connection.
    pub const OPENING: RequestId = RequestId(u32::MAX);
    /// No request's: what is done for it is done for what is being sent, which may be of many.
    pub const SENDING: RequestId = RequestId(u32::MAX - 1);
}

/// When a request came, as [`Journal::tick`](crate::Journal::tick) told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalTimes {
    /// When its first bytes were there.
    pub begun_ns: u64,
    /// When all of it was there, its body too. The same as `begun_ns` if its head came in one piece
    /// and it had no body.
    pub complete_ns: u64,
}

/// Name and value of a field that stands for the client's; without a value that is only left out.
pub type GivenField = (Box<str>, Option<Box<[u8]>>);

/// What others have said of a request before it was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Under what number they were asked.
    pub id: Option<u128>,
    /// The rules that asked another server, which has let it through: of which content they are, and which of it.
    pub allowed: Vec<(u64, u16)>,
    /// Fields that an application is to be told instead of the client's: without a value, only that.
    pub given: Vec<GivenField>,
    /// Field lines, each with its CR LF, that the answer has besides its own: cookies of servers that have let the
    /// request through. They make it an answer for one client.
    pub further: Option<Arc<[u8]>>,
    /// What an application wants to be sent instead of its answer.
    pub sent: Option<InternalRedirect>,
    /// The status of the error that is answered in the place of an application: it is not asked again.
    pub refused: Option<u16>,
    /// Where it stands in a trace, if they were told.
    pub trace: Option<RequestTrace>,
}

impl Passed {
    /// How often the server that this rule of this content asks has let the request through: once for each reading of
    /// its path.
    pub fn times_allowed(&self, content: u64, rule: u16) -> usize {
        self.allowed.iter().filter(|&&asked| asked == (content, rule)).count()
    }
}

/// Something to be sent in the place of an application's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalRedirect {
    /// Its path, percent-encoded.
    pub path: Box<[u8]>,
    /// Its query.
    pub query: Option<Box<[u8]>>,
    /// Field lines of the application, each with its CR LF, that stand for those of what is sent.
    pub fields: Arc<[u8]>,
    /// The server that has said so, for the log.
    pub by: Answerer,
}

/// Another server that has answered, and how long that took. It is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answerer {
    /// What logs call it.
    pub name: Box<str>,
    /// The status of its answer.
    pub status: u16,
    /// How many were asked, this one last.
    pub attempts: u32,
    /// Microseconds for which the request has waited for its turn.
    pub queue_us: u64,
    /// Microseconds until there was a connection.
    pub connect_us: Option<u64>,
    /// Microseconds until the head of its answer was there.
    pub head_us: Option<u64>,
}

/// One request, as the handler sees it. It borrows the received bytes, or those that were kept.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// What the client sent.
    pub head: &'r Head<'r>,
    /// The client, and which address it has reached.
    pub peer: &'r Peer,
    /// What others have said of it.
    pub passed: Option<&'r Passed>,
    path: &'r NormalPath,
}

impl<'r> Request<'r> {
    /// `path` is a buffer for the normal form of this request's path, or holds it already.
    pub fn new(head: &'r Head<'r>, peer: &'r Peer, path: &'r NormalPath) -> Request<'r> {
        Request { head, peer, passed: None, path }
    }

    /// The same, of which others have said this.
    #[must_use]
    pub fn with(self, passed: Option<&'r Passed>) -> Request<'r> {
        Request { passed, ..self }
    }

    /// The path, decoded and free of detours. It is made once, however often it is asked for.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn path(&self) -> Result<Ref<'r, [u8]>, PathError> {
        self.path.of(self.head.path)
    }

    /// What applications may take the path for, if they may read its separators in several ways. Made once, as well.
    #[inline]
    pub fn readings(&self) -> Option<Ref<'r, PathReadings>> {
        self.path.readings(self.head.path)
    }
}

/// What an admitted request has been granted, and owns until it is over.
#[derive(Debug)]
pub struct Grant<T> {
    /// It is served in this order.
    pub rank: Rank,
    /// The client whose turn it takes; `None` if that is the connection's.
    pub client: Option<IpAddr>,
    /// It is not answered before so many milliseconds have passed.
    pub wait_ms: u32,
    /// Given back by [`settle`](crate::Admission::settle).
    pub ticket: T,
}

/// What is kept of the normal form of a path.
#[derive(Debug)]
enum KeptPath {
    /// It was not made.
    Unmade,
    /// That is the path as it was sent, as it mostly is.
    AsSent,
    /// That is another.
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

/// An admitted request that is kept: its head, what it owns, and what it waits for.
#[derive(Debug)]
pub struct KeptRequest<T, S> {
    /// Which one of its connection.
    pub id: RequestId,
    /// Its head; it is not parsed again.
    pub head: OwnedHead,
    /// The normal form of its path.
    normal: KeptPath,
    /// What it owns.
    pub grant: Grant<T>,
    /// When it came.
    pub stages: ArrivalTimes,
    /// What finds the end of its body, if that is to be passed on; so much of it was taken from the input.
    pub body: Option<Box<BodyDecoder>>,
    /// What others have said of it.
    pub passed: Option<Box<Passed>>,
    /// How many answers to it were [withdrawn](crate::Protocol::withdraw).
    pub withdrawn: u8,
    /// What it waits for, in the words of its protocol.
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

    /// Shows the request to `act`, with what it owns and what it waits for.
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
