//! The answers that the kernel keeps of one content: limited in number, and dropped before the cache
//! drops them.
//!
//! An answer that is asked for again is kept, if that is possible. When all places are taken, an answer
//! that no client has asked for in the last period makes room. The cache reports when an answer is no
//! longer true ([`HotAnswer::keep`]), and the clock shows when the cache would check its file again: the
//! kernel drops the answer first.

use super::{ADDED_BYTES, AnswerKeeper, AnswerKey, MOST_ANSWER_BYTES, NotLearned};
use forebay_site::{FixedAnswer, FixedBytes, HotAnswer, LetGo, NotFixed};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The length of a period: an answer that was not asked for in one may have to make room.
const PERIOD_MS: u64 = 1000;

/// How long before the cache would check a file the kernel drops its answer: longer than from one
/// [look](Learner::look) to the next.
const LEAD_MS: u64 = 250;

/// The largest number of answers that are not learned and appear in a report.
const MOST_REFUSED: usize = 64;

/// The limits of what may be learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnerSettings {
    /// The addresses of the listeners at which the kernel may answer.
    pub listeners: Vec<SocketAddr>,
    /// Whether a site's settings prevent learning, by site.
    pub hindered: Vec<bool>,
    /// The largest number of requests on a connection.
    pub requests: u32,
    /// The largest number of answers.
    pub most_answers: usize,
    /// The largest number of their bytes, keys included.
    pub most_bytes: usize,
    /// The number of the content: [`Site::content_number`](forebay_site::Site::content_number).
    pub content: u64,
}

/// The answers that the kernel keeps of one content.
pub struct Learner {
    keeper: Arc<dyn AnswerKeeper>,
    settings: LearnerSettings,
    state: Mutex<LearnedAnswers>,
}

impl fmt::Debug for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learner").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct LearnedAnswers {
    known: HashMap<AnswerKey, LearnedAnswer>,
    /// The keys of the answers, by the numbers that the keeper has given.
    numbers: HashMap<u32, AnswerKey>,
    bytes: usize,
    /// The number of answers learned so far, which distinguishes two learnings of the same key.
    learned: u64,
    period_ms: u64,
    refused: BTreeMap<AnswerKey, NotLearned>,
    /// Whether nothing is learned any more.
    is_closed: bool,
}

struct LearnedAnswer {
    hot: HotAnswer,
    let_go: LetGo,
    /// The number of this learning.
    serial: u64,
    number: u32,
    bytes: usize,
    /// How often the kernel has given the answer.
    given: u64,
    /// The value of `given` when this period, and the one before, began.
    before: [u64; 2],
}

/// An answer that the kernel gives, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRow {
    /// The key of the answer.
    pub key: AnswerKey,
    /// Bytes of all forms of the answer.
    pub bytes: usize,
    /// How often the answer was given.
    pub given: u64,
}

/// The kept answers, the most asked for first; and those that are asked for again and again, but not
/// kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnerReport {
    /// The kept answers.
    pub learned: Vec<LearnedRow>,
    /// The other answers, and why they are not kept.
    pub refused: Vec<(AnswerKey, NotLearned)>,
}

impl Learner {
    /// A learner that keeps no answers yet.
    pub fn new(keeper: Arc<dyn AnswerKeeper>, settings: LearnerSettings) -> Arc<Learner> {
        Arc::new(Learner { keeper, settings, state: Mutex::default() })
    }

    /// The limits of what may be learned.
    pub fn settings(&self) -> &LearnerSettings {
        &self.settings
    }

    /// The listener's address at which a client has reached `local`, if the kernel may answer there.
    pub fn listener_of(&self, local: SocketAddr) -> Option<SocketAddr> {
        let all = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let bound = |address: SocketAddr| self.settings.listeners.contains(&address);
        let all = SocketAddr::new(all, local.port());
        [local, all].into_iter().find(|address| bound(*address))
    }

    /// Offers an answer that is asked for again and again. The call never waits: an offer that is missed
    /// now is made again.
    pub fn offer(self: &Arc<Learner>, key: AnswerKey, hot: HotAnswer, now_ms: u64) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // the answer may have been given a moment ago, and be dead by now
        if state.is_closed || !is_fresh(&hot, now_ms) {
            return;
        }
        match state.known.get(&key) {
            Some(known) if known.hot == hot => return,
            Some(_) => self.remove(&mut state, &key),
            None => {}
        }
        match self.learn(&mut state, &key, hot, now_ms) {
            // errors are as many as clients invent paths
            Ok(()) | Err(NotLearned::NotFixed(NotFixed::Failure(_))) => {
                state.refused.remove(&key);
            }
            Err(why) => {
                if state.refused.len() >= MOST_REFUSED && !state.refused.contains_key(&key) {
                    state.refused.pop_first();
                }
                state.refused.insert(key, why);
            }
        }
    }

    fn learn(
        self: &Arc<Learner>,
        state: &mut LearnedAnswers,
        key: &AnswerKey,
        hot: HotAnswer,
        now_ms: u64,
    ) -> Result<(), NotLearned> {
        if self.settings.hindered.get(hot.site() as usize).copied().unwrap_or(true) {
            return Err(NotLearned::Site);
        }
        let answer = hot.fixed(ADDED_BYTES, MOST_ANSWER_BYTES).map_err(NotLearned::NotFixed)?;
        let bytes = bytes_of(key, &answer);
        if !self.make_room(state, bytes) {
            return Err(NotLearned::Full);
        }
        state.learned += 1;
        let serial = state.learned;
        let (learner, of_closure) = (Arc::downgrade(self), key.clone());
        let let_go: LetGo = Arc::new(move || {
            if let Some(learner) = learner.upgrade() {
                learner.let_go(&of_closure, serial);
            }
        });
        // before the kernel has it: a change from here on calls `let_go`, which waits for the lock
        hot.keep(&let_go);
        let number = match self.keeper.keep(key, &answer, self.settings.requests) {
            Ok(number) => number,
            Err(why) => {
                hot.release(&let_go);
                return Err(NotLearned::Kernel(why));
            }
        };
        let learned =
            LearnedAnswer { hot, let_go, serial, number, bytes, given: 0, before: [0; 2] };
        let is_fresh = is_fresh(&learned.hot, now_ms);
        state.bytes += bytes;
        state.numbers.insert(number, key.clone());
        state.known.insert(key.clone(), learned);
        if !is_fresh {
            // the cache has let go of the answer before `let_go` was in place
            self.remove(state, key);
        }
        Ok(())
    }

    /// Lets go of answers that no client has asked for in the last period, until there is room. Returns whether there
    /// is.
    fn make_room(&self, state: &mut LearnedAnswers, bytes: usize) -> bool {
        let LearnerSettings { most_answers, most_bytes, .. } = self.settings;
        while state.known.len() >= most_answers || state.bytes + bytes > most_bytes {
            let idle = state.known.iter().filter(|(_, known)| known.given == known.before[1]);
            let oldest = idle.min_by_key(|(_, known)| known.serial);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return false };
            self.remove(state, &key);
        }
        true
    }

    /// Drops an answer that was learned then, because the cache is about to drop it.
    fn let_go(&self, key: &AnswerKey, serial: u64) {
        let mut state = self.lock();
        if state.known.get(key).is_some_and(|known| known.serial == serial) {
            self.remove(&mut state, key);
        }
    }

    fn remove(&self, state: &mut LearnedAnswers, key: &AnswerKey) {
        let Some(learned) = state.known.remove(key) else { return };
        self.keeper.let_go(key);
        learned.hot.release(&learned.let_go);
        state.numbers.remove(&learned.number);
        state.bytes -= learned.bytes;
    }

    /// Notes that the kernel has given the answer with this number.
    pub fn given(&self, number: u32) {
        let mut state = self.lock();
        let LearnedAnswers { known, numbers, .. } = &mut *state;
        if let Some(learned) = numbers.get(&number).and_then(|key| known.get_mut(key)) {
            learned.given += 1;
        }
    }

    /// Called about ten times a second: the kernel drops answers that the cache would check again before
    /// long, and the cache learns which answers are in use.
    pub fn look(&self, now_ms: u64) {
        let mut state = self.lock();
        let over = state.known.iter().filter(|(_, learned)| !is_fresh(&learned.hot, now_ms));
        let over: Vec<AnswerKey> = over.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| self.remove(&mut state, key));
        if now_ms.saturating_sub(state.period_ms) < PERIOD_MS {
            return;
        }
        state.period_ms = now_ms;
        for learned in state.known.values_mut() {
            if learned.given != learned.before[0] {
                learned.hot.touch();
            }
            learned.before = [learned.given, learned.before[0]];
        }
    }

    /// Drops all answers, and learns none any more.
    pub fn close(&self) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.is_closed = true;
        self.keeper.let_all_go();
        let all: Vec<AnswerKey> = state.known.keys().cloned().collect();
        all.iter().for_each(|key| self.remove(&mut state, key));
    }

    /// The report for an operator.
    pub fn report(&self) -> LearnerReport {
        let state = self.lock();
        let row = |(key, learned): (&AnswerKey, &LearnedAnswer)| LearnedRow {
            key: key.clone(),
            bytes: learned.bytes,
            given: learned.given,
        };
        let mut learned: Vec<_> = state.known.iter().map(row).collect();
        learned.sort_by(|one, other| (other.given, &one.key).cmp(&(one.given, &other.key)));
        let refused = state.refused.iter().map(|(key, why)| (key.clone(), why.clone())).collect();
        LearnerReport { learned, refused }
    }

    fn lock(&self) -> MutexGuard<'_, LearnedAnswers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Learner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether the cache gives an answer for a while longer.
fn is_fresh(hot: &HotAnswer, now_ms: u64) -> bool {
    hot.fresh_until_ms() > now_ms.saturating_add(LEAD_MS)
}

fn bytes_of(key: &AnswerKey, answer: &FixedAnswer) -> usize {
    let forms = answer.forms.iter().filter_map(|form| form.bytes.as_ref());
    let bytes = forms.map(|FixedBytes { head, not_modified, body, tag }| {
        head.len() + not_modified.len() + body.len() + tag.len()
    });
    key.bytes() + bytes.sum::<usize>()
}

#[cfg(test)]
mod tests;
