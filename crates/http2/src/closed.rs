//! Streams that are over: as many as can still matter are remembered.

/// How a stream came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// Both sides have ended it.
    Ended,
    /// The peer has reset it: it may send nothing more (STREAM_CLOSED).
    PeerReset,
    /// We have reset it: what the peer had sent before it knew is ignored.
    Reset,
}

/// The last streams that were over, by how they ended.
///
/// Resets of our own are kept apart, one for each stream that may be open at once. That is enough: the
/// peer may open another stream in the place of one we have reset only when it knows of the reset, and
/// then sends nothing on it.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    reset: Recent,
    ended: Recent,
    peer_reset: Recent,
}

/// Streams of which it is remembered that they were over in another way. It only decides between two
/// errors.
const OTHERS: usize = 16;

impl Closed {
    /// A stream is over. `streams` may be open at once.
    pub(crate) fn remember(&mut self, id: u32, end: StreamEnd, streams: u32) {
        match end {
            StreamEnd::Reset => self.reset.add(id, streams as usize),
            StreamEnd::PeerReset => self.peer_reset.add(id, OTHERS),
            StreamEnd::Ended => self.ended.add(id, OTHERS),
        }
    }

    /// How a stream that is not open any more has ended; `None` if it never was, or was long ago.
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

/// The last few ids.
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
        // a division would cost more than all the rest
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
