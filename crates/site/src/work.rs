//! The handler `work`, for tests and demonstrations: a request says how much CPU time, memory and
//! output its answer costs. It stands for a site's dynamic part of known cost.

use crate::heads::fields::{AnswerFields, HeaderRuleSet};
use crate::heads::head_lines::{length_line, server, status_line};
use forebay_sys::clock;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const MOST_CPU_NS: u64 = 10_000_000_000;
const MOST_MEMORY_BYTES: u64 = 1 << 30;
const MOST_OUTPUT_BYTES: u64 = 64 << 20;
/// The bytes that fill memory and output.
const FILL: [u8; 4096] = [b'w'; 4096];
/// The largest number of requests that may be waiting or at work.
const MOST_AT_ONCE: usize = 16 * 1024;

/// The work that one request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// CPU time of the helper thread, memory and output included.
    pub(crate) cpu_ns: u64,
    /// Memory that is written to and held meanwhile.
    pub(crate) memory_bytes: u64,
    /// The body's size.
    pub(crate) output_bytes: u64,
}

/// The reason why a query is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffortError {
    /// A part of the query is none of the three.
    Unknown,
    /// A part of the query came twice.
    Repeated,
    /// `cpu` is not a duration.
    NotADuration,
    /// `mem` or `out` is not a size.
    NotASize,
    /// More CPU time than is allowed.
    TooMuchCpu,
    /// More memory than is allowed.
    TooMuchMemory,
    /// More output than is allowed.
    TooMuchOutput,
}

impl EffortError {
    /// The error for the client; repeats nothing that it sent.
    pub(crate) fn text(self) -> &'static str {
        match self {
            EffortError::Unknown => {
                "The query may say cpu, mem and out and nothing else, as in cpu=5ms, mem=4MiB, \
                 out=4KiB"
            }
            EffortError::Repeated => "The query may say cpu, mem and out once each",
            EffortError::NotADuration => "In the query, cpu is a duration such as 200us, 5ms or 1s",
            EffortError::NotASize => {
                "In the query, mem and out are sizes such as 512, 4KiB or 1MiB"
            }
            EffortError::TooMuchCpu => "In the query, cpu is at most 10s",
            EffortError::TooMuchMemory => "In the query, mem is at most 1GiB",
            EffortError::TooMuchOutput => "In the query, out is at most 64MiB",
        }
    }
}

impl Effort {
    /// Reads a query such as `cpu=5ms&mem=4MiB&out=4KiB`; what is not in it is 0.
    pub(crate) fn parse(query: &[u8]) -> Result<Effort, EffortError> {
        let (mut cpu, mut memory, mut output) = (None, None, None);
        for part in query.split(|&byte| byte == b'&').filter(|part| !part.is_empty()) {
            let part = std::str::from_utf8(part).map_err(|_| EffortError::Unknown)?;
            let (key, value) = part.split_once('=').ok_or(EffortError::Unknown)?;
            use EffortError::{TooMuchCpu, TooMuchMemory, TooMuchOutput};
            match key {
                "cpu" => set(&mut cpu, duration_ns(value)?, MOST_CPU_NS, TooMuchCpu)?,
                "mem" => set(&mut memory, size(value)?, MOST_MEMORY_BYTES, TooMuchMemory)?,
                "out" => set(&mut output, size(value)?, MOST_OUTPUT_BYTES, TooMuchOutput)?,
                _ => return Err(EffortError::Unknown),
            }
        }
        Ok(Effort {
            cpu_ns: cpu.unwrap_or(0),
            memory_bytes: memory.unwrap_or(0),
            output_bytes: output.unwrap_or(0),
        })
    }

    /// Does the work on the calling thread. `None` if there is too little memory.
    ///
    /// The thread's CPU time grows by what was asked for, to within some ten microseconds, unless
    /// writing to memory takes longer than that.
    pub(crate) fn make(self) -> Option<Worked> {
        let began_ns = clock::thread_cpu_ns();
        let held = filled(self.memory_bytes)?;
        let body = filled(self.output_bytes)?;
        let mut state = began_ns | 1;
        while clock::thread_cpu_ns() - began_ns < self.cpu_ns {
            for _ in 0..500 {
                state = black_box(state.wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(17));
            }
        }
        black_box(&held);
        Some(Worked { body, cpu_ns: clock::thread_cpu_ns() - began_ns })
    }
}

/// Work that was done.
#[derive(Debug)]
pub(crate) struct Worked {
    pub(crate) body: Vec<u8>,
    /// CPU time it took.
    pub(crate) cpu_ns: u64,
}

impl Worked {
    /// The head of the answer, which states the CPU time that was used (Server-Timing, by the W3C).
    pub(crate) fn head(&self, is_server_named: bool, header_rules: HeaderRuleSet<'_>) -> Vec<u8> {
        let timing = format!("cpu;dur={:.3}", self.cpu_ns as f64 / 1e6);
        let mut fields = AnswerFields::default();
        fields.push("Content-Type", b"text/plain; charset=utf-8".as_slice());
        server(is_server_named, &mut fields);
        fields.push("Server-Timing", timing.as_bytes());
        fields.apply(header_rules, None);
        // no two answers are the same, whatever header rules say
        drop(fields.take("Cache-Control"));
        fields.push("Cache-Control", b"no-store".as_slice());
        let mut head = status_line(200);
        fields.write(&mut head);
        length_line(&mut head, self.body.len() as u64);
        head
    }
}

/// Memory that was written to.
fn filled(bytes: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(bytes).ok()?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    while memory.len() < bytes {
        let left = bytes - memory.len();
        memory.extend_from_slice(&FILL[..left.min(FILL.len())]);
    }
    Some(memory)
}

fn set(
    place: &mut Option<u64>,
    value: u64,
    most: u64,
    too_much: EffortError,
) -> Result<(), EffortError> {
    if value > most {
        return Err(too_much);
    }
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(EffortError::Repeated),
    }
}

fn duration_ns(text: &str) -> Result<u64, EffortError> {
    let units = [("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    quantity(text, &units).ok_or(EffortError::NotADuration)
}

fn size(text: &str) -> Result<u64, EffortError> {
    let units = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    quantity(text, &units).ok_or(EffortError::NotASize)
}

/// Reads a whole number and a unit; what is beyond every bound saturates.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).or_else(|| {
        // 0 is the same in every unit
        units.first().filter(|_| number == "0" && unit.is_empty())
    })?;
    if number.is_empty() {
        return None;
    }
    Some(number.parse().unwrap_or(u64::MAX).saturating_mul(*factor))
}

/// The count of requests that wait or are at work, of all loops together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkLimit(Arc<WorkCounts>);

#[derive(Debug, Default)]
struct WorkCounts {
    now: AtomicUsize,
    ever: AtomicU64,
}

impl WorkLimit {
    /// A place for one more request, unless there are too many. Dropping the place gives it back.
    pub(crate) fn enter(&self) -> Option<WorkSlot> {
        let is_full = self.0.now.fetch_add(1, Relaxed) >= MOST_AT_ONCE;
        let number = self.0.ever.fetch_add(1, Relaxed);
        // dropping the place takes it back in either case
        Some(WorkSlot { counts: Arc::clone(&self.0), number }).filter(|_| !is_full)
    }
}

/// A place in the [`WorkLimit`].
#[derive(Debug)]
pub(crate) struct WorkSlot {
    counts: Arc<WorkCounts>,
    number: u64,
}

impl WorkSlot {
    /// The number of the place, which no other has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        self.counts.now.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_to_do() {
        let parse = |query: &str| Effort::parse(query.as_bytes()).unwrap();
        let whole = Effort { cpu_ns: 5_000_000, memory_bytes: 4 << 20, output_bytes: 4096 };
        assert_eq!(parse("cpu=5ms&mem=4MiB&out=4KiB"), whole);
        assert_eq!(parse("out=4096&cpu=5000us&&mem=4096KiB&"), whole);
        assert_eq!(parse(""), Effort::default());
        assert_eq!(parse("cpu=0&mem=0B"), Effort::default());
        assert_eq!(parse("cpu=10s").cpu_ns, 10_000_000_000);
        assert_eq!(parse("mem=1GiB&out=64MiB").memory_bytes, 1 << 30);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (query, expected) in [
            ("cpu", "and nothing else"),
            ("time=5ms", "and nothing else"),
            ("%63pu=5ms", "and nothing else"),
            ("cpu=5ms&cpu=5ms", "once each"),
            ("cpu=", "cpu is a duration"),
            ("cpu=5", "cpu is a duration"),
            ("cpu=5m", "cpu is a duration"),
            ("cpu=0.5s", "cpu is a duration"),
            ("cpu=-1s", "cpu is a duration"),
            ("cpu=<script>", "cpu is a duration"),
            ("mem=1KB", "mem and out are sizes"),
            ("out=KiB", "mem and out are sizes"),
            ("cpu=10001ms", "cpu is at most 10s"),
            ("cpu=99999999999999999999999999s", "cpu is at most 10s"),
            ("mem=1073741825", "mem is at most 1GiB"),
            ("out=65MiB", "out is at most 64MiB"),
        ] {
            let error = Effort::parse(query.as_bytes()).unwrap_err().text();
            assert!(error.contains(expected), "{query}: {error}");
            assert!(!error.contains('<'), "{error}");
        }
        assert_eq!(Effort::parse(b"cpu=\xff"), Err(EffortError::Unknown));
    }

    /// Uses the clock of the thread itself, so that a busy machine does not matter. The upper bound
    /// only shows that the work ends.
    #[test]
    fn it_takes_as_much_as_asked_for() {
        let effort = Effort { cpu_ns: 3_000_000, memory_bytes: 100_000, output_bytes: 5000 };
        let before_ns = clock::thread_cpu_ns();
        let made = effort.make().unwrap();
        let used_ns = clock::thread_cpu_ns() - before_ns;
        assert_eq!(made.body.len(), 5000);
        assert!(made.cpu_ns >= 3_000_000 && used_ns >= made.cpu_ns);
    }

    #[test]
    fn there_are_only_so_many_places() {
        let work_limit = WorkLimit::default();
        let places: Vec<_> = (0..MOST_AT_ONCE).map(|_| work_limit.enter().unwrap()).collect();
        assert!(work_limit.enter().is_none());
        drop(places);
        assert!(work_limit.enter().is_some());
    }
}
