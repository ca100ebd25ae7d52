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

/// How long clients are told that idle connections are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announce<'c> {
    /// In seconds; 0 tells no client.
    pub all_s: u32,
    /// The same by rank, in milliseconds, as far as ranks have a time of their own.
    pub by_rank_ms: &'c [u64],
}

impl Announce<'_> {
    /// What a client of this rank is told, in seconds.
    #[inline]
    pub fn of(&self, rank: Rank) -> u32 {
        let own_ms = self.by_rank_ms.get(usize::from(rank.0));
        own_ms.map_or(self.all_s, |ms| u32::try_from(ms / 1000).unwrap_or(u32::MAX))
    }
}

/// What a turn of an engine lends to a connection.
pub struct Context<'c, H: HandlerRoles, S> {
    /// Knows the answers.
    pub handler: &'c mut H,
    /// Where answers are written.
    pub out: &'c mut Out<H::Body>,
    /// Both ends of the connection.
    pub peer: &'c Peer,
    /// Room for the normal form of one request's path.
    pub path: &'c NormalPath,
    /// Where a head of HTTP/2 is taken apart.
    pub head_buffer: &'c mut HeadBuffer,
    /// Bounds in force.
    pub limits: &'c ConnectionLimits,
    /// Now, as the Date field writes it.
    pub date: &'c [u8; IMF_LEN],
    /// Now, in milliseconds of a clock that never goes back.
    pub now_ms: u64,
    /// The server is about to stop: every answer is the connection's last.
    pub draining: bool,
    /// How long idle connections are kept, for clients that are told (`Keep-Alive: timeout=`).
    pub announce: Announce<'c>,
    /// Requests that may still be answered in this turn.
    pub budget: u32,
    /// Of these ranks only: this one and those before it. Others are put aside ([`Step::Enqueue`](crate::Step::Enqueue));
    /// `None` puts all aside.
    pub answers: Option<Rank>,
    /// What has happened to a request; taken when it was looked at.
    pub event: Option<RequestEvent<<H::Job as Job>::Done>>,
    /// The engine's counters.
    pub metrics: &'c Local,
    /// Times this turn, or does nothing.
    pub watch: &'c mut S,
}
