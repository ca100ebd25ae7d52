//! Connections that wait for their next request. When all places are taken, one of the lowest rank
//! is closed for a client of its rank or a higher one.

use crate::order::ranks::{RankedClient, Ranks};
use forebay_conn::Rank;
use forebay_control::ranked::{Key, Ranked};
use forebay_sys::poll::{self, PollInterest};
use std::os::fd::BorrowedFd;

/// The number of idle connections that are looked at, and have a request by now, before the search
/// is given up.
pub(crate) const TRIES: usize = 8;

/// Idle connections, the last rank first, and of a client the one that has been idle longest. With
/// one rank there are no entries, and no connection is closed.
#[derive(Debug)]
pub(crate) struct Idle {
    ranks: Ranks,
    /// The connections' tokens, with ranks in reverse.
    tokens: Option<Ranked<u64>>,
}

impl Idle {
    pub(crate) fn new(ranks: &Ranks) -> Idle {
        let tokens = ranks.is_ordered().then(|| ranks.strict_queue());
        Idle { ranks: ranks.clone(), tokens }
    }

    fn reversed(&self, rank: u8) -> u8 {
        (self.ranks.count() - 1) as u8 - rank
    }

    /// Whether no connection could be closed for another.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.as_ref().is_none_or(Ranked::is_empty)
    }

    /// Adds the connection with this token, which is idle from now on. The key removes it again.
    #[inline]
    pub(crate) fn add(&mut self, ranked_client: RankedClient, token: u64) -> Option<Key> {
        let rank = self.reversed(ranked_client.rank);
        self.tokens.as_mut()?.push(rank, ranked_client.client, 1, token).ok()
    }

    /// Removes the connection that had this key, if it had one, as it is no longer idle.
    #[inline]
    pub(crate) fn remove(&mut self, key: &mut Option<Key>) {
        if let Some(key) = key.take()
            && let Some(tokens) = &mut self.tokens
        {
            tokens.remove(key);
        }
    }

    /// Takes out the connection that is closed for a client of `rank`, if there is one.
    pub(crate) fn take(&mut self, rank: Rank) -> Option<u64> {
        let most = self.reversed(self.ranks.clamp(rank));
        let (token, turn) = self.tokens.as_mut()?.pop_down_to(most)?;
        self.tokens.as_mut()?.ran(turn, 0);
        Some(token)
    }
}

/// Whether something has arrived for a connection that seemed idle, or it has ended.
pub(crate) fn has_news(socket: BorrowedFd<'_>) -> bool {
    // if poll has no memory, the connection counts as busy, so that no client that asks for
    // something is cut
    poll::wait([(socket, PollInterest::Read)], 0).map_or(true, |[socket]| socket.ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ranks::OrderSettings;

    #[test]
    fn the_lowest_makes_room_and_never_for_somebody_below() {
        let mut idle = Idle::new(&Ranks::new(&OrderSettings {
            shares: [0.0, 0.2, 0.2].into(),
            ..OrderSettings::default()
        }));
        let mut keys: Vec<_> = [(1, 10), (2, 20), (2, 21), (0, 1), (2, 22)]
            .map(|(rank, token)| idle.add(RankedClient { rank, client: token / 21 }, token))
            .into();
        idle.remove(&mut keys[1]);
        idle.remove(&mut keys[1]);
        assert_eq!(idle.take(Rank(0)), Some(21));
        assert_eq!(idle.take(Rank::LAST), Some(22));
        assert_eq!(idle.take(Rank::LAST), None);
        assert_eq!(idle.take(Rank(1)), Some(10));
        assert_eq!(idle.take(Rank(1)), None);
        assert_eq!(idle.take(Rank(0)), Some(1));
        assert!(idle.is_empty());
    }

    #[test]
    fn with_one_rank_nobody_makes_room() {
        let mut idle = Idle::new(&Ranks::default());
        assert_eq!(idle.add(RankedClient::default(), 7), None);
        assert_eq!(idle.take(Rank::FIRST), None);
    }
}
