//! Requests at fixed times, whatever becomes of those before, by which losses during a failure are
//! counted, and the times of other answers measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A thread waits for one answer: it needs hardly any stack.
const STACK_BYTES: usize = 128 * 1024;

/// The load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server's address.
    pub address: SocketAddr,
    /// The paths that are asked for in turn, all by GET.
    pub targets: Vec<String>,
    /// Requests per second, each on a connection of its own.
    pub rate: u32,
    /// The length of the load.
    pub time: Duration,
    /// The time after which an answer that is not whole has failed.
    pub timeout: Duration,
}

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFate {
    /// The time it was due, after the beginning.
    pub due: Duration,
    /// The time that the whole answer took from then on; `None` if there was none, or not a 200.
    pub took: Option<Duration>,
}

/// Runs a load. Each request has one fate.
#[must_use]
pub fn run(load: Load) -> JoinHandle<Vec<RequestFate>> {
    thread::spawn(move || {
        let (tell, told) = mpsc::channel();
        let begun = Instant::now();
        let count = u64::from(load.rate) * load.time.as_millis() as u64 / 1000;
        for number in 0..count {
            let due = Duration::from_secs(number) / load.rate.max(1);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            begin(&load, number, begun, due, &tell);
        }
        drop(tell);
        told.into_iter().collect()
    })
}

fn begin(load: &Load, number: u64, begun: Instant, due: Duration, tell: &Sender<RequestFate>) {
    let (address, timeout) = (load.address, load.timeout);
    let target = load.targets[number as usize % load.targets.len()].clone();
    let told = tell.clone();
    let ask = move || {
        let is_good = ask(address, &target, begun + due + timeout).is_some();
        let took = begun.elapsed().saturating_sub(due);
        let took = Some(took).filter(|took| is_good && *took <= timeout);
        // the receiver that counts waits for all
        let _ = told.send(RequestFate { due, took });
    };
    if thread::Builder::new().stack_size(STACK_BYTES).spawn(ask).is_err() {
        let _ = tell.send(RequestFate { due, took: None });
    }
}

/// A whole answer with status 200 before that time, or nothing.
#[must_use]
pub fn ask(address: SocketAddr, target: &str, until: Instant) -> Option<()> {
    let left =
        || Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
    let mut stream = TcpStream::connect_timeout(&address, left()?).ok()?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        stream.set_read_timeout(Some(left()?)).ok()?;
        match stream.read(&mut buffer).ok()? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let is_whole = length.trim().parse() == Ok(answer.len() - end - 4);
    (head.starts_with("http/1.1 200 ") && is_whole).then_some(())
}

/// The figures of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunPart {
    /// Requests that were due in it.
    pub requests: usize,
    /// The number of those that have failed.
    pub lost: usize,
    /// The 99th percentile of the others, that of 999 in 1,000, and the longest.
    pub p99: Duration,
    /// See above.
    pub p999: Duration,
    /// See above.
    pub longest: Duration,
}

impl RunPart {
    /// Counts the requests that were due from `from` to `to`.
    #[must_use]
    pub fn of(fates: &[RequestFate], from: Duration, to: Duration) -> RunPart {
        let due: Vec<_> = fates.iter().filter(|fate| (from..to).contains(&fate.due)).collect();
        let mut took: Vec<_> = due.iter().filter_map(|fate| fate.took).collect();
        took.sort_unstable();
        let at = |permille: usize| {
            let at = (took.len() * permille).div_ceil(1000).saturating_sub(1);
            took.get(at).copied().unwrap_or_default()
        };
        RunPart {
            requests: due.len(),
            lost: due.len() - took.len(),
            p99: at(990),
            p999: at(999),
            longest: at(1000),
        }
    }

    /// (all - failed) / all (mvmdp §4.2), in percent.
    #[must_use]
    pub fn availability(&self) -> f64 {
        100.0 * (self.requests - self.lost) as f64 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_lost_and_says_nothing_of_the_others() {
        let fates: Vec<_> = (0..200u64)
            .map(|number| RequestFate {
                due: Duration::from_millis(number),
                took: (number % 50 != 0).then_some(Duration::from_micros(number)),
            })
            .collect();
        let part = RunPart::of(&fates, Duration::from_millis(50), Duration::from_millis(150));
        assert_eq!((part.requests, part.lost), (100, 2));
        // of 98, which end with 148 and 149, the 98th
        assert_eq!(part.p99, Duration::from_micros(149));
        assert_eq!((part.p999, part.longest), (part.p99, part.p99));
        assert!((part.availability() - 98.0).abs() < 1e-9);
        let none = RunPart::of(&fates, Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!((none.requests, none.lost, none.p99), (0, 0, Duration::ZERO));
    }
}
