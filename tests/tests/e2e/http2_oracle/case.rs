//! The requests and answers of the test.

use fastrand::Rng;

/// One message, without its path and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Names and values, in their order.
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, Vec<u8>)>,
}

/// One request and its response.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) method: &'static str,
    /// The path, which names the case.
    pub(super) path: String,
    pub(super) request: Message,
    pub(super) status: u16,
    /// Whether a 103 goes before the answer.
    pub(super) is_early: bool,
    pub(super) response: Message,
}

/// This number of cases, the same for the same seed.
pub(super) fn cases(seed: u64, count: usize) -> Vec<Case> {
    let mut random = Rng::with_seed(seed);
    (0..count).map(|number| Case::new(number, &mut random)).collect()
}

/// The case that a path names.
pub(super) fn number(path: &str) -> usize {
    path.trim_start_matches("/case/").split('?').next().unwrap().parse().unwrap()
}

impl Case {
    fn new(number: usize, random: &mut Rng) -> Case {
        let method = ["GET", "POST", "PUT", "DELETE"][random.usize(..4)];
        let query = "x".repeat(random.usize(..60));
        let has_body = method != "GET";
        Case {
            method,
            path: format!("/case/{number}?{query}"),
            request: message(random, has_body),
            status: [200, 206, 404, 418, 503][random.usize(..5)],
            is_early: random.u8(..4) == 0,
            response: message(random, true),
        }
    }
}

fn message(random: &mut Rng, has_body: bool) -> Message {
    let most = [1, 100, 5_000, 150_000][random.usize(..4)];
    let len = if has_body { random.usize(..most) } else { 0 };
    let first = random.u8(..);
    let trailers = if has_body && random.u8(..3) == 0 { fields(random, 3) } else { Vec::new() };
    let body = (0..len).map(|at| first.wrapping_add((at % 251) as u8)).collect();
    Message { fields: fields(random, 12), body, trailers }
}

/// Random fields. Some are the same in most messages, so that tables are used.
fn fields(random: &mut Rng, most: usize) -> Vec<(String, Vec<u8>)> {
    let one = |random: &mut Rng| {
        let name = ["accept", "user-agent", "x-same", "x-other", "cache-control", "etag"];
        let name = match random.u8(..8) {
            0 => format!("x-{}", random.u16(..)),
            _ => name[random.usize(..name.len())].to_owned(),
        };
        let value = match random.u8(..4) {
            0 => (0..random.usize(..200)).map(|_| random.u8(0x21..=0x7e)).collect(),
            1 => (0..random.usize(..40)).map(|_| random.u8(0xa0..=0xff)).collect(),
            2 => Vec::new(),
            _ => b"the same value".to_vec(),
        };
        (name, value)
    };
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for _ in 0..random.usize(..most) + 1 {
        let field = one(random);
        // the other side groups fields of one name
        if all.iter().all(|(name, _)| *name != field.0) {
            all.push(field);
        }
    }
    all
}
