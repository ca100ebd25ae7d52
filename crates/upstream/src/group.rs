//! A group of upstreams for the same application: which one gets the next request, and how many
//! requests each has under way.
//!
//! The group keeps no socket and reads no clock. Its owner, which threads share, locks it for a
//! moment when a request begins and when it ends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`balance`] | which upstream gets the next request |
//! | [`health`] | which upstreams get requests at all |
//! | [`learnt`] | how many requests an upstream usefully has under way, where that is learnt |
//! | `member` | what one upstream has under way, and how much that may be |
//! | [`retry`] | which requests may be sent again, and how many in all |
//! | [`notices`] | lines for the operator about upstreams |

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

/// An upstream of the group, by its place in [`settings::GroupSettings::to`].
pub type MemberIndex = usize;

/// A group of upstreams, and what is known of them.
#[derive(Clone, Debug)]
pub struct UpstreamGroup {
    members: Vec<GroupState>,
    balancer: Balancer,
    budget: Budget,
    /// Whether the number of requests under way to each is limited.
    is_bounded: bool,
    /// The number of places of each upstream that the next request may not take.
    kept: u32,
    /// A buffer for the comparison of upstreams.
    candidates: Vec<Candidate>,
    /// An upstream that counts one request more than is under way, for the next request.
    held: Option<MemberIndex>,
}

/// The health of an upstream, and whether it is a backup: the least is asked first.
type MemberStanding = (HealthGrade, bool);

/// The terms of one server by the records of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTerms {
    /// The weight of this server beside the others.
    pub weight: u16,
    /// Whether the server is asked only while no other server that is not a backup is well.
    pub is_backup: bool,
    /// The [`hash`] of the server's name.
    pub key: u64,
}

/// Why a request gets no upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// All upstreams that may be asked have as many requests under way as they may, and the queue is
    /// full.
    Full,
    /// No upstream may be asked.
    Down,
    /// Requests for applications hold as many threads of the server as they may.
    Threads,
    /// Requests for applications hold as many descriptors of the server as they may, in all or for
    /// one client.
    Descriptors,
    /// The request has waited for as long as the queue allows.
    Late,
    /// The request has waited for as long as its client does.
    Deadline,
    /// The class of the request has as many unfinished requests as an agent allows.
    Limited {
        /// After how many seconds the client is asked to come back.
        retry_after_s: u32,
    },
}

impl UpstreamGroup {
    /// A group with these settings. `seed` is any number; groups with different ones draw
    /// differently.
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

    /// Limits the requests under way to each upstream as the settings say.
    fn bound(&mut self, settings: &settings::GroupSettings, now_ms: u64) {
        self.is_bounded = settings.in_flight.is_some();
        self.members.iter_mut().for_each(|one| one.bound(settings, now_ms * 1_000_000));
    }

    /// Gives each upstream its weight, and marks the backups.
    fn weigh(&mut self, settings: &settings::GroupSettings) {
        let first_backup = self.members.len().saturating_sub(settings.backups);
        for (at, one) in self.members.iter_mut().enumerate() {
            one.written = (settings.weights.get(at).copied().unwrap_or(1), at >= first_backup);
            one.weigh();
        }
    }

    /// Counts the requests under way to each upstream in these shared counts, too, from now on. What
    /// other processes have under way then counts here.
    pub fn share(&mut self, counts: impl IntoIterator<Item = Option<SharedCount>>) {
        for (one, shared) in self.members.iter_mut().zip(counts) {
            shared.iter().for_each(|shared| shared.add(one.in_flight));
            let before = std::mem::replace(&mut one.shared, shared);
            before.iter().for_each(|before| before.subtract(one.in_flight));
        }
    }

    /// Keeps room for the request that is begun next, if there is any; no other process can take it
    /// meanwhile. Room that is not used is [given back](UpstreamGroup::let_go).
    pub fn hold(&mut self, now_ms: u64) -> bool {
        self.compare(&[], now_ms);
        let UpstreamGroup { members, candidates, held, kept, .. } = self;
        let mut able = (0..).zip(&*candidates).filter(|(_, one)| one.share > 0).map(|(at, _)| at);
        *held = able.find(|at: &usize| members[*at].take(*kept));
        held.is_some()
    }

    /// Gives the kept room back.
    pub fn let_go(&mut self) {
        if let Some(held) = self.held.take() {
            self.members[held].give_back();
        }
    }

    /// Takes over other settings for the same upstreams. What is known of them, and what is under
    /// way, stays.
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

    /// Puts another server, or none, in this place. What was known of the previous server is
    /// forgotten; its requests under way finish.
    pub fn becomes(&mut self, member: MemberIndex, said: Option<ServerTerms>, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.renew(now_ms);
        }
        self.is_said(member, said);
    }

    /// Notes what the records of a service say of the server in this place.
    pub fn is_said(&mut self, member: MemberIndex, said: Option<ServerTerms>) {
        let Some(one) = self.members.get_mut(member) else { return };
        (one.said, one.is_vacant) = (said, said.is_none());
        one.weigh();
        if let Some(said) = said {
            self.balancer.is_called(member, said.key);
        }
    }

    /// Whether this place has no server.
    pub fn is_vacant(&self, member: MemberIndex) -> bool {
        self.members.get(member).is_some_and(|one| one.is_vacant)
    }

    /// Keeps this many places of each upstream from the requests that are asked about from now on.
    pub fn keep_back(&mut self, kept: u32) {
        self.kept = kept;
    }

    /// Whether an upstream has room for one more request.
    ///
    /// # Errors
    /// Why no upstream has room.
    pub fn has_room(&mut self, now_ms: u64) -> Result<(), Unavailable> {
        self.compare(&[], now_ms);
        let may_be_asked = |one: &GroupState| one.grade() != HealthGrade::Draining;
        match self.candidates.iter().any(|one| one.share > 0) {
            true => Ok(()),
            false if self.members.iter().any(may_be_asked) => Err(Unavailable::Full),
            false => Err(Unavailable::Down),
        }
    }

    /// Chooses the upstream for a request, by the [`hash`] of what it is balanced by. Upstreams in
    /// `tried` are chosen again only if there is no other. The chosen one has one more request under
    /// way, which [ends](UpstreamGroup::end).
    ///
    /// # Errors
    /// Why no upstream is chosen.
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

    /// Begins a request at this upstream, if it may be asked and has room. Returns whether that is
    /// so; then it has one more request under way.
    pub fn begin_at(&mut self, member: MemberIndex, now_ms: u64) -> bool {
        self.compare(&[], now_ms);
        let is_able = self.candidates.get(member).is_some_and(|one| one.share > 0);
        let is_begun = is_able && self.count(member, now_ms);
        if is_begun {
            self.budget.deposit();
        }
        is_begun
    }

    /// Counts one more request under way to this upstream. Returns false if other processes have
    /// taken the last place.
    fn count(&mut self, member: MemberIndex, now_ms: u64) -> bool {
        let is_held = self.held.take_if(|held| *held == member).is_some();
        let one = &mut self.members[member];
        let is_taken = is_held || one.take(self.kept);
        if is_taken {
            one.health.begin(now_ms);
        }
        is_taken
    }

    /// Whether an upstream that is not in `tried` may be asked now.
    pub fn has_other(&mut self, tried: &[MemberIndex], now_ms: u64) -> bool {
        self.compare(tried, now_ms);
        self.candidates.iter().any(|one| one.share > 0)
    }

    fn pick(&mut self, key: u64, tried: &[MemberIndex], now_ms: u64) -> Option<MemberIndex> {
        self.compare(tried, now_ms);
        self.balancer.pick(&self.candidates, key)
    }

    /// Computes the share of each upstream now; 0 if it cannot be asked.
    fn compare(&mut self, tried: &[MemberIndex], now_ms: u64) {
        let best = self.best(tried);
        let UpstreamGroup { members, candidates, held, kept, .. } = self;
        candidates.clear();
        candidates.extend(members.iter().enumerate().map(|(at, one)| {
            let grade = one.grade();
            let share = match best {
                // a place without a server never fails, and would be tried for as long as backups are
                // asked
                _ if one.is_vacant => 0,
                // a request that has failed elsewhere is not used to try whether this one is back
                Some((HealthGrade::Well, _)) if !tried.is_empty() && grade != HealthGrade::Well => {
                    0
                }
                Some((HealthGrade::Well, false)) if one.is_backup => 0,
                // also while backups are asked: now and then a request tries whether one of the
                // others is back
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

    /// The standing of the upstreams that are asked. If any is well, that is well, backups only if no
    /// other is. If none is well, those that have failed are asked all the same, and after them those
    /// whose checks fail: they may be better than they seem, and no other can answer. The same holds
    /// for a request that has failed where all others had failed before: in a rolling restart those
    /// are back, and the one that was well has gone.
    fn best(&self, tried: &[MemberIndex]) -> Option<MemberStanding> {
        let untried = self.members.iter().enumerate().filter(|(at, _)| !tried.contains(at));
        let standings = untried.map(|(_, one)| one.standing());
        // an upstream whose checks fail is not asked while another is well, even if that one was just
        // asked in vain
        let has_well = self.members.iter().any(|one| one.standing().0 == HealthGrade::Well);
        let is_left_out = |grade: HealthGrade| match grade {
            HealthGrade::Draining => true,
            HealthGrade::Unwell => has_well,
            _ => false,
        };
        standings.filter(|(grade, _)| !is_left_out(*grade)).min()
    }

    /// Ends a request to an upstream, with what it has shown of the upstream's health.
    pub fn end(&mut self, member: MemberIndex, told: HealthSign, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.give_back();
            one.health.told(told, now_ms);
        }
    }

    /// Notes what a request has shown of the upstream's health; the request goes on.
    pub fn told(&mut self, member: MemberIndex, told: HealthSign, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.told(told, now_ms);
        }
    }

    /// Whether the retry budget of the group allows one more retry; then it counts.
    pub fn may_retry(&mut self, now_ms: u64) -> bool {
        self.budget.withdraw(now_ms)
    }

    /// The number of requests under way to an upstream.
    pub fn in_flight(&self, member: MemberIndex) -> u32 {
        self.members.get(member).map_or(0, |one| one.in_flight)
    }

    /// The largest number of requests under way to an upstream now; `None` for no limit.
    pub fn most_in_flight(&self, member: MemberIndex) -> Option<u32> {
        self.members.get(member).filter(|_| self.is_bounded).map(|one| one.most)
    }

    /// What was learnt about that number.
    pub fn learnt(&self, member: MemberIndex) -> Option<&LearntPlaces> {
        self.members.get(member)?.learnt.as_deref()
    }

    /// Samples the number of requests under way to an upstream after a change.
    pub fn look(&mut self, member: MemberIndex, now_ns: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.look(now_ns);
        }
    }

    /// Learns from a request that has just ended after `took_ns`, where the limit is learnt.
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

    /// Notes that a connection to an upstream has become a tunnel, or that a tunnel has ended.
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

    /// Raises learnt limits where requests wait and nothing ends: full upstreams may then have more
    /// under way. Returns whether any may.
    pub fn relieve(&mut self, now_ns: u64) -> bool {
        let kept = self.kept;
        let full = self.members.iter_mut().filter(|one| !one.has_room(kept));
        // `count` instead of `any`: every full upstream gets its chance
        full.filter_map(|one| one.relieve(now_ns).then_some(())).count() > 0
    }

    /// Starts the learnt limit of an upstream at `held`, which another process has learnt.
    pub fn begin_with(&mut self, member: MemberIndex, held: u32, now_ns: u64) {
        if let Some(one) = self.members.get_mut(member)
            && let Some(learnt) = &mut one.learnt
        {
            learnt.begin_with(held, now_ns);
            one.most = learnt.most();
        }
    }

    /// Notes how many requests an upstream says it can work on at once.
    pub fn has_workers(&mut self, member: MemberIndex, count: Option<u32>, now_ns: u64) {
        if let Some(one) = self.members.get_mut(member)
            && let Some(learnt) = &mut one.learnt
        {
            learnt.has_workers(count, now_ns);
            one.most = learnt.most();
        }
    }

    /// The number of requests that may be under way to the upstreams that are asked now; `None` for
    /// no limit.
    pub fn places(&self) -> Option<u32> {
        let best = self.best(&[]);
        let asked = self.members.iter().filter(|one| Some(one.standing()) == best);
        let places = asked.fold(0, |all: u32, one| all.saturating_add(one.most));
        // while no upstream is asked, one soon will be
        let one = self.members.iter().map(|one| one.most).max()?;
        self.is_bounded.then_some(if places > 0 { places } else { one })
    }

    /// The condition of an upstream, for reports.
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

    /// Takes an upstream out, or back in.
    pub fn drain(&mut self, member: MemberIndex, is_draining: bool, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.drain(is_draining, now_ms);
        }
    }

    /// When the next health check is due.
    pub fn next_check_ms(&self) -> Option<u64> {
        let asked = self.members.iter().filter(|one| !one.is_vacant);
        asked.filter_map(|one| one.health.next_check_ms()).min()
    }

    /// An upstream whose check is due now; the result must be passed to
    /// [`checked`](UpstreamGroup::checked).
    pub fn begin_check(&mut self, now_ms: u64) -> Option<MemberIndex> {
        self.members.iter_mut().position(|one| !one.is_vacant && one.health.begin_check(now_ms))
    }

    /// Notes the result of a health check.
    pub fn checked(&mut self, member: MemberIndex, is_good: bool, now_ms: u64) {
        if let Some(one) = self.members.get_mut(member) {
            one.health.checked(is_good, now_ms);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
