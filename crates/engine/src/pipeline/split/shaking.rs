//! Connections whose handshakes wait in the list of process, up to a limit. Those of the first rank
//! have a limit of their own, so that others keep none of them out.

use crate::event::MOST_SHAKING;
use forebay_conn::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The numbers of waiting handshakes: those of the first rank, and others.
#[derive(Default)]
pub(super) struct Shaking([Arc<AtomicUsize>; 2]);

/// The place of one of them; dropping it gives it back.
pub(super) struct ShakingPlace(Arc<AtomicUsize>);

impl Shaking {
    /// Takes a place for one more; `None` if there are enough.
    pub(super) fn enter(&self, rank: Rank) -> Option<ShakingPlace> {
        let count = &self.0[usize::from(rank != Rank::FIRST)];
        let place = ShakingPlace(Arc::clone(count));
        let before = count.fetch_add(1, Ordering::Relaxed);
        (before < MOST_SHAKING).then_some(place)
    }
}

impl Drop for ShakingPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back_and_those_of_the_first_rank_are_their_own() {
        let shaking = Shaking::default();
        let places = (0..MOST_SHAKING).map_while(|_| shaking.enter(Rank::LAST));
        let mut places: Vec<_> = places.collect();
        assert_eq!(places.len(), MOST_SHAKING);
        assert!(shaking.enter(Rank::LAST).is_none() && shaking.enter(Rank::LAST).is_none());
        assert!(shaking.enter(Rank::FIRST).is_some());
        places.pop();
        assert!(shaking.enter(Rank::LAST).is_some());
        drop(places);
        assert!(shaking.0.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }
}
