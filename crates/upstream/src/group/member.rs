//! One upstream of a group: what it has under way, and how much that may be.

use crate::group::health::{Health, HealthGrade};
use crate::group::learnt::LearntPlaces;
use crate::group::{MemberStanding, ServerTerms};
use crate::settings;
use forebay_control::shared::SharedCount;

/// What a group knows of one upstream.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub(super) health: Health,
    /// The upstream's weight beside the others.
    pub(super) weight: u16,
    /// The weight, and whether it is a backup, by the settings.
    pub(super) written: (u16, bool),
    /// What the records of a service say of the upstream, if it is found by them.
    pub(super) said: Option<ServerTerms>,
    /// Whether this place has no server.
    pub(super) is_vacant: bool,
    /// Whether the upstream is asked only while none that is not a backup is well.
    pub(super) is_backup: bool,
    pub(super) in_flight: u32,
    /// The largest number of requests under way to the upstream.
    pub(super) most: u32,
    /// The number of connections under way that are tunnels.
    pub(super) tunnels: u32,
    /// The learnt limit that decides `most`, where it is learnt.
    pub(super) learnt: Option<Box<LearntPlaces>>,
    /// What other processes have under way to the upstream.
    pub(super) shared: Option<SharedCount>,
}

impl GroupState {
    /// Counts one more request, if the number under way in all processes stays within the limit less
    /// `kept`. Returns whether it does.
    pub(super) fn take(&mut self, kept: u32) -> bool {
        if let Some(shared) = self.shared {
            // the count goes up before the others' is read: of two processes that take the last place
            // at once, at least one sees the other
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

    /// Updates the weight, and whether it is a backup, from the settings and the records of the
    /// service.
    pub(super) fn weigh(&mut self) {
        let (weight, is_backup) = self.written;
        self.weight = self.said.map_or(weight, |said| said.weight);
        self.is_backup = is_backup || self.said.is_some_and(|said| said.is_backup);
    }

    pub(super) fn standing(&self) -> MemberStanding {
        (self.grade(), self.is_backup)
    }

    /// The health grade, apart from whether the upstream is a backup. A place without a server counts
    /// as drained.
    pub(super) fn grade(&self) -> HealthGrade {
        if self.is_vacant { HealthGrade::Draining } else { self.health.grade() }
    }

    pub(super) fn has_room(&self, kept: u32) -> bool {
        let others = self.shared.map_or(0, |shared| shared.others());
        self.in_flight.saturating_add(others) < self.most_in_all(others).saturating_sub(kept)
    }

    /// The limit for all processes together, of which the others have `others` under way. A limit
    /// from the settings is for all together; a learnt one is for this process, beside what the
    /// others have.
    fn most_in_all(&self, others: u32) -> u32 {
        self.learnt.as_ref().map_or(self.most, |learnt| learnt.most_beside(others))
    }

    /// Limits the requests under way as the settings say, or as is learnt within their bounds.
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

    /// Called while the upstream is full and requests wait. Returns whether more may be under way,
    /// because nothing ends.
    pub(super) fn relieve(&mut self, now_ns: u64) -> bool {
        let Some(learnt) = &mut self.learnt else { return false };
        let is_relieved = learnt.relieve(now_ns);
        self.most = learnt.most();
        is_relieved
    }

    /// Samples the number under way after a change.
    pub(super) fn look(&mut self, now_ns: u64) {
        if let Some(learnt) = &mut self.learnt {
            let others = self.shared.map_or(0, |shared| shared.others());
            learnt.under_way(self.in_flight, others, now_ns);
        }
    }
}
