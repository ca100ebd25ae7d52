//! What one upstream of a group has under way, and how much that may be.

use crate::group::health::{Health, HealthGrade};
use crate::group::learnt::LearntPlaces;
use crate::group::{MemberStanding, ServerTerms};
use crate::settings;
use forebay_control::shared::SharedCount;

/// What is known of it.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub(super) health: Health,
    /// What it gets beside the others.
    pub(super) weight: u16,
    /// Its weight by the settings, and whether it is a backup by them.
    pub(super) written: (u16, bool),
    /// What the records of a service say of it, if it is found by them.
    pub(super) said: Option<ServerTerms>,
    /// Whether no server is known that has this place.
    pub(super) is_vacant: bool,
    /// Whether it is asked only while none of those that are no backup is well.
    pub(super) is_backup: bool,
    pub(super) in_flight: u32,
    /// Requests under way to it, at most.
    pub(super) most: u32,
    /// Of what is under way, connections that are tunnels.
    pub(super) tunnels: u32,
    /// By whom `most` is decided, where it is learnt.
    pub(super) learnt: Option<Box<LearntPlaces>>,
    /// What other processes have under way to it.
    pub(super) shared: Option<SharedCount>,
}

impl GroupState {
    /// Counts one more, if no more are under way then than may be, in all processes, less those that are `kept`.
    pub(super) fn take(&mut self, kept: u32) -> bool {
        if let Some(shared) = self.shared {
            // after it counts: another process that takes one now sees this one, or is seen
            shared.take();
            let others = shared.others();
            if u64::from(self.in_flight) + 1 + u64::from(others)
                > u64::from(self.most_in_all(others).saturating_sub(kept))
            {
                shared.give_back();
                return false;
            }
        }
        self.in_flight += 1;
        true
    }

    pub(super) fn give_back(&mut self) {
        debug_assert!(self.in_flight > 0, "it was begun");
        self.in_flight = self.in_flight.saturating_sub(1);
        self.shared.iter().for_each(SharedCount::give_back);
    }

    /// Its weight, and whether it is a backup, by what is written and said now.
    pub(super) fn weigh(&mut self) {
        let (weight, is_backup) = self.written;
        self.weight = self.said.map_or(weight, |said| said.weight);
        self.is_backup = is_backup || self.said.is_some_and(|said| said.is_backup);
    }

    pub(super) fn standing(&self) -> MemberStanding {
        (self.grade(), self.is_backup)
    }

    /// How it stands, whether it is a backup or not.
    pub(super) fn grade(&self) -> HealthGrade {
        if self.is_vacant { HealthGrade::Draining } else { self.health.grade() }
    }

    pub(super) fn has_room(&self, kept: u32) -> bool {
        let others = self.shared.map_or(0, |shared| shared.others());
        self.in_flight.saturating_add(others) < self.most_in_all(others).saturating_sub(kept)
    }

    /// So many may be under way in all processes, of which others have so many. A number of the settings is for all
    /// together; one that is learnt is for this process, beside what the others have.
    fn most_in_all(&self, others: u32) -> u32 {
        self.learnt.as_ref().map_or(self.most, |learnt| learnt.most_beside(others))
    }

    /// As much may be under way as the settings say, or as is learnt within their bounds.
    pub(super) fn bound(&mut self, settings: &settings::GroupSettings, now_ns: u64) {
        let most = settings.in_flight.unwrap_or(u32::MAX);
        match (settings.in_flight_from, &mut self.learnt) {
            (None, learnt) => *learnt = None,
            (Some(least), Some(learnt)) => learnt.set_bounds(least, most, now_ns),
            (Some(least), learnt) => {
                *learnt = Some(Box::new(LearntPlaces::new(least, most, self.tunnels, now_ns)));
            }
        }
        self.most = self.learnt.as_ref().map_or(most, |learnt| learnt.most());
    }

    /// It is full, and requests wait. Says whether more may be under way because nothing ends.
    pub(super) fn relieve(&mut self, now_ns: u64) -> bool {
        let Some(learnt) = &mut self.learnt else { return false };
        let is_relieved = learnt.relieve(now_ns);
        self.most = learnt.most();
        is_relieved
    }

    /// What is under way has changed by now.
    pub(super) fn look(&mut self, now_ns: u64) {
        if let Some(learnt) = &mut self.learnt {
            let others = self.shared.map_or(0, |shared| shared.others());
            learnt.under_way(self.in_flight, others, now_ns);
        }
    }
}
