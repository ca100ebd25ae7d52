//! What a turn of an engine lends to a connection.

use crate::handler::{HandlerRoles, Job};
use crate::head_block::HeadBuffer;
use crate::limits::ConnectionLimits;
use crate::out::Out;
use crate::peer::Peer;
use crate::rank::Rank;
use crate::step::RequestEvent;
use forebay_http::date::IMF_LEN;
use forebay_http::path::NormalPath;
use forebay_metrics::Local;

/// The times that clients are given in `Keep-Alive: timeout=`: how long their idle connections are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announce<'c> {
    /// The time for connections of every rank, in seconds; 0 announces nothing.
    pub all_s: u32,
    /// The times of ranks that have one of their own, by rank, in milliseconds.
    pub by_rank_ms: &'c [u64],
}

impl Announce<'_> {
    /// The time announced to clients of this rank, in seconds.
    #[inline]
    pub fn of(&self, rank: Rank) -> u32 {
        let own_ms = self.by_rank_ms.get(usize::from(rank.0));
        own_ms.map_or(self.all_s, |ms| u32::try_from(ms / 1000).unwrap_or(u32::MAX))
    }
}

/// What a turn of an engine lends to a connection, for the time of one
/// [`advance`](crate::Protocol::advance).
pub struct Context<'c, H: HandlerRoles, S> {
    /// The handler, which knows the answers.
    pub handler: &'c mut H,
    /// Where answers are written.
    pub out: &'c mut Out<H::Body>,
    /// Both ends of the connection.
    pub peer: &'c Peer,
    /// Room for the normal form of one request's path.
    pub path: &'c NormalPath,
    /// The memory in which a head of HTTP/2 is taken apart.
    pub head_buffer: &'c mut HeadBuffer,
    /// The limits in force.
    pub limits: &'c ConnectionLimits,
    /// Now, as the Date field writes it.
    pub date: &'c [u8; IMF_LEN],
    /// Now, in milliseconds of a clock that never goes back.
    pub now_ms: u64,
    /// Whether the server is about to stop: then every answer is the last of its connection.
    pub draining: bool,
    /// The time that idle connections are kept, as it is announced to clients (`Keep-Alive: timeout=`).
    pub announce: Announce<'c>,
    /// Requests that may still be answered in this turn.
    pub budget: u32,
    /// The last rank that is answered in this turn. Requests of later ranks are put aside
    /// ([`Step::Enqueue`](crate::Step::Enqueue)); `None` puts all aside.
    pub answers: Option<Rank>,
    /// What has happened to a request. The protocol takes the event when it has looked at it.
    pub event: Option<RequestEvent<<H::Job as Job>::Done>>,
    /// The engine's counters.
    pub metrics: &'c Local,
    /// The stopwatch of this turn; it may do nothing.
    pub watch: &'c mut S,
}
