//! The most frequent clients, paths and others: the largest counts among any number of names, in bounded
//! memory.
//!
//! Each table is a Space-Saving summary (Metwally, Agrawal, El Abbadi 2005): a name without a place takes
//! that of the smallest count and continues from that count. So a count is never too low, and too high by no
//! more than it states itself; a name with more than one part in [`PLACES`] of all events certainly has a
//! place. There are crates with such summaries, but no maintained one can also merge them and give the error
//! of each count, which is all that is needed here.
//!
//! Requests are sampled, refusals are all counted: see [`TopCount`].

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// The number of names that a table has places for.
pub const PLACES: usize = 256;

/// The number of bytes of a name that are kept.
pub const NAME_BYTES: usize = 96;

/// One in this many requests is counted, of those that are not refused.
pub const SAMPLE: u64 = 128;

/// The property by which requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKind {
    /// The client's address.
    Address,
    /// The client's network: a /24 of IPv4, a /48 of IPv6.
    Network,
    /// The User-Agent field.
    Agent,
    /// Host and path, without the query.
    Path,
    /// The class.
    Class,
    /// The rule that refused the request.
    Rule,
}

impl TopKind {
    /// All properties, in order.
    pub const ALL: [TopKind; 6] = [
        TopKind::Address,
        TopKind::Network,
        TopKind::Agent,
        TopKind::Path,
        TopKind::Class,
        TopKind::Rule,
    ];

    /// The property's name.
    pub fn as_str(self) -> &'static str {
        match self {
            TopKind::Address => "address",
            TopKind::Network => "network",
            TopKind::Agent => "agent",
            TopKind::Path => "path",
            TopKind::Class => "class",
            TopKind::Rule => "rule",
        }
    }
}

/// The count of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopCount {
    /// The first [`NAME_BYTES`] of the name.
    pub name: Vec<u8>,
    /// Sampled requests; each stands for [`SAMPLE`] that were not refused.
    pub sampled: u64,
    /// Refused requests and connections, each of which is counted.
    pub refused: u64,
    /// The part of the two counts, weighted, that may belong to names that had this place before.
    pub inherited: u64,
}

impl TopCount {
    /// The estimated number of requests: the sampled ones stand for others.
    pub fn requests(&self) -> u64 {
        self.sampled * SAMPLE + self.refused
    }

    /// The error of [`requests`](TopCount::requests) at 95 %: the count of names before, and two standard
    /// deviations of the sample.
    pub fn error(&self) -> u64 {
        let deviation = SAMPLE as f64 * (self.sampled as f64).sqrt();
        self.inherited + (2.0 * deviation).round() as u64
    }
}

/// A hasher for values that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct KnownHash(u64);

impl Hasher for KnownHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "only numbers are hashed here, not {} bytes", bytes.len());
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The names with the largest counts.
#[derive(Clone, Debug, Default)]
pub struct TopTable {
    counts: Vec<TopCount>,
    /// The [`TopCount::requests`] of each count, in the same order, because the least is searched often.
    weights: Vec<u64>,
    hashes: Vec<u64>,
    places: HashMap<u64, usize, BuildHasherDefault<KnownHash>>,
}

impl TopTable {
    /// Adds to the count of a name. `hash` is keyed, so that a client cannot choose two names with the same
    /// hash.
    fn add(&mut self, hash: u64, name: &[u8], sampled: u64, refused: u64) -> &mut TopCount {
        let at = match self.places.get(&hash) {
            Some(at) => *at,
            None => self.place(hash, name),
        };
        let count = &mut self.counts[at];
        count.sampled += sampled;
        count.refused += refused;
        self.weights[at] = count.requests() + count.inherited;
        count
    }

    /// Returns the index of the place that a new name takes.
    fn place(&mut self, hash: u64, name: &[u8]) -> usize {
        let name = &name[..name.len().min(NAME_BYTES)];
        if self.counts.len() < PLACES {
            self.counts.push(TopCount { name: name.to_owned(), ..TopCount::default() });
            self.weights.push(0);
            self.hashes.push(hash);
            self.places.insert(hash, self.counts.len() - 1);
            return self.counts.len() - 1;
        }
        let least = self.weights.iter().zip(0..).min().map_or(0, |(_, at)| at);
        self.places.remove(&self.hashes[least]);
        self.places.insert(hash, least);
        self.hashes[least] = hash;
        let count = &mut self.counts[least];
        count.name.clear();
        count.name.extend_from_slice(name);
        (count.sampled, count.refused, count.inherited) = (0, 0, self.weights[least]);
        least
    }

    /// Adds the counts of another table.
    fn merge(&mut self, other: &TopTable) {
        for (count, hash) in other.counts.iter().zip(&other.hashes) {
            let TopCount { name, sampled, refused, inherited } = count;
            self.add(*hash, name, *sampled, *refused).inherited += inherited;
            if let Some(at) = self.places.get(hash) {
                self.weights[*at] += inherited;
            }
        }
    }

    fn clear(&mut self) {
        self.counts.clear();
        self.weights.clear();
        self.hashes.clear();
        self.places.clear();
    }
}

/// A table for each [`TopKind`].
#[derive(Clone, Debug, Default)]
pub struct TopTables([TopTable; TopKind::ALL.len()]);

/// The way in which a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenAs {
    /// The request is one of the sample.
    Sampled,
    /// The request was refused.
    Refused,
}

impl TopTables {
    /// Counts a request with this name.
    pub fn add(&mut self, keys: &RandomState, kind: TopKind, name: &[u8], seen: SeenAs) {
        let name = &name[..name.len().min(NAME_BYTES)];
        let (sampled, refused) = match seen {
            SeenAs::Sampled => (1, 0),
            SeenAs::Refused => (0, 1),
        };
        self.0[kind as usize].add(keys.hash_one(name), name, sampled, refused);
    }

    /// Adds the counts of other tables, with hashes of the same key.
    pub fn merge(&mut self, other: &TopTables) {
        self.0.iter_mut().zip(&other.0).for_each(|(table, other)| table.merge(other));
    }

    /// Removes all counts, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(TopTable::clear);
    }

    /// Whether nothing has been counted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|table| table.counts.is_empty())
    }

    /// The largest counts of a kind: first `most` by requests, the largest first, and then of the others
    /// `most` by refusals, as far as they have any.
    pub fn largest(&self, kind: TopKind, most: usize) -> Vec<TopCount> {
        let mut counts = self.0[kind as usize].counts.clone();
        counts.sort_by(|a, b| b.requests().cmp(&a.requests()).then_with(|| a.name.cmp(&b.name)));
        let mut others = counts.split_off(most.min(counts.len()));
        others.retain(|one| one.refused > 0);
        others.sort_by_key(|one| Reverse(one.refused));
        counts.extend(others.into_iter().take(most));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(tables: &mut TopTables, keys: &RandomState, name: &str, times: usize, seen: SeenAs) {
        (0..times).for_each(|_| tables.add(keys, TopKind::Path, name.as_bytes(), seen));
    }

    #[test]
    fn refusals_are_counted_one_by_one_and_others_by_sample() {
        let (mut tables, keys) = (TopTables::default(), RandomState::new());
        count(&mut tables, &keys, "/a", 7, SeenAs::Refused);
        count(&mut tables, &keys, "/b", 4, SeenAs::Sampled);
        let largest = tables.largest(TopKind::Path, 9);
        let said = |one: &TopCount| (one.requests(), one.refused, one.error());
        assert_eq!(said(&largest[0]), (4 * SAMPLE, 0, 4 * SAMPLE));
        assert_eq!(said(&largest[1]), (7, 7, 0));
        assert!(tables.largest(TopKind::Agent, 9).is_empty());
    }

    /// A frequent name is found among ten thousand names that come once each.
    #[test]
    fn many_small_names_do_not_hide_a_large_one() {
        let (mut tables, keys) = (TopTables::default(), RandomState::new());
        for number in 0..10_000 {
            count(&mut tables, &keys, &format!("/noise/{number}"), 1, SeenAs::Refused);
            if number % 10 == 0 {
                count(&mut tables, &keys, "/flood", 1, SeenAs::Refused);
            }
        }
        let largest = tables.largest(TopKind::Path, 1);
        assert_eq!(largest[0].name, b"/flood");
        let (low, high) = (largest[0].refused, largest[0].requests() + largest[0].error());
        assert!(low <= 1000 && high >= 1000, "{low}..{high}");
        assert_eq!(tables.largest(TopKind::Path, 10_000).len(), PLACES);
    }

    #[test]
    fn who_is_refused_is_found_behind_those_who_ask_more() {
        let (mut tables, keys) = (TopTables::default(), RandomState::new());
        for name in ["/a", "/b", "/c", "/d"] {
            count(&mut tables, &keys, name, 9, SeenAs::Sampled);
        }
        for (name, times) in [("/few", 1), ("/flood", 7), ("/some", 3)] {
            count(&mut tables, &keys, name, times, SeenAs::Refused);
        }
        let largest = tables.largest(TopKind::Path, 2);
        let names: Vec<_> = largest.iter().map(|one| String::from_utf8_lossy(&one.name)).collect();
        assert_eq!(names, ["/a", "/b", "/flood", "/some"]);
    }

    #[test]
    fn tables_add_up() {
        let keys = RandomState::new();
        let (mut one, mut two) = (TopTables::default(), TopTables::default());
        count(&mut one, &keys, "/a", 3, SeenAs::Refused);
        count(&mut two, &keys, "/a", 4, SeenAs::Refused);
        count(&mut two, &keys, "/b", 1, SeenAs::Refused);
        one.merge(&two);
        let refused =
            one.largest(TopKind::Path, 9).iter().map(|one| one.refused).collect::<Vec<_>>();
        assert_eq!(refused, [7, 1]);
        one.clear();
        assert!(one.is_empty());
    }

    #[test]
    fn a_long_name_is_known_by_its_beginning() {
        let (mut tables, keys) = (TopTables::default(), RandomState::new());
        let long = "x".repeat(NAME_BYTES + 9);
        count(&mut tables, &keys, &long, 1, SeenAs::Refused);
        count(&mut tables, &keys, &long[..NAME_BYTES], 1, SeenAs::Refused);
        let largest = tables.largest(TopKind::Path, 9);
        assert_eq!((largest.len(), largest[0].name.len(), largest[0].refused), (1, NAME_BYTES, 2));
    }
}
