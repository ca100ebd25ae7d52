//! Tests of the agent on the highest level, in virtual time: from the counts of loops to the
//! requests that they admit.
//!
//! On that level the agent limits connections. It takes some hundred thousand refusals per second
//! to get there: more than a test can ask of a real server on any machine.

use super::*;
use crate::plan::{MachineResources, Plan};
use crate::policy_command::history::history;
use forebay_config::parse;
use forebay_conn::{Peer, Request, Verdict};
use forebay_control::level::Level;
use forebay_handler::client::TrustedProxies;
use forebay_handler::policy::{ConnectionRecord, Judge, JudgeContext, Pass, WindowPoint};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_http::path::NormalPath;
use forebay_metrics::{ClassEvent, ClassSlot, Local, RefusalReason, RefusedAt};
use forebay_policy::facts::{ConnectionFacts, RequestFacts};

const POLICY: &str = r#"
root = "/site"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
share = "10%"
[[rule]]
name = "partner"
client = "10.0.0.0/8"
class = "gold"
[[rule]]
name = "in need"
when = "overload"
path = "/costly"
action = "reject"
[[rule]]
name = "overload"
client = "198.51.100.1"
when = "overload"
action = "reset"
[[rule]]
name = "from 1"
client = "198.51.100.2"
when = "header_control"
action = "reset"
[[rule]]
name = "from 2"
client = "198.51.100.3"
when = "class_order"
class = "gold"
[[rule]]
name = "at 3"
client = "198.51.100.4"
when = "syn_policing"
connections.rate = "1/s"
"#;

const TICK_NS: u64 = 10_000_000;
/// The number of cores. A quarter of one core's time is 50,000 refusals.
const CORES: u32 = 1;

/// One loop with the policy and the agent's thread, and a clock that the test sets.
struct Loop {
    policy: Arc<InForce>,
    judge: Judge,
    metrics: Arc<Local>,
    state: AgentState,
    now_ns: u64,
    levels: Vec<Level>,
}

/// Connections of a class per tick, and the requests refused on each that is let in.
#[derive(Clone, Copy)]
struct Offered {
    connections: u32,
    refused: u32,
}

fn plan(text: &str) -> Plan {
    let config = parse(text, "/etc/forebay.toml").unwrap();
    let machine = MachineResources {
        cores: CORES as usize,
        memory_bytes: 1 << 30,
        descriptors: 1024,
        threads: 1000,
    };
    Plan::new(&config, &machine).unwrap()
}

impl Loop {
    fn new(agent: &str) -> Loop {
        let mut plan = plan(&format!("agent = \"{agent}\"\n{POLICY}"));
        plan.ranks.slots = [ClassSlot(0), ClassSlot(1)].into();
        let policy = Arc::new(InForce::new(plan.policy_settings(), None));
        let metrics = Arc::new(Local::default());
        let judge = Judge::new(&policy, &None, &metrics, WindowPoint::Job).unwrap();
        let mut state = AgentState::default();
        state.take_over(&policy, std::iter::empty()).unwrap();
        let levels = vec![Level::Normal];
        Loop { policy, judge, metrics, state, now_ns: 1_000_000_000, levels }
    }

    /// Offers connections of gold and bulk for this many seconds.
    fn run(&mut self, seconds: u64, offers: [Offered; 2]) {
        for _ in 0..seconds * 1_000_000_000 / TICK_NS {
            self.now_ns += TICK_NS;
            for (network, (slot, offered)) in [10, 192].into_iter().zip((0..).zip(offers)) {
                for number in 0..offered.connections {
                    self.connect(
                        [network, 0, 2, 1 + (number % 200) as u8],
                        ClassSlot(slot),
                        offered,
                    );
                }
            }
            let metrics = Arc::clone(&self.metrics);
            self.state.step(self.now_ns, &self.policy, CORES, &|| Totals::of([&*metrics]));
            let (level, _) = self.policy.level();
            self.check_degrees(level);
            if self.levels.last() != Some(&level) {
                self.levels.push(level);
            }
        }
    }

    /// Each rule holds from its degree on, and not below it.
    fn check_degrees(&self, level: Level) {
        let policy = &self.policy.policy;
        for (number, at_connection, at_request) in [(1, 3, 1), (2, 1, 1), (3, 2, 2), (4, 3, 3)] {
            let client = ([198, 51, 100, number], 4711).into();
            let ends = ConnectionFacts { client, local: ([192, 0, 2, 1], 80).into() };
            let decided = policy.connection(&ends, self.policy.degree());
            let decided = decided.class.or(decided.action).or(decided.connections);
            assert_eq!(decided.is_some(), level as u8 >= at_connection, "{number} {level:?}");
            let facts = RequestFacts {
                ends,
                host: b"",
                method: "GET",
                path: b"/",
                query: b"",
                certificate: None,
                identity: None,
                fields: std::iter::empty(),
            };
            let decided = policy.request(&facts, self.policy.degree());
            let counts = level as u8 >= at_request && number < 4;
            assert_eq!(decided.class.or(decided.action).is_some(), counts, "{number} {level:?}");
        }
    }

    fn connect(&mut self, client: [u8; 4], slot: ClassSlot, offered: Offered) {
        let peer = Peer::new((client, 4711).into(), ([192, 0, 2, 1], 80).into());
        match self.judge.connection(&peer, &TrustedProxies::default(), self.now_ns) {
            Verdict::Admit(_) => {}
            Verdict::Reset => return,
            Verdict::Refuse(refusal, ()) => panic!("{refusal:?}"),
        }
        for _ in 0..offered.refused {
            self.metrics.enter(slot, ClassEvent::Offered);
            self.metrics
                .enter(slot, ClassEvent::Refused(RefusedAt::Request, RefusalReason::Action));
        }
    }

    /// Connections that came and those that the agent refused, by class.
    fn connections(&self) -> [(u64, u64); 2] {
        let totals = Totals::of([&*self.metrics]);
        [ClassSlot(0), ClassSlot(1)].map(|slot| {
            let class = totals.class(slot);
            let refused = class.refused[RefusedAt::Accept as usize][RefusalReason::Agent as usize];
            assert_eq!(
                refused,
                class.refused_at(RefusedAt::Accept),
                "nothing else refuses connections"
            );
            (class.connections, refused)
        })
    }

    /// The limit of each class, in connections per second.
    fn rates(&self) -> [Option<u64>; 2] {
        let limits = limits(&self.policy);
        [&limits[0], &limits[1]].map(|(_, limits)| limits.connections_per_s)
    }
}

const GOLD: Offered = Offered { connections: 2, refused: 0 };
/// 4,000 connections per second; refusing 30 requests on each takes 60 % of the core.
const BULK: Offered = Offered { connections: 40, refused: 30 };
const NO_CLIENTS: Offered = Offered { connections: 0, refused: 0 };

#[test]
fn the_last_class_begins_fewer_connections_while_refusing_takes_too_much() {
    let mut server = Loop::new("on");
    server.run(20, [GOLD, BULK]);
    let up = [Level::Normal, Level::HeaderControl, Level::ClassOrder, Level::SynPolicing];
    assert_eq!(server.levels, up);
    assert_eq!(server.policy.level_in_words(), "syn_policing (refusals)");
    let before = server.connections();
    server.run(10, [GOLD, BULK]);
    let [gold, bulk] = server.connections();
    assert_eq!(gold, (2 * 3_000, 0), "the first class is left alone");
    assert_eq!(bulk.0, 40 * 3_000, "all that came are counted");
    // 30 n + (4,000 - n) refusals per second are a quarter of the core: n = 1,586
    let let_in_per_s = (40_000 - (bulk.1 - before[1].1)) / 10;
    assert!((1_450..1_750).contains(&let_in_per_s), "{let_in_per_s}");
    let [gold, bulk] = server.rates();
    assert_eq!(gold, None);
    assert!(bulk.is_some_and(|rate| (1_450..1_750).contains(&rate)), "{bulk:?}");

    let agent = server.state.agent.as_ref().unwrap();
    let records: Vec<_> = agent.history().records().cloned().collect();
    let text = history(&server.policy, &records, server.now_ns);
    let last = text.lines().rfind(|line| line.contains(" bulk ")).unwrap();
    let cells: Vec<&str> = last.split_whitespace().collect();
    assert_eq!(cells[2..4], ["syn_policing", "(refusals)"], "{last}");
    let [conns_per_s, conns, refused] =
        [cells[7], cells[14], cells[15]].map(|cell| cell.parse().unwrap());
    assert!((1_450..1_750).contains(&conns_per_s), "{last}");
    assert!(conns > refused && refused > 0, "{last}");
}

#[test]
fn when_it_is_over_everybody_may_come_again() {
    let mut server = Loop::new("on");
    server.run(10, [GOLD, BULK]);
    let refused = server.connections()[1].1;
    assert!(refused > 0);
    // 4 s, 2 s and 1 s until the levels are left
    server.run(9, [GOLD, NO_CLIENTS]);
    let down = [Level::SynPolicing, Level::ClassOrder, Level::HeaderControl, Level::Normal];
    assert_eq!(server.levels[3..], down);
    assert_eq!(server.rates(), [None, None]);
    server.run(1, [GOLD, Offered { refused: 0, ..BULK }]);
    assert_eq!(server.connections()[1].1, refused, "as many connections alone are no overload");
}

#[test]
fn what_is_lifted_limits_nobody() {
    let mut server = Loop::new("on");
    server.run(10, [GOLD, BULK]);
    assert!(server.rates()[1].is_some());
    lift(&server.policy);
    assert_eq!(server.rates(), [None, None]);
    assert_eq!(server.policy.level().0, Level::Normal);
}

#[test]
fn an_agent_that_is_off_finds_the_level_and_limits_nothing() {
    let mut server = Loop::new("off");
    server.run(5, [GOLD, BULK]);
    assert_eq!(server.levels.last(), Some(&Level::SynPolicing));
    assert_eq!(server.connections().map(|(_, refused)| refused), [0, 0]);
    assert_eq!(server.rates(), [None, None]);
}

const MOVABLE: &str = r#"
root = "/site"
agent = "on"
[[rule]]
name = "costly"
path = "/costly"
requests = { rate = "1000/s", rate_min = "50/s", burst = 10 }
"#;

/// Requests `/costly`; returns the pass if the request is let in.
fn ask(judge: &mut Judge, now_ns: u64) -> Option<Pass> {
    let text = b"GET /costly HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut lines = Lines::new();
    let parsed = Head::parse(text, &mut lines, &HeadLimits::default());
    let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{parsed:?}") };
    let peer = Peer::new(([192, 0, 2, 1], 4711).into(), ([192, 0, 2, 2], 80).into());
    let (normal_path, trusted) = (NormalPath::default(), TrustedProxies::default());
    let request = Request::new(&head, &peer, &normal_path);
    let trusted = &trusted;
    let known = JudgeContext { trusted, verifier: None, unix_ms: 0, rank: None, paths: &[] };
    match judge.request(&request, &mut ConnectionRecord::default(), known, now_ns) {
        Verdict::Admit(admitted) => {
            let mut ticket = admitted.ticket.unwrap();
            judge.needs_worker(&mut ticket).ok().flatten()
        }
        Verdict::Refuse(..) | Verdict::Reset => None,
    }
}

/// Work that never ends fills the window; the refusals of the window lower the rate of the rule.
#[test]
fn the_rate_of_a_rule_moves_with_what_the_window_refuses() {
    let plan = plan(MOVABLE);
    let policy = Arc::new(InForce::new(plan.policy_settings(), None));
    let metrics = Arc::new(Local::default());
    let mut judge = Judge::new(&policy, &None, &metrics, WindowPoint::Job).unwrap();
    let mut state = AgentState::default();
    state.take_over(&policy, std::iter::empty()).unwrap();
    let mut now_ns = 1_000_000_000;
    let mut tick =
        |judge: &mut Judge, state: &mut AgentState, passes: &mut Vec<Pass>, asks: u32| {
            now_ns += TICK_NS;
            passes.extend((0..asks).filter_map(|_| ask(judge, now_ns)));
            let metrics = Arc::clone(&metrics);
            state.step(now_ns, &policy, CORES, &|| Totals::of([&*metrics]));
            now_ns
        };
    let rate = || policy.state.rate(0).unwrap();
    let mut passes = Vec::new();
    assert!((rate() - 1000.0).abs() < 1e-6);
    for _ in 0..1_000 {
        tick(&mut judge, &mut state, &mut passes, 8);
    }
    assert!((rate() - 50.0).abs() < 0.1, "{}", rate());
    // a reload with the same rate keeps what was learned, one with another rate begins anew
    let same = InForce::new(plan.policy_settings(), Some(&policy));
    assert!((same.state.rate(0).unwrap() - 50.0).abs() < 0.1);
    let other = self::plan(&MOVABLE.replace("1000/s", "900/s")).policy_settings();
    let other = InForce::new(other, Some(&policy));
    assert!((other.state.rate(0).unwrap() - 900.0).abs() < 1e-3);
    let records: Vec<_> = state.agent.as_ref().unwrap().history().records().cloned().collect();
    let text = history(&policy, &records, 11_000_000_000);
    let last = text.lines().rfind(|line| line.contains("rule \"costly\"")).unwrap();
    assert!(last.contains("  50.0  "), "{last}");
    // when the work is done and no client comes, the rate returns to that of the rule
    drop(passes);
    for _ in 0..2_500 {
        tick(&mut judge, &mut state, &mut Vec::new(), 0);
    }
    assert!((rate() - 1000.0).abs() < 1e-6, "{}", rate());
}

#[test]
fn an_agent_that_is_off_leaves_rates_where_rules_state_them() {
    const IN_NEED: &str = r#"
[[rule]]
name = "in need"
when = "overload"
path = "/never"
action = "reject"
"#;
    let in_force = |agent: &str, before: Option<&InForce>| {
        let rate = r#"rate = "100/s", rate_max = "200/s""#;
        let text = MOVABLE.replace(r#"rate = "1000/s""#, rate) + IN_NEED;
        let plan = plan(&text.replace(r#""on""#, &format!("\"{agent}\"")));
        Arc::new(InForce::new(plan.policy_settings(), before))
    };
    let metrics = Arc::new(Local::default());
    let (mut state, mut now_ns) = (AgentState::default(), 1_000_000_000);
    // eight times as many requests come as the rule admits: while there is room, its rate would
    // rise
    let mut rate_after_a_second = |policy: &Arc<InForce>| {
        let mut judge = Judge::new(policy, &None, &metrics, WindowPoint::Job).unwrap();
        state.take_over(policy, std::iter::empty()).unwrap();
        for _ in 0..100 {
            now_ns += TICK_NS;
            (0..8).for_each(|_| drop(ask(&mut judge, now_ns)));
            state.step(now_ns, policy, CORES, &|| Totals::of([&*metrics]));
        }
        policy.state.rate(0).unwrap()
    };
    let off = in_force("off", None);
    assert!(off.wants_agent_loop());
    let rate = rate_after_a_second(&off);
    assert!((rate - 100.0).abs() < 1e-3, "{rate}");
    // switched on, the agent begins with the stated rate; switched off, it leaves its own behind
    let on = in_force("on", Some(&off));
    let rate = rate_after_a_second(&on);
    assert!((101.0..115.0).contains(&rate), "{rate}");
    let rate = rate_after_a_second(&in_force("off", Some(&on)));
    assert!((rate - 100.0).abs() < 1e-3, "{rate}");
}
