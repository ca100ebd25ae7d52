//! What the requests of one connection wait for: each for a job, its turn, or its time (not
//! before).
//!
//! With HTTP/1 one request waits at most, and is kept in place; other protocols have as many as
//! requests under way.

use crate::helpers::SharedJob;
use forebay_conn::{Job, RequestId};
use forebay_control::ranked::Key;

/// What one request waits for.
pub(crate) enum RequestWait<J> {
    /// A job, which can still be taken back here.
    Job(SharedJob<J>),
    /// The request's turn, in a ready queue at this place, or by other means.
    Turn(Option<Key>),
    /// The time from which it may be answered.
    NotBefore,
}

/// All requests of a connection that wait.
pub(crate) struct Waits<J> {
    first: Option<(RequestId, RequestWait<J>)>,
    more: Vec<(RequestId, RequestWait<J>)>,
}

impl<J> Default for Waits<J> {
    fn default() -> Waits<J> {
        Waits { first: None, more: Vec::new() }
    }
}

impl<J: Job> Waits<J> {
    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    /// Whether this request waits.
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.iter().any(|(known, _)| *known == id)
    }

    /// Whether a job is done for this request.
    pub(crate) fn has_job(&self, id: RequestId) -> bool {
        self.iter().any(|(known, waiting)| *known == id && matches!(waiting, RequestWait::Job(_)))
    }

    /// Whether a request waits for its turn.
    pub(crate) fn has_turns(&self) -> bool {
        self.iter().any(|(_, waiting)| matches!(waiting, RequestWait::Turn(_)))
    }

    /// Has this request wait from now on, for this and nothing else.
    pub(crate) fn add(&mut self, id: RequestId, waiting: RequestWait<J>) {
        self.remove(id);
        match &mut self.first {
            first @ None => *first = Some((id, waiting)),
            Some(_) => self.more.push((id, waiting)),
        }
    }

    /// Ends the wait of this request. Returns what it was waiting for.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<RequestWait<J>> {
        if self.first.as_ref().is_some_and(|(known, _)| *known == id) {
            return self.first.take().map(|(_, waiting)| waiting);
        }
        let at = self.more.iter().position(|(known, _)| *known == id)?;
        Some(self.more.swap_remove(at).1)
    }

    /// Gives this request up. Returns whether what it waited for had not begun. Its place in a
    /// ready queue is passed over when its turn comes.
    pub(crate) fn forget(&mut self, id: RequestId) -> bool {
        match self.remove(id) {
            None => false,
            Some(RequestWait::Job(shared_job)) => shared_job.take().is_some(),
            Some(RequestWait::Turn(_) | RequestWait::NotBefore) => true,
        }
    }

    /// Ends all waits, and returns them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = RequestWait<J>> + use<J> {
        let Waits { first, more } = std::mem::take(self);
        first.into_iter().chain(more).map(|(_, waiting)| waiting)
    }

    /// The places of the requests that wait for their turn in a ready queue.
    pub(crate) fn places(&self) -> impl Iterator<Item = Key> + use<'_, J> {
        self.iter().filter_map(|(_, waiting)| match waiting {
            RequestWait::Turn(place) => *place,
            RequestWait::Job(_) | RequestWait::NotBefore => None,
        })
    }

    /// The requests that wait, each with what it waits for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(RequestId, RequestWait<J>)> {
        self.first.iter().chain(&self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::NoJob;

    #[test]
    fn each_waits_for_one_thing() {
        let mut waits = Waits::<NoJob>::default();
        let ids = [7, 8, 9].map(RequestId);
        for id in ids {
            waits.add(id, RequestWait::NotBefore);
            waits.add(id, RequestWait::Turn(None));
        }
        assert!(matches!(waits.remove(ids[1]), Some(RequestWait::Turn(None))));
        assert!(waits.remove(ids[1]).is_none());
        assert_eq!(ids.map(|id| waits.contains(id)), [true, false, true]);
        assert!(!waits.has_job(ids[0]) && waits.has_turns());
        assert_eq!(waits.take_all().count(), 2);
        assert_eq!(waits.take_all().count(), 0);
    }
}
