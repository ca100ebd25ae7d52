//! Measures one push and one pop: run it under `valgrind --tool=callgrind` or `perf stat` and
//! divide by the count.
//!
//! `ranked_cost deque|single|clients|ranks COUNT DEPTH`: a plain deque; one rank and one client; one
//! rank and 64 clients; four ranks with shares, 64 clients, and the time reported. DEPTH entries wait
//! all the time.
#![forbid(unsafe_code)]

use forebay_control::ranked::Ranked;
use std::collections::VecDeque;
use std::hint::black_box;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse::<u64>().ok());
    let (Some(count), Some(depth)) = (number(2), number(3)) else { return ExitCode::from(2) };
    match arguments[1].as_str() {
        "deque" => {
            let mut queue: VecDeque<u64> = (0..depth).collect();
            for item in 0..count {
                queue.push_back(black_box(item));
                black_box(queue.pop_front());
            }
        }
        "single" => ranked(Ranked::single(1 << 20, 0x1234_5678_9abc_def1), 1, 1, count, depth),
        "clients" => ranked(Ranked::single(1 << 20, 0x1234_5678_9abc_def1), 1, 64, count, depth),
        "ranks" => match Ranked::new(&[0.0, 0.2, 0.1, 0.05], 1 << 20, 0x1234_5678_9abc_def1) {
            Ok(queue) => ranked(queue, 4, 64, count, depth),
            Err(_) => return ExitCode::from(2),
        },
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn ranked(mut queue: Ranked<u64>, ranks: u64, clients: u64, count: u64, depth: u64) {
    for item in 0..depth {
        let _ = queue.push((item % ranks) as u8, item % clients, 1, item);
    }
    for item in 0..count {
        let rank = black_box(item % ranks) as u8;
        let _ = black_box(queue.push(rank, black_box(item % clients), 1, item));
        if let Some((item, turn)) = queue.pop() {
            black_box(item);
            queue.ran(turn, 1_000);
        }
    }
}
