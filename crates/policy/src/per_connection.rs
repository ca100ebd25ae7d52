//! After how many requests a connection ends: the limit, and what a connection counts for it.

use crate::clients::number;

/// After how many requests a connection ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerConnectionLimit {
    most: u32,
    /// Under which number a connection counts them.
    number: u64,
}

impl PerConnectionLimit {
    /// That of the rule or class with this name, each of its kind.
    pub(crate) fn new(kind: u8, name: &str, most: Option<u32>) -> Option<PerConnectionLimit> {
        most.map(|most| PerConnectionLimit { most, number: number((name, kind)) })
    }
}

/// So many rules and classes a connection counts for; then it ends.
const MOST_COUNTED: usize = 32;

/// What a connection has asked for so far, as far as a rule or a class counts that: kept with it from
/// one request to the next. It takes memory only where something is counted.
#[derive(Debug, Default)]
pub struct ConnectionCounts(Option<Box<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// How many requests, by the number they are counted under.
    asked: Vec<(u64, u32)>,
}

impl ConnectionCounts {
    /// Counts one more, and says whether it is the last of the connection.
    pub(crate) fn count(&mut self, limit: &PerConnectionLimit) -> bool {
        let asked = &mut self.0.get_or_insert_default().asked;
        let count = match asked.iter().position(|(number, _)| *number == limit.number) {
            Some(at) => {
                asked[at].1 = asked[at].1.saturating_add(1);
                asked[at].1
            }
            None if asked.len() == MOST_COUNTED => return true,
            None => {
                asked.push((limit.number, 1));
                1
            }
        };
        count >= limit.most
    }
}
