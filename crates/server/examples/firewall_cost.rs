//! Measures what a flood of refused clients costs the loop that reports them to the firewall, and
//! the rest of the machine: nanoseconds per client in the loop, processor time of the thread and of
//! the helper with `nft`, and how long it takes until all clients are dropped.
//!
//! As root, in a network namespace of its own:
//! `unshare -n cargo run --release -p forebay-server --example firewall_cost 100000 50000`
//! for 100,000 clients, 50,000 of them a second.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it prints what it measures")]

use forebay_config::{FirewallMode, FirewallSettings};
use forebay_policy::Policy;
use forebay_server::firewall::{self, helper};
use forebay_sys::clock;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "firewall") {
        return helper::run().unwrap();
    }
    let number = |at: usize, or: u64| arguments.get(at).map_or(or, |text| text.parse().unwrap());
    let (clients, rate) = (number(0, 100_000), number(1, 50_000));
    let settings =
        FirewallSettings { mode: FirewallMode::Nftables, clients, ..FirewallSettings::default() };
    let listeners = ["127.0.0.1:80".parse().unwrap()];
    let policy = Policy::new(&[], Vec::new()).unwrap();
    let keeper = firewall::open(&settings, &listeners, &policy, false).unwrap().unwrap();
    let firewall = keeper.firewall();
    let dropped = firewall.dropped();
    keeper.start().unwrap();
    let begun = Instant::now();
    let mut inside = Duration::ZERO;
    let chunk = (rate / 1000).max(1);
    for first in (0..clients).step_by(chunk.try_into().unwrap()) {
        let due = begun + Duration::from_secs_f64(first as f64 / rate as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now_ns = clock::monotonic_ns();
        let before = Instant::now();
        for client in first..(first + chunk).min(clients) {
            let address = Ipv4Addr::from_bits(0x0a00_0000 + client as u32);
            dropped.drop_client(address.into(), now_ns + 600_000_000_000);
        }
        inside += before.elapsed();
    }
    println!(
        "{clients} clients in {:.2} s, {:.0} ns each",
        begun.elapsed().as_secs_f64(),
        inside.as_nanos() as f64 / clients as f64
    );
    loop {
        let figures = firewall.figures();
        if figures.told + figures.left_busy + figures.left_full >= clients {
            println!(
                "dropped after {:.2} s; {} told, {} left for want of room, {} in a rush",
                begun.elapsed().as_secs_f64(),
                figures.told,
                figures.left_full,
                figures.left_busy
            );
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    firewall.end();
}
