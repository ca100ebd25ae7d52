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
//! | `member` | what one of them has under way, and how much that may be |
//! | [`retry`] | which requests may be sent again, and how many of all |
//! | [`notices`] | what an operator is told of them |

pub mod balance;
pub mod health;
pub mod learnt;
mod member;
pub mod notices;
pub mod retry;

use crate::group::balance::{Balancer, Candidate, WHOLE, hash};
use crate::group::health::{Health, HealthGrade, HealthSign, UpstreamCondition};
use crate::group::learnt::LearntPlaces;
use crate::group::member::GroupState;
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

/// How one stands, and whether it is a backup: the least is asked first.
type MemberStanding = (HealthGrade, bool);

/// What the records of a service say of one of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTerms {
    /// What it gets beside the others.
    pub weight: u16,
    /// Whether it is asked only while none of those that are no backup is well.
    pub is_backup: bool,
    /// The [`hash`] of what it is called.
    pub key: u64,
}

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
        let member = |to: &settings::UpstreamAddress| GroupState {
            written: (1, false),
            said: None,
            is_vacant: matches!(to, settings::UpstreamAddress::Service(_)),
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
            one.written = (settings.weights.get(at).copied().unwrap_or(1), at >= first_backup);
            one.weigh();
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

    /// This one is another server from now on, or none: what is known of the one before is no more. What that has under
    /// way comes to its end.
    pub fn becomes(&mut self, member: MemberIndex, said: Option<ServerTerms>, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.renew(now_ms);
        }
        self.is_said(member, said);
    }

    /// The records of a service say this of the server that one of them is.
    pub fn is_said(&mut self, member: MemberIndex, said: Option<ServerTerms>) {
        let Some(one) = self.members.get_mut(member) else { return };
        (one.said, one.is_vacant) = (said, said.is_none());
        one.weigh();
        if let Some(said) = said {
            self.balancer.is_called(member, said.key);
        }
    }

    /// Whether no server is known for this one.
    pub fn is_vacant(&self, member: MemberIndex) -> bool {
        self.members.get(member).is_some_and(|one| one.is_vacant)
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
        let may_be_asked = |one: &GroupState| one.grade() != HealthGrade::Draining;
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
            let grade = one.grade();
            let share = match best {
                // a place that no server has fails nothing, and would be tried for as long as backups are asked
                _ if one.is_vacant => 0,
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
        // one whose checks fail is not asked while another is well, be it the one that was asked in vain
        let has_well = self.members.iter().any(|one| one.standing().0 == HealthGrade::Well);
        let is_left_out = |grade: HealthGrade| match grade {
            HealthGrade::Draining => true,
            HealthGrade::Unwell => has_well,
            _ => false,
        };
        standings.filter(|(grade, _)| !is_left_out(*grade)).min()
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

    /// Requests wait while none finds room: those that are full and where nothing ends may have more under way, where
    /// that is learnt. Says whether one may.
    pub fn relieve(&mut self, now_ns: u64) -> bool {
        let kept = self.kept;
        let full = self.members.iter_mut().filter(|one| !one.has_room(kept));
        // each is asked, whatever another has said
        full.filter_map(|one| one.relieve(now_ns).then_some(())).count() > 0
    }

    /// Another process has learnt how many requests one of them usefully has under way: that is where it begins here.
    pub fn begin_with(&mut self, member: MemberIndex, held: u32, now_ns: u64) {
        if let Some(one) = self.members.get_mut(member)
            && let Some(learnt) = &mut one.learnt
        {
            learnt.begin_with(held, now_ns);
            one.most = learnt.most();
        }
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
        let asked = self.members.iter().filter(|one| !one.is_vacant);
        asked.filter_map(|one| one.health.next_check_ms()).min()
    }

    /// One that is to be asked so now; the answer must be [told](UpstreamGroup::checked).
    pub fn begin_check(&mut self, now_ms: u64) -> Option<MemberIndex> {
        self.members.iter_mut().position(|one| !one.is_vacant && one.health.begin_check(now_ms))
    }

    /// What came of asking.
    pub fn checked(&mut self, member: MemberIndex, is_good: bool, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.checked(is_good, now_ms);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
