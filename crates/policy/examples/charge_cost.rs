//! Measures what charging a request costs, from the charge until its guard is dropped: run alone in
//! nanoseconds, in instructions under `valgrind --tool=callgrind
//! --toggle-collect=charge_cost::charge`.
//!
//! `charge_cost KIND COUNT`, where KIND is what decides: `nothing`; `rule` or `client` for a limit on
//! requests of all or of each client; `at-once` or `at-once-client` for one on requests at once;
//! `class` for the agent's limit; `all` for a client's limits of both kinds and the agent's; `over`
//! for a limit that refuses nearly all. 4,096 clients come in turn.
#![forbid(unsafe_code)]

use forebay_policy::class::Class;
use forebay_policy::decision::Decisions;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{InFlight, Limit, Over, Per, Rule};
use forebay_policy::{ChargeOutcome, Paces, Policy, State};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const START_NS: u64 = 1_000_000_000_000;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    let count = arguments.get(2).and_then(|text| text.parse().ok());
    let (Some(kind), Some(count)) = (arguments.get(1), count) else { return ExitCode::from(2) };
    let rate = Rate::per_second(if kind == "over" { 1 } else { 1_000_000 });
    let limit = |per| Some(Limit { per, ..Limit::new(rate, 1_000) });
    let at_once = |per| Some(InFlight { most: 1_000, per, over: Over::default() });
    let named = Rule { name: "r".to_owned(), ..Rule::default() };
    let rule = match kind.as_str() {
        "nothing" | "class" => Rule { stop: true, ..named },
        "rule" | "over" => Rule { requests: limit(Per::Rule), ..named },
        "client" => Rule { requests: limit(Per::Client), ..named },
        "at-once" => Rule { in_flight: at_once(Per::Rule), ..named },
        "at-once-client" => Rule { in_flight: at_once(Per::Client), ..named },
        "all" => Rule { requests: limit(Per::Client), in_flight: at_once(Per::Client), ..named },
        _ => return ExitCode::from(2),
    };
    let decisions = Decisions {
        requests: rule.requests.map(|_| 0),
        in_flight: rule.in_flight.map(|_| 0),
        ..Decisions::default()
    };
    let policy = match Policy::new(&[Class::new("only", 0)], vec![rule]) {
        Ok(policy) => policy,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let state = State::new(Arc::new(policy), None, START_NS);
    if ["class", "all"].contains(&kind.as_str()) {
        state.set_class_rate(0, Paces::Requests, Some(1e7), START_NS);
    }
    measure(&state, &decisions, count);
    ExitCode::SUCCESS
}

fn measure(state: &State, decisions: &Decisions, count: u32) {
    let mut rounds = Vec::new();
    let (mut now_ns, mut admitted) = (START_NS, 0);
    for _ in 0..5 {
        let begun = Instant::now();
        for number in 0..count {
            let client = IpAddr::V4(Ipv4Addr::from_bits(number % 4096));
            now_ns += 1000;
            admitted += u64::from(charge(state, decisions, black_box(client), now_ns));
        }
        rounds.push(begun.elapsed().as_nanos() as f64 / f64::from(count));
    }
    rounds.sort_by(f64::total_cmp);
    let share = 100.0 * admitted as f64 / (5.0 * f64::from(count));
    println!(
        "{:.1} ns a request ({:.1} to {:.1}), {share:.0}% admitted",
        rounds[2], rounds[0], rounds[4]
    );
}

/// Not inlined, so that callgrind can count its instructions.
#[inline(never)]
fn charge(state: &State, decisions: &Decisions, client: IpAddr, now_ns: u64) -> bool {
    matches!(black_box(state.charge_request(decisions, client, now_ns)), ChargeOutcome::Admit(_))
}
