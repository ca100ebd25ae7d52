//! Classes, rules and the agent's limits, as they are in force.
//!
//! In: the compiled policy. Out: a [`Judge`] for each loop or thread, which says for each
//! connection and request what becomes of it; shared numbers that an agent reads and sets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`at_once`] | requests at once of a rule, where those beyond its number wait |
//! | [`dropped_clients`] | clients that the machine's firewall is to drop |
//! | [`enforced`] | the part of the policy that the kernel enforces |
//! | [`facts`] | the facts about a request that a policy decides by |
//! | [`judge`] | one loop's view: facts in, a verdict out, entries in the ledger |
//! | `settings` | the settings of a policy |
//! | [`ticket`] | what a judged request holds until it is over |
//! | [`trace`] | the judgement of a request, for the access log |
//! | [`window`] | how much unfinished work each class may have |

pub mod at_once;
pub mod dropped_clients;
pub mod enforced;
pub mod facts;
pub mod judge;
mod settings;
pub mod ticket;
pub mod trace;
pub mod window;

pub use at_once::AtOnce;
pub use dropped_clients::DroppedClients;
pub use enforced::{Enforced, KernelGate};
pub use facts::Facts;
pub use judge::{ConnectionRecord, Judge, JudgeContext};
pub use settings::PolicySettings;
pub use ticket::Ticket;
pub use trace::{Judged, RuleNumber, Trace, TraceWords};
pub use window::{Pass, Window, WindowPoint};

use forebay_control::level::{Cause, Level};
use forebay_control::shared::SharedCounts;
use forebay_metrics::{ClassSlot, RuleTotals};
use forebay_policy::rule::{Degree, When};
use forebay_policy::{Policy, State};
use forebay_sys::clock;
use forebay_sys::stderr::say;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The message about a trusted proxy that names no client.
struct Unnamed(IpAddr);

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_unspecified() {
            write!(f, "a trusted proxy at a Unix socket")?;
        } else {
            write!(f, "the trusted proxy {}", self.0)?;
        }
        write!(
            f,
            " asks without naming a client in X-Forwarded-For: no limit per client holds for such requests \
             (its health checks are some; for those of its clients it should name them)"
        )
    }
}

/// The policy in force, and what is charged to it. Shared by all loops.
#[derive(Debug)]
pub struct InForce {
    /// The number of the policy: each has another one than the one before.
    pub number: u32,
    /// Classes and rules.
    pub policy: Arc<Policy>,
    /// How much of each limit is used. Kept through reloads by the names of rules and classes.
    pub state: State,
    /// The unfinished work of each class, by rank. Kept through reloads by the class's name.
    pub windows: Box<[Arc<Window>]>,
    /// The requests at once of each rule, by its number, where those over the limit wait. Kept through
    /// reloads by the rule's name.
    pub at_once: Box<[Option<Arc<AtOnce>>]>,
    /// The ledger of each class, by rank.
    pub slots: Arc<[ClassSlot]>,
    /// How many judges there have been, which numbers their counters.
    judges: AtomicUsize,
    /// Whether the agent may limit the classes.
    pub agent: bool,
    /// Whether the operator was warned that a proxy names no clients.
    has_said_unnamed: AtomicBool,
    /// The part that the kernel enforces.
    pub gate: Option<Enforced>,
    /// The counts shared with other processes.
    pub shared: Option<Arc<SharedCounts>>,
    /// The queue of clients that the machine's firewall is asked to drop.
    pub dropped: Option<Arc<DroppedClients>>,
    /// When the agent of a later stage has last refused a request of each class, by rank, in
    /// milliseconds; 0 for never.
    behind: Box<[AtomicU64]>,
    /// The degree of overload, for rules that count from some degree on.
    degree: AtomicU8,
    /// The level of overload and its cause, for people.
    level: Mutex<(Level, Cause)>,
}

impl InForce {
    /// Puts a policy in force. Charges to the one `before` are kept.
    pub fn new(settings: PolicySettings, before: Option<&InForce>) -> InForce {
        let gate = before.and_then(|before| before.gate.as_ref()).map(Enforced::gate);
        let dropped = before.and_then(|before| before.dropped.clone());
        let shared = before.and_then(|before| before.shared.clone());
        InForce::with_kernel(settings, before, gate, dropped, shared)
    }

    /// Puts a policy in force with a gate, which charges what it can in the kernel once it is
    /// [told](InForce::tell_gate); a firewall; and counts that other processes see.
    pub fn with_kernel(
        settings: PolicySettings,
        before: Option<&InForce>,
        gate: Option<Arc<KernelGate>>,
        dropped: Option<Arc<DroppedClients>>,
        shared: Option<Arc<SharedCounts>>,
    ) -> InForce {
        let PolicySettings { policy, shares, slots, agent } = settings;
        let used = before.map(|before| &before.state);
        let gate = gate.map(|gate| Enforced::new(gate, &policy));
        let mut word = |rule: &str, of| gate.as_ref().and_then(|gate| gate.word(rule, of));
        let now_ns = clock::monotonic_ns();
        let state =
            State::with_words(Arc::clone(&policy), used, now_ns, &mut word, shared.as_deref());
        let windows = policy.classes().iter().map(|class| {
            let known = before.and_then(|before| before.window(&class.name));
            known.map_or_else(Arc::default, Arc::clone)
        });
        let at_once = policy.rules().iter().map(|rule| {
            let known = before.and_then(|before| before.at_once(&rule.name));
            let count = || shared.as_ref()?.of(&format!("rule {}", rule.name));
            rule.in_flight.and_then(|limit| AtOnce::new(&limit, &shares, known, count))
        });
        let at_once = at_once.collect();
        let level = before.map(InForce::level).unwrap_or_default();
        InForce {
            number: before.map_or(0, |before| before.number.wrapping_add(1)),
            windows: windows.collect(),
            at_once,
            slots,
            judges: AtomicUsize::new(0),
            agent,
            has_said_unnamed: before.is_some_and(InForce::has_said_unnamed).into(),
            gate,
            shared,
            dropped,
            behind: policy.classes().iter().map(|_| AtomicU64::default()).collect(),
            degree: AtomicU8::new(level.0 as u8),
            level: Mutex::new(level),
            state,
            policy,
        }
    }

    fn has_said_unnamed(&self) -> bool {
        self.has_said_unnamed.load(Relaxed)
    }

    /// Warns once that a trusted proxy has asked without naming a client, where a limit counts each
    /// client.
    #[inline]
    fn say_unnamed(&self, proxy: IpAddr) {
        if !self.has_said_unnamed() && !self.has_said_unnamed.swap(true, Relaxed) {
            say(format_args!("{}", Unnamed(proxy)));
        }
    }

    /// Has the kernel judge by this policy from now on.
    pub fn tell_gate(&self) {
        if let Some(gate) = &self.gate {
            gate.enforce();
            gate.set_degree(self.degree());
        }
    }

    /// The first class of which the agent of a later stage has refused a request within this time.
    pub fn refused_behind(&self, within_ms: u64) -> Option<u8> {
        let now_ms = clock::coarse_ms();
        let is_recent = |at: &AtomicU64| match at.load(Relaxed) {
            0 => false,
            at_ms => now_ms.saturating_sub(at_ms) < within_ms,
        };
        self.behind.iter().position(is_recent).and_then(|rank| u8::try_from(rank).ok())
    }

    /// The name of the class of the request with this ticket, or of all requests without one; empty if a
    /// reload has removed the class.
    pub fn class(&self, ticket: Option<&Ticket>) -> &str {
        let rank = match ticket {
            // a ticket of an earlier policy may have another rank, but has the same ledger
            Some(ticket) => self.slots.iter().position(|slot| *slot == ticket.trace.slot),
            None => Some(0),
        };
        let class = rank.and_then(|rank| self.policy.classes().get(rank));
        class.map_or("", |class| &class.name)
    }

    /// The place of the class with this name in the order of service.
    pub fn rank(&self, class: &[u8]) -> Option<u8> {
        let classes = self.policy.classes();
        let rank = classes.iter().position(|known| known.name.as_bytes() == class)?;
        u8::try_from(rank).ok()
    }

    /// Whether there is nothing to judge by.
    pub fn is_empty(&self) -> bool {
        self.policy.rules().is_empty() && self.policy.classes().len() < 2 && !self.agent
    }

    /// Whether the level of overload must be determined: for the agent, or for rules that depend on it.
    pub fn wants_agent_loop(&self) -> bool {
        self.agent || self.policy.rules().iter().any(|rule| rule.when != When::Always)
    }

    /// The window of the class with this name.
    fn window(&self, class: &str) -> Option<&Arc<Window>> {
        let rank = self.policy.classes().iter().position(|known| known.name == class)?;
        self.windows.get(rank)
    }

    /// The places of the rule with this name.
    fn at_once(&self, rule: &str) -> Option<&Arc<AtOnce>> {
        self.at_once.get(self.policy.rule(rule)? as usize)?.as_ref()
    }

    /// Hands out places that another process may have given back.
    pub fn turn(&self) {
        self.at_once.iter().flatten().for_each(|at_once| at_once.turn());
    }

    /// The number of requests that wait for a place among those at once of their rule.
    pub fn queued_by_rules(&self) -> u64 {
        self.at_once.iter().flatten().map(|at_once| at_once.counts().waiting as u64).sum()
    }

    /// A number for the counters of a new judge.
    fn lane(&self) -> usize {
        self.judges.fetch_add(1, Relaxed)
    }

    /// The counts of each rule that has metrics of its own.
    pub fn metrics(&self) -> Vec<(String, RuleTotals)> {
        let rules = (0..).zip(self.policy.rules()).filter(|(_, rule)| rule.metric);
        let totals = rules.map(|(number, rule)| {
            let (matched, refused) = (self.state.matched(number), self.state.refused(number));
            (
                rule.name.clone(),
                RuleTotals { matched, refused, rate_per_s: self.state.rate(number) },
            )
        });
        totals.collect()
    }

    /// The degree of overload, up to which rules count now.
    #[inline]
    pub fn degree(&self) -> Degree {
        Degree::of(self.degree.load(Relaxed))
    }

    /// Sets the level of overload, and its cause.
    pub fn set_level(&self, level: Level, cause: Cause) {
        self.degree.store(level as u8, Relaxed);
        if let Some(gate) = &self.gate {
            gate.set_degree(self.degree());
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = (level, cause);
    }

    /// The level of overload, and its cause.
    pub fn level(&self) -> (Level, Cause) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The level and cause in words: `normal`, or `header_control (delay of gold)`.
    pub fn level_in_words(&self) -> String {
        let (level, cause) = self.level();
        let class = cause.rank().and_then(|rank| self.policy.classes().get(usize::from(rank)));
        match (cause, class) {
            (Cause::None, _) => level.name().to_owned(),
            (cause, Some(class)) => {
                format!("{} ({} of {})", level.name(), cause.name(), class.name)
            }
            (cause, None) => format!("{} ({})", level.name(), cause.name()),
        }
    }
}
