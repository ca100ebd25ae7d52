//! Streams that are over, as many as can still matter.

/// The way in which a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// Both sides ended it.
    Ended,
    /// The peer reset it, and may send nothing more on it (STREAM_CLOSED).
    PeerReset,
    /// We reset it; frames that the peer sent before it received the reset are ignored.
    Reset,
}

/// The last streams that were over, and how they ended.
///
/// Resets of our own are kept apart, one for each stream that may be open at once. That is enough: the peer
/// may open another stream in the place of one we have reset only when it has received the reset, and then it
/// sends nothing on the old one.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    reset: Recent,
    ended: Recent,
    peer_reset: Recent,
}

/// The number of streams that are remembered as having ended in another way. This only decides between two
/// errors.
const OTHERS: usize = 16;

impl Closed {
    /// Remembers a stream that is over; `streams` may be open at once.
    pub(crate) fn remember(&mut self, id: u32, end: StreamEnd, streams: u32) {
        match end {
            StreamEnd::Reset => self.reset.add(id, streams as usize),
            StreamEnd::PeerReset => self.peer_reset.add(id, OTHERS),
            StreamEnd::Ended => self.ended.add(id, OTHERS),
        }
    }

    /// How a stream that is no longer open has ended; `None` if it was never open, or ended long ago.
    pub(crate) fn end_of(&self, id: u32) -> Option<StreamEnd> {
        let recents = [
            (&self.reset, StreamEnd::Reset),
            (&self.peer_reset, StreamEnd::PeerReset),
            (&self.ended, StreamEnd::Ended),
        ];
        recents.into_iter().find(|(recent, _)| recent.ids.contains(&id)).map(|(_, end)| end)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let ids = [&self.reset, &self.ended, &self.peer_reset].map(|recent| recent.ids.capacity());
        ids.into_iter().sum::<usize>() * size_of::<u32>()
    }

    pub(crate) const fn most_heap_bytes(streams: usize) -> usize {
        (streams.next_power_of_two() + 4 + 2 * OTHERS) * size_of::<u32>()
    }
}

/// The most recent ids.
#[derive(Debug, Default)]
struct Recent {
    ids: Vec<u32>,
    next: usize,
}

impl Recent {
    fn add(&mut self, id: u32, most: usize) {
        if self.ids.len() < most {
            return self.ids.push(id);
        }
        if let Some(oldest) = self.ids.get_mut(self.next) {
            *oldest = id;
        }
        // a division would cost more than the rest of this function
        self.next = if self.next + 1 < most { self.next + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known() {
        let mut closed = Closed::default();
        for id in (1..2000).step_by(2) {
            closed.remember(
                id,
                [StreamEnd::Ended, StreamEnd::PeerReset, StreamEnd::Reset][(id / 2 % 3) as usize],
                100,
            );
        }
        // of 333 each, the last 100 and 16
        assert_eq!(closed.end_of(1999), Some(StreamEnd::Ended));
        assert_eq!(closed.end_of(1997), Some(StreamEnd::Reset));
        assert_eq!(closed.end_of(1995), Some(StreamEnd::PeerReset));
        assert_eq!(closed.end_of(1997 - 99 * 6), Some(StreamEnd::Reset));
        assert_eq!(closed.end_of(1997 - 100 * 6), None);
        assert_eq!(closed.end_of(1999 - 15 * 6), Some(StreamEnd::Ended));
        assert_eq!(closed.end_of(1999 - 16 * 6), None);
        assert!(closed.heap_bytes() <= Closed::most_heap_bytes(100));
    }
}
