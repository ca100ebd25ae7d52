//! Upstreams that do the same: which is asked, which is not, and how much is under way to each.
//!
//! It keeps no socket and reads no clock. Its owner, which threads share, locks it for a moment when a
//! request begins and when it ends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`balance`] | which of them is asked next |
//! | [`health`] | which of them are asked at all |
//! | [`learnt`] | how much one usefully has under way, where that is learnt |
//! | [`retry`] | which requests may be sent again, and how many of all |
//! | [`notices`] | what an operator is told of them |

pub mod balance;
pub mod health;
pub mod learnt;
pub mod notices;
pub mod retry;

use crate::group::balance::{Balancer, Candidate, WHOLE, hash};
use crate::group::health::{Health, HealthGrade, HealthSign, UpstreamCondition};
use crate::group::learnt::LearntPlaces;
use crate::group::retry::Budget;
use crate::settings;
use forebay_control::concurrency::AnswerQuality;
use forebay_control::shared::SharedCount;

/// One of them, by its place in [`settings::GroupSettings::to`].
pub type MemberIndex = usize;

/// Several upstreams, and what is known of them.
#[derive(Clone, Debug)]
pub struct UpstreamGroup {
    members: Vec<GroupState>,
    balancer: Balancer,
    budget: Budget,
    /// Whether what is under way to each is bounded.
    is_bounded: bool,
    /// Places of each that the next request may not have.
    kept: u32,
    /// Room for what is compared.
    candidates: Vec<Candidate>,
    /// One that counts one request more than is under way, for the next one.
    held: Option<MemberIndex>,
}

#[derive(Clone, Debug)]
struct GroupState {
    health: Health,
    /// What it gets beside the others.
    weight: u16,
    /// Whether it is asked only while none of those that are no backup is well.
    is_backup: bool,
    in_flight: u32,
    /// Requests under way to it, at most.
    most: u32,
    /// Of what is under way, connections that are tunnels.
    tunnels: u32,
    /// By whom `most` is decided, where it is learnt.
    learnt: Option<Box<LearntPlaces>>,
    /// What other processes have under way to it.
    shared: Option<SharedCount>,
}

impl GroupState {
    /// Counts one more, if no more are under way then than may be, in all processes, less those that are `kept`.
    fn take(&mut self, kept: u32) -> bool {
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

    fn give_back(&mut self) {
        debug_assert!(self.in_flight > 0, "it was begun");
        self.in_flight = self.in_flight.saturating_sub(1);
        self.shared.iter().for_each(SharedCount::give_back);
    }

    fn standing(&self) -> MemberStanding {
        (self.health.grade(), self.is_backup)
    }

    fn has_room(&self, kept: u32) -> bool {
        let others = self.shared.map_or(0, |shared| shared.others());
        self.in_flight.saturating_add(others) < self.most_in_all(others).saturating_sub(kept)
    }

    /// So many may be under way in all processes, of which others have so many. A number of the settings is for all
    /// together; one that is learnt is for this process, beside what the others have.
    fn most_in_all(&self, others: u32) -> u32 {
        self.learnt.as_ref().map_or(self.most, |learnt| learnt.most_beside(others))
    }

    /// As much may be under way as the settings say, or as is learnt within their bounds.
    fn bound(&mut self, settings: &settings::GroupSettings, now_ns: u64) {
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
    fn relieve(&mut self, now_ns: u64) -> bool {
        let Some(learnt) = &mut self.learnt else { return false };
        let is_relieved = learnt.relieve(now_ns);
        self.most = learnt.most();
        is_relieved
    }

    /// What is under way has changed by now.
    fn look(&mut self, now_ns: u64) {
        if let Some(learnt) = &mut self.learnt {
            let others = self.shared.map_or(0, |shared| shared.others());
            learnt.under_way(self.in_flight, others, now_ns);
        }
    }
}

/// How one stands, and whether it is a backup: the least is asked first.
type MemberStanding = (HealthGrade, bool);

/// Why none is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// All that may be asked have as much under way as they may, and as many wait as may.
    Full,
    /// None may be asked.
    Down,
    /// As many threads of the server are kept by requests for applications as may be.
    Threads,
    /// As many descriptors of the server are kept by them as may be, in all or for one client.
    Descriptors,
    /// It has waited for as long as it may.
    Late,
    /// It has waited for as long as its client does.
    Deadline,
    /// As much of its class is unfinished as an agent lets be.
    Limited {
        /// What its client is told of when to come back, in seconds.
        retry_after_s: u32,
    },
}

impl UpstreamGroup {
    /// As the settings say. `seed` is any number; groups with different ones draw differently.
    pub fn new(settings: &settings::GroupSettings, seed: u64, now_ms: u64) -> UpstreamGroup {
        let settings::GroupSettings { max_fails, fail_time, slow_start, check, .. } = settings;
        let member = |_| GroupState {
            health: Health::new(*max_fails, *fail_time, *slow_start, check.as_ref(), now_ms),
            weight: 1,
            is_backup: false,
            in_flight: 0,
            most: u32::MAX,
            tunnels: 0,
            learnt: None,
            shared: None,
        };
        let keys = settings.to.iter().map(|to| hash(to.to_string().as_bytes())).collect();
        let mut group = UpstreamGroup {
            members: settings.to.iter().map(member).collect(),
            balancer: Balancer::new(settings.balance, keys, seed),
            budget: Budget::new(settings.retry_permille, now_ms),
            is_bounded: false,
            kept: 0,
            candidates: Vec::with_capacity(settings.to.len()),
            held: None,
        };
        group.weigh(settings);
        group.bound(settings, now_ms);
        group
    }

    /// As much may be under way to each as the settings say.
    fn bound(&mut self, settings: &settings::GroupSettings, now_ms: u64) {
        self.is_bounded = settings.in_flight.is_some();
        self.members.iter_mut().for_each(|one| one.bound(settings, now_ms * 1_000_000));
    }

    /// Gives each its weight, and says which are backups.
    fn weigh(&mut self, settings: &settings::GroupSettings) {
        let first_backup = self.members.len().saturating_sub(settings.backups);
        for (at, one) in self.members.iter_mut().enumerate() {
            one.weight = settings.weights.get(at).copied().unwrap_or(1);
            one.is_backup = at >= first_backup;
        }
    }

    /// What is under way to each is counted there from now on, too, and what other processes have counts.
    pub fn share(&mut self, counts: impl IntoIterator<Item = Option<SharedCount>>) {
        for (one, shared) in self.members.iter_mut().zip(counts) {
            shared.iter().for_each(|shared| shared.add(one.in_flight));
            let before = std::mem::replace(&mut one.shared, shared);
            before.iter().for_each(|before| before.subtract(one.in_flight));
        }
    }

    /// Keeps room for a request that is begun next, if there is some that no other process takes meanwhile. What is
    /// not begun is [let go](UpstreamGroup::let_go).
    pub fn hold(&mut self, now_ms: u64) -> bool {
        self.compare(&[], now_ms);
        let UpstreamGroup { members, candidates, held, kept, .. } = self;
        let mut able = (0..).zip(&*candidates).filter(|(_, one)| one.share > 0).map(|(at, _)| at);
        *held = able.find(|at: &usize| members[*at].take(*kept));
        held.is_some()
    }

    /// Keeps no room any more.
    pub fn let_go(&mut self) {
        if let Some(held) = self.held.take() {
            self.members[held].give_back();
        }
    }

    /// Takes over other settings, of the same upstreams; what is known of these, and what is under way,
    /// stays.
    pub fn set(&mut self, settings: &settings::GroupSettings, now_ms: u64) {
        let settings::GroupSettings { max_fails, fail_time, slow_start, check, .. } = settings;
        for one in &mut self.members {
            one.health.set(*max_fails, *fail_time, *slow_start, check.as_ref(), now_ms);
        }
        self.weigh(settings);
        self.balancer.set(settings.balance);
        self.budget.set(settings.retry_permille);
        self.bound(settings, now_ms);
    }

    /// So many places of each are not for the requests that are asked about from now on.
    pub fn keep_back(&mut self, kept: u32) {
        self.kept = kept;
    }

    /// Whether one more request finds an upstream.
    ///
    /// # Errors
    /// Why it does not.
    pub fn has_room(&mut self, now_ms: u64) -> Result<(), Unavailable> {
        self.compare(&[], now_ms);
        let may_be_asked = |one: &GroupState| one.health.grade() != HealthGrade::Draining;
        match self.candidates.iter().any(|one| one.share > 0) {
            true => Ok(()),
            false if self.members.iter().any(may_be_asked) => Err(Unavailable::Full),
            false => Err(Unavailable::Down),
        }
    }

    /// The one that is asked now, by the [`hash`] of what the request is balanced by. Those in `tried` are
    /// asked again only if there is no other. It has one more request under way then, which
    /// [ends](UpstreamGroup::end).
    ///
    /// # Errors
    /// Why there is none.
    pub fn begin(
        &mut self,
        key: u64,
        tried: &[MemberIndex],
        now_ms: u64,
    ) -> Result<MemberIndex, Unavailable> {
        if tried.is_empty() {
            self.budget.deposit();
        }
        // another process may take the last place of the one that is picked
        for _ in 0..=self.members.len() {
            let member = self.pick(key, tried, now_ms);
            let again = |group: &mut UpstreamGroup| group.pick(key, &[], now_ms);
            let member = member.or_else(|| again(self).filter(|_| !tried.is_empty()));
            let Some(member) = member else { break };
            if self.count(member, now_ms) {
                return Ok(member);
            }
        }
        let held = self.held.filter(|held| self.count(*held, now_ms));
        held.ok_or_else(|| self.has_room(now_ms).err().unwrap_or(Unavailable::Full))
    }

    /// This one is asked now, if it may be asked and has room: whether that is so. It has one more request under way
    /// then.
    pub fn begin_at(&mut self, member: MemberIndex, now_ms: u64) -> bool {
        self.compare(&[], now_ms);
        let is_able = self.candidates.get(member).is_some_and(|one| one.share > 0);
        let is_begun = is_able && self.count(member, now_ms);
        if is_begun {
            self.budget.deposit();
        }
        is_begun
    }

    /// One more is under way to this one, unless other processes have taken what there was.
    fn count(&mut self, member: MemberIndex, now_ms: u64) -> bool {
        let is_held = self.held.take_if(|held| *held == member).is_some();
        let one = &mut self.members[member];
        let is_taken = is_held || one.take(self.kept);
        if is_taken {
            one.health.begin(now_ms);
        }
        is_taken
    }

    /// Whether one that was not tried may be asked now.
    pub fn has_other(&mut self, tried: &[MemberIndex], now_ms: u64) -> bool {
        self.compare(tried, now_ms);
        self.candidates.iter().any(|one| one.share > 0)
    }

    fn pick(&mut self, key: u64, tried: &[MemberIndex], now_ms: u64) -> Option<MemberIndex> {
        self.compare(tried, now_ms);
        self.balancer.pick(&self.candidates, key)
    }

    /// Finds out what share each has now; none, if it cannot be asked.
    fn compare(&mut self, tried: &[MemberIndex], now_ms: u64) {
        let best = self.best(tried);
        let UpstreamGroup { members, candidates, held, kept, .. } = self;
        candidates.clear();
        candidates.extend(members.iter().enumerate().map(|(at, one)| {
            let grade = one.health.grade();
            let share = match best {
                // what was asked in vain is not sent to one that is only tried
                Some((HealthGrade::Well, _)) if !tried.is_empty() && grade != HealthGrade::Well => {
                    0
                }
                Some((HealthGrade::Well, false)) if one.is_backup => 0,
                // while backups are asked, too: a request tries now and then whether one of the others is back
                Some((HealthGrade::Well, _)) => one.health.share(now_ms),
                _ if Some(one.standing()) == best => WHOLE,
                _ => 0,
            };
            let is_held = *held == Some(at);
            let is_able = (is_held || one.has_room(*kept)) && !tried.contains(&at);
            let in_flight = one.in_flight - u32::from(is_held);
            let share = if is_able { share } else { 0 };
            Candidate { in_flight, share, weight: one.weight }
        }));
    }

    /// How those stand that are asked: well, if one is that is no backup, else well if a backup is. If none is, those
    /// that have failed are asked all the same, and after them those whose checks fail: they may be better than they
    /// seem, and no other can answer. So is it with a request that was asked in vain where all others have failed before:
    /// in a rolling restart they are back, and the one that was well has gone.
    fn best(&self, tried: &[MemberIndex]) -> Option<MemberStanding> {
        let untried = self.members.iter().enumerate().filter(|(at, _)| !tried.contains(at));
        let standings = untried.map(|(_, one)| one.standing());
        standings.filter(|(grade, _)| *grade != HealthGrade::Draining).min()
    }

    /// A request to one of them is over.
    pub fn end(&mut self, member: MemberIndex, told: HealthSign, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.give_back();
            one.health.told(told, now_ms);
        }
    }

    /// A request to one of them has told this, and goes on.
    pub fn told(&mut self, member: MemberIndex, told: HealthSign, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.told(told, now_ms);
        }
    }

    /// Whether one more request may be sent again, as far as all of them are concerned; then it counts.
    pub fn may_retry(&mut self, now_ms: u64) -> bool {
        self.budget.withdraw(now_ms)
    }

    /// Requests under way to one of them.
    pub fn in_flight(&self, member: MemberIndex) -> u32 {
        self.members.get(member).map_or(0, |one| one.in_flight)
    }

    /// How many requests may be under way to one of them now; `None` for no limit.
    pub fn most_in_flight(&self, member: MemberIndex) -> Option<u32> {
        self.members.get(member).filter(|_| self.is_bounded).map(|one| one.most)
    }

    /// What was learnt of how many that should be.
    pub fn learnt(&self, member: MemberIndex) -> Option<&LearntPlaces> {
        self.members.get(member)?.learnt.as_deref()
    }

    /// What is under way to one of them has changed by now.
    pub fn look(&mut self, member: MemberIndex, now_ns: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.look(now_ns);
        }
    }

    /// A request to one of them ends now, which took so long: what is learnt of that, where something is.
    pub fn learn(
        &mut self,
        member: MemberIndex,
        took_ns: u64,
        outcome: AnswerQuality,
        now_ns: u64,
    ) {
        if let Some(one) = self.members.get_mut(member)
            && let Some(learnt) = &mut one.learnt
        {
            learnt.ended(took_ns, outcome, now_ns);
            one.most = learnt.most();
        }
    }

    /// A connection to one of them has become a tunnel, or one has ended.
    pub fn tunnel(&mut self, member: MemberIndex, is_open: bool) {
        let Some(one) = self.members.get_mut(member) else { return };
        one.tunnels = match is_open {
            true => one.tunnels.saturating_add(1),
            false => one.tunnels.saturating_sub(1),
        };
        if let Some(learnt) = &mut one.learnt {
            learnt.has_tunnels(one.tunnels);
            one.most = learnt.most();
        }
    }

    /// Requests wait while none finds room: the first that is full and where nothing ends may have more under way, where
    /// that is learnt. Says whether there is one.
    pub fn relieve(&mut self, now_ns: u64) -> bool {
        let kept = self.kept;
        let mut full = self.members.iter_mut().filter(|one| !one.has_room(kept));
        full.any(|one| one.relieve(now_ns))
    }

    /// One of them has said how many requests it can work on at once.
    pub fn has_workers(&mut self, member: MemberIndex, count: Option<u32>, now_ns: u64) {
        if let Some(one) = self.members.get_mut(member)
            && let Some(learnt) = &mut one.learnt
        {
            learnt.has_workers(count, now_ns);
            one.most = learnt.most();
        }
    }

    /// How many requests may be under way to those that are asked now; `None` for no limit.
    pub fn places(&self) -> Option<u32> {
        let best = self.best(&[]);
        let asked = self.members.iter().filter(|one| Some(one.standing()) == best);
        let places = asked.fold(0, |all: u32, one| all.saturating_add(one.most));
        // while none is asked, one will be
        let one = self.members.iter().map(|one| one.most).max()?;
        self.is_bounded.then_some(if places > 0 { places } else { one })
    }

    /// What is to be told of one of them.
    pub fn condition(&self, member: MemberIndex) -> Option<UpstreamCondition> {
        let one = self.members.get(member)?;
        Some(match one.health.condition() {
            UpstreamCondition::Out { since_ms } | UpstreamCondition::Unwell { since_ms }
                if Some(one.standing()) == self.best(&[]) =>
            {
                UpstreamCondition::Failing { since_ms }
            }
            UpstreamCondition::Well if Some(one.standing()) > self.best(&[]) => {
                UpstreamCondition::Backup
            }
            other => other,
        })
    }

    /// Takes one of them out, or back in.
    pub fn drain(&mut self, member: MemberIndex, is_draining: bool, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.drain(is_draining, now_ms);
        }
    }

    /// When the next of them is to be asked whether it is well.
    pub fn next_check_ms(&self) -> Option<u64> {
        self.members.iter().filter_map(|one| one.health.next_check_ms()).min()
    }

    /// One that is to be asked so now; the answer must be [told](UpstreamGroup::checked).
    pub fn begin_check(&mut self, now_ms: u64) -> Option<MemberIndex> {
        self.members.iter_mut().position(|one| one.health.begin_check(now_ms))
    }

    /// What came of asking.
    pub fn checked(&mut self, member: MemberIndex, is_good: bool, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.checked(is_good, now_ms);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::settings::{
        Balance, BalanceKey, HealthCheckSettings, KeepAliveSettings, QueueSettings,
        UpstreamAddress, UpstreamTimeouts,
    };
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::time::Duration;

    const S: u64 = 1000;

    pub(crate) fn settings(
        count: usize,
        balance: Balance,
        in_flight: Option<u32>,
    ) -> settings::GroupSettings {
        let second = Duration::from_secs(1);
        settings::GroupSettings {
            to: (1..=count)
                .map(|number| UpstreamAddress::http(&format!("http://10.0.0.{number}")).unwrap())
                .collect(),
            backups: 0,
            weights: Vec::new(),
            balance,
            key: BalanceKey::Client,
            in_flight,
            in_flight_from: None,
            reserve: Vec::new(),
            queue: QueueSettings { requests: 0, time: second, down: Default::default() },
            keep_alive: KeepAliveSettings { connections: 1, idle: second },
            timeouts: UpstreamTimeouts {
                connect: second,
                head: second,
                body: second,
                silence: second,
            },
            retries: 1,
            retry_permille: 200,
            max_fails: 1,
            fail_time: 10 * second,
            slow_start: Duration::ZERO,
            check: None,
            abort_on_close: false,
            tls: None,
            http2: false,
            http2_connections: None,
        }
    }

    fn group(count: usize, balance: Balance, in_flight: Option<u32>) -> UpstreamGroup {
        UpstreamGroup::new(&settings(count, balance, in_flight), 1, 0)
    }

    const ALL: [Balance; 4] =
        [Balance::Hash, Balance::Least, Balance::RoundRobin, Balance::TwoChoices];

    /// Whom 60 requests of different keys are sent to, of which nothing becomes known.
    fn asked(group: &mut UpstreamGroup, now_ms: u64) -> Vec<MemberIndex> {
        let ask = |key| {
            let member = group.begin(crate::group::balance::hash(&[key]), &[], now_ms).unwrap();
            group.end(member, HealthSign::Nothing, now_ms);
            member
        };
        (0..60).map(ask).collect()
    }

    #[test]
    fn one_that_is_well_is_asked_alone_and_all_if_none_is() {
        for balance in ALL {
            let mut group = group(4, balance, None);
            for out in 0..3 {
                group.members[out].health.told(HealthSign::Failed, 0);
                let asked = asked(&mut group, S);
                assert!(asked.iter().all(|member| *member > out), "{balance:?}: {asked:?}");
                assert!(matches!(group.condition(out), Some(UpstreamCondition::Out { .. })));
            }
            group.members[3].health.told(HealthSign::Failed, 0);
            let asked = asked(&mut group, S);
            assert!((0..4).all(|at| asked.contains(&at)), "{balance:?}: {asked:?}");
            assert_eq!(group.condition(0), Some(UpstreamCondition::Failing { since_ms: 0 }));
            // the first that answers is asked alone
            group.members[2].health.told(HealthSign::Well, 2 * S);
            assert!(self::asked(&mut group, 2 * S).iter().all(|member| *member == 2));
            assert_eq!(group.condition(0), Some(UpstreamCondition::Out { since_ms: 0 }));
            group.drain(2, true, 3 * S);
            assert!(!self::asked(&mut group, 3 * S).contains(&2));
        }
    }

    #[test]
    fn one_request_tries_who_is_out_and_goes_to_one_that_is_well_then() {
        for balance in ALL {
            let mut group = group(3, balance, None);
            for out in [0, 1] {
                group.members[out].health.told(HealthSign::Failed, 0);
            }
            let mut tried = [0; 3];
            for key in 0..60 {
                let key = crate::group::balance::hash(&[key]);
                let member = group.begin(key, &[], 10 * S).unwrap();
                tried[member] += 1;
                if member < 2 {
                    assert_eq!(group.begin(key, &[member], 10 * S), Ok(2), "{balance:?}");
                    group.end(2, HealthSign::Well, 10 * S);
                    group.end(member, HealthSign::Failed, 10 * S);
                } else {
                    group.end(member, HealthSign::Well, 10 * S);
                }
            }
            assert!(tried[0] <= 1 && tried[1] <= 1, "{balance:?}: {tried:?}");
        }
    }

    #[test]
    fn whose_checks_fail_are_asked_last() {
        let check = HealthCheckSettings {
            path: "/".into(),
            interval: Duration::from_secs(5),
            statuses: Vec::new(),
        };
        let settings =
            settings::GroupSettings { check: Some(check), ..settings(3, Balance::Least, None) };
        let mut group = UpstreamGroup::new(&settings, 1, 0);
        for _ in 0..3 {
            for at in [0, 1] {
                group.checked(at, false, 0);
            }
        }
        assert!(asked(&mut group, S).iter().all(|member| *member == 2));
        assert_eq!(group.condition(0), Some(UpstreamCondition::Unwell { since_ms: 0 }));
        group.members[2].health.told(HealthSign::Failed, 0);
        assert!(asked(&mut group, S).iter().all(|member| *member == 2));
        assert_eq!(group.condition(2), Some(UpstreamCondition::Failing { since_ms: 0 }));
        let other = group.begin(0, &[2], S).unwrap();
        assert_ne!(other, 2, "who has failed the request already");
        group.end(other, HealthSign::Nothing, S);
        for _ in 0..3 {
            group.checked(2, false, S);
        }
        let asked = asked(&mut group, S);
        assert!((0..3).all(|at| asked.contains(&at)), "{asked:?}");
        assert_eq!(group.condition(0), Some(UpstreamCondition::Failing { since_ms: 0 }));
    }

    #[test]
    fn backups_are_asked_while_none_of_the_others_is_well() {
        for balance in ALL {
            let settings = settings::GroupSettings { backups: 2, ..settings(4, balance, Some(30)) };
            let mut group = UpstreamGroup::new(&settings, 1, 0);
            let all_of = |asked: Vec<MemberIndex>, of: [MemberIndex; 2], why: &str| {
                assert!(asked.iter().all(|at| of.contains(at)), "{why}, {balance:?}: {asked:?}");
                assert!(of.iter().all(|at| asked.contains(at)), "{why}, {balance:?}: {asked:?}");
            };
            all_of(asked(&mut group, 0), [0, 1], "all are well");
            assert_eq!(group.places(), Some(60), "{balance:?}");
            assert_eq!(group.condition(2), Some(UpstreamCondition::Backup));
            // what failed once is sent to one of the others, then to a backup
            let second = group.begin(7, &[0], 0).unwrap();
            let third = group.begin(7, &[0, 1], 0).unwrap();
            assert!(second == 1 && third >= 2, "{balance:?}: {second}, {third}");
            for at in [second, third] {
                group.end(at, HealthSign::Nothing, 0);
            }
            group.drain(0, true, 0);
            group.members[1].health.told(HealthSign::Failed, 0);
            all_of(asked(&mut group, S), [2, 3], "none of the others is well");
            assert_eq!(group.condition(1), Some(UpstreamCondition::Out { since_ms: 0 }));
            assert_eq!(group.condition(2), Some(UpstreamCondition::Well));
            assert_eq!(group.places(), Some(60), "{balance:?}");
            // now and then one request tries whether one is back
            let is_back = asked(&mut group, 10 * S).contains(&1);
            assert!(is_back, "{balance:?}");
            group.members[1].health.told(HealthSign::Well, 10 * S);
            assert!(asked(&mut group, 10 * S).iter().all(|at| *at == 1), "{balance:?}");
            // where nobody is well, the others are better than backups
            for at in 1..4 {
                group.members[at].health.told(HealthSign::Failed, 11 * S);
            }
            assert!(asked(&mut group, 12 * S).iter().all(|at| *at == 1), "{balance:?}");
        }
    }

    #[test]
    fn a_backup_takes_nothing_because_others_are_full() {
        let settings =
            settings::GroupSettings { backups: 1, ..settings(2, Balance::Least, Some(1)) };
        let mut group = UpstreamGroup::new(&settings, 1, 0);
        assert_eq!(group.begin(0, &[], 0), Ok(0));
        assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Full));
        group.members[0].health.told(HealthSign::Failed, 0);
        assert_eq!(group.begin(0, &[], 0), Ok(1));
    }

    #[test]
    fn another_one_is_tried_if_there_is_one() {
        for balance in ALL {
            let mut two = group(2, balance, None);
            let first = two.begin(7, &[], 0).unwrap();
            assert_eq!(two.begin(7, &[first], 0), Ok(1 - first));
            let mut one = group(1, balance, None);
            assert_eq!(one.begin(7, &[0], 0), Ok(0));
        }
    }

    #[test]
    fn what_was_asked_in_vain_goes_to_one_that_is_out_if_no_other_is_left() {
        for balance in ALL {
            let mut group = group(2, balance, None);
            group.members[0].health.told(HealthSign::Failed, 0);
            // the other one has just gone, and is well as far as is known
            assert_eq!(group.begin(7, &[1], S), Ok(0), "{balance:?}");
            group.drain(0, true, S);
            assert_eq!(group.begin(7, &[1], S), Ok(1), "{balance:?}");
        }
    }

    #[test]
    fn what_is_full_waits_and_what_is_drained_is_not_asked() {
        let mut group = group(2, Balance::Least, Some(2));
        let members: Vec<_> = (0..4).map(|_| group.begin(0, &[], 0).unwrap()).collect();
        assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Full));
        group.end(members[0], HealthSign::Well, 0);
        assert_eq!(group.begin(0, &[], 0), Ok(members[0]));
        group.drain(0, true, 0);
        group.end(0, HealthSign::Well, 0);
        assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Full));
        group.drain(1, true, 0);
        assert_eq!(group.begin(0, &[], 0), Err(Unavailable::Down));
        assert_eq!((group.in_flight(0), group.in_flight(1)), (1, 2));
    }

    #[test]
    fn each_is_checked_when_its_time_has_come() {
        let check = HealthCheckSettings {
            path: "/".into(),
            interval: Duration::from_secs(5),
            statuses: Vec::new(),
        };
        let settings =
            settings::GroupSettings { check: Some(check), ..settings(2, Balance::Least, None) };
        let mut group = UpstreamGroup::new(&settings, 1, 0);
        assert_eq!(group.next_check_ms(), Some(0));
        for turn in 0..3 {
            let now_ms = turn * 5 * S;
            assert_eq!(group.begin_check(now_ms), Some(0));
            assert_eq!(group.begin_check(now_ms), Some(1));
            assert_eq!((group.begin_check(now_ms), group.next_check_ms()), (None, None));
            group.checked(0, false, now_ms + 1);
            group.checked(1, true, now_ms + 2);
            assert_eq!(group.next_check_ms(), Some(now_ms + 5 * S));
        }
        for _ in 0..4 {
            assert_eq!(group.begin(0, &[], 20 * S), Ok(1));
        }
        assert_eq!(group.condition(0), Some(UpstreamCondition::Unwell { since_ms: 10 * S + 1 }));
    }

    proptest! {
        /// Whatever fails when: nobody has more under way than it may, what ends was begun, and one
        /// that may be asked is found whenever there is room.
        #[test]
        fn every_request_finds_room_where_there_is_some(
            steps in prop::collection::vec((0u8..5, 0u64..3000, any::<u64>()), 1..200),
            count in 1usize..5, most in 1u32..4, balance in 0usize..4,
        ) {
            let balance = ALL[balance];
            let mut group = group(count, balance, Some(most));
            let mut under_way: VecDeque<MemberIndex> = VecDeque::new();
            let mut now_ms = 0;
            for (what, pass_ms, key) in steps {
                now_ms += pass_ms;
                match what {
                    0 | 1 => match group.begin(key, &[], now_ms) {
                        Ok(member) => under_way.push_back(member),
                        // those that are well have no room, or all if none is
                        Err(error) => {
                            prop_assert_eq!(error, Unavailable::Full);
                            let has_room = |at: &MemberIndex| {
                                let condition = group.condition(*at);
                                let is_asked = matches!(
                                    condition, Some(UpstreamCondition::Well | UpstreamCondition::Failing { .. })
                                );
                                is_asked && group.in_flight(*at) < most
                            };
                            prop_assert!((0..count).find(has_room).is_none());
                        }
                    },
                    what => {
                        let told = [HealthSign::Well, HealthSign::Failed, HealthSign::Nothing][usize::from(what) - 2];
                        if let Some(member) = under_way.pop_front() {
                            group.end(member, told, now_ms);
                        }
                    }
                }
                for at in 0..count {
                    let known = under_way.iter().filter(|member| **member == at).count();
                    prop_assert_eq!(group.in_flight(at) as usize, known);
                    prop_assert!(group.in_flight(at) <= most);
                }
            }
        }
    }
}
