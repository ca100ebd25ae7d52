//! The limit on the requests of a connection, after which it ends, and the counts that a connection
//! keeps for it.

use crate::clients::number;

/// The limit of a rule or class on the requests of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerConnectionLimit {
    most: u32,
    /// The number under which a connection counts for this rule or class.
    number: u64,
}

impl PerConnectionLimit {
    /// The limit of the rule or class with this name; `kind` separates rules from classes.
    pub(crate) fn new(kind: u8, name: &str, most: Option<u32>) -> Option<PerConnectionLimit> {
        most.map(|most| PerConnectionLimit { most, number: number((name, kind)) })
    }
}

/// How many rules and classes a connection counts for; it ends when more would be needed.
const MOST_COUNTED: usize = 32;

/// The number of requests that a connection has made so far, for each rule or class that limits it.
/// The counts are kept from one request to the next, and take memory only where something is
/// counted.
#[derive(Debug, Default)]
pub struct ConnectionCounts(Option<Box<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// The number of requests, by the number of the rule or class.
    asked: Vec<(u64, u32)>,
}

impl ConnectionCounts {
    /// Counts one more request, and says whether it is the connection's last.
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
