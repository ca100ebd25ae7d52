//! Counts that a server shares with the ones it has replaced, so that old and new processes together keep a
//! limit.
//!
//! In: words of memory that all these processes see. Out: for each limit a [`SharedCount`], which says what
//! the other processes have of it. Each process writes to a column of its own. So the counts of a process are
//! known when it dies, and no lock can be left behind.
//!
//! ```text
//!              process 71 (generation 1)   72 (2)        free   …
//!   row "a"    3 taken, rank 1 waits       2, none       0
//!   row "b"    0                           1, 0 and 1    0
//! ```
//!
//! A process that takes one more counts it first and then looks at the others' counts: of two processes that
//! do so at the same time, at least one sees the other, and gives its own back if that is too much. Of
//! requests that wait in several processes, the highest rank goes first, and within a rank those in the
//! oldest process, as long as that process [shows](SharedCounts::beat) that it is alive.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, PoisonError};

/// The largest number of processes that can share: the newest, earlier ones that finish their work, and some
/// that are just ending.
const COLUMNS: usize = 16;
/// The words of a row: the count of each process, and then the waiting ranks of each.
const ROW: usize = 2 * COLUMNS;
/// The largest number of limits that can be shared. Further ones are counted by each process for itself.
const ROWS: usize = 1 << 15;
/// The number of words in a table of clients.
const CLIENT_WORDS: usize = 1 << 16;

/// The positions of the parts, in words.
const SECRET: usize = 0;
const USED_ROWS: usize = 2;
const USED_COLUMNS: usize = 3;
const PROCESSES: usize = 16;
const BEATS: usize = PROCESSES + COLUMNS;
const COUNTS: usize = BEATS + COLUMNS;
const BUCKETS: usize = COUNTS + ROWS * ROW;
const CLIENTS: usize = BUCKETS + CLIENT_WORDS;

/// How long after its last heartbeat an older process is assumed to serve the requests that wait in it, in
/// milliseconds. The end of a process is noticed without this, which is for one that is stopped or hangs. The time is
/// longer than a busy machine keeps a process from a processor, so that requests in a late process keep their turn.
const BEAT_MS: u64 = 5_000;

/// The counts of this process, and its view of those of the others.
#[derive(Debug)]
pub struct SharedCounts {
    words: &'static [AtomicU64],
    column: usize,
    generation: u32,
    rows: Mutex<HashMap<String, u32>>,
}

/// One limit: what this process has of it, and what the others have.
#[derive(Clone, Copy, Debug)]
pub struct SharedCount {
    words: &'static [AtomicU64],
    row: &'static [AtomicU64],
    column: usize,
}

/// The tables of clients. Buckets are the same for all processes; requests under way are counted in a table
/// for each process.
#[derive(Clone, Copy, Debug)]
pub struct SharedClients {
    words: &'static [AtomicU64],
    column: usize,
}

impl SharedCounts {
    /// The number of words that the counts need. They must be zero at first.
    pub const WORDS: usize = CLIENTS + COLUMNS * CLIENT_WORDS;

    /// The version of the layout. Processes with different versions share nothing.
    pub const LAYOUT: u32 = 2;

    /// Counts of a process that replaces no other; `words` has [this many words](SharedCounts::WORDS). The
    /// secret keys the hashes of clients.
    pub fn new(words: &'static [AtomicU64], process: u32, secret: [u64; 2]) -> SharedCounts {
        for (at, half) in secret.into_iter().enumerate() {
            words[SECRET + at].store(half, Relaxed);
        }
        words[PROCESSES].store(of_process(process, 1), SeqCst);
        words[USED_COLUMNS].store(1, SeqCst);
        SharedCounts { words, column: 0, generation: 1, rows: Mutex::default() }
    }

    /// Counts of a process that replaces one that has [handed](SharedCounts::hand) these values. `None` if
    /// the largest number of processes share already.
    pub fn join(
        words: &'static [AtomicU64],
        process: u32,
        generation: u32,
        rows: impl IntoIterator<Item = (String, u32)>,
    ) -> Option<SharedCounts> {
        let generation = generation.saturating_add(1);
        let own = of_process(process, generation);
        let is_free = |column: &usize| {
            words[PROCESSES + column].compare_exchange(0, own, SeqCst, Relaxed).is_ok()
        };
        let column = (0..COLUMNS).find(is_free)?;
        // a process that has joined and failed may have left values
        wipe(words, column);
        words[USED_COLUMNS].fetch_add(1, SeqCst);
        let rows = rows.into_iter().filter(|(_, row)| (*row as usize) < ROWS).collect();
        Some(SharedCounts { words, column, generation, rows: Mutex::new(rows) })
    }

    /// The values that the process replacing this one needs: the generation, and the row of each limit.
    pub fn hand(&self) -> (u32, Vec<(String, u32)>) {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        (self.generation, rows.iter().map(|(name, row)| (name.clone(), *row)).collect())
    }

    /// The limit of this name: the same in each process. `None` if there is no free row.
    pub fn of(&self, name: &str) -> Option<SharedCount> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = match rows.get(name) {
            Some(row) => *row as usize,
            None => {
                let more = |used: u64| (used < ROWS as u64).then_some(used + 1);
                let row = self.words[USED_ROWS].fetch_update(SeqCst, SeqCst, more).ok()?;
                rows.insert(name.to_owned(), row as u32);
                row as usize
            }
        };
        let row = &self.words[COUNTS + row * ROW..][..ROW];
        Some(SharedCount { words: self.words, row, column: self.column })
    }

    /// The tables of clients.
    pub fn clients(&self) -> SharedClients {
        SharedClients { words: self.words, column: self.column }
    }

    /// Whether another process shares the counts at present.
    #[inline]
    pub fn has_others(&self) -> bool {
        has_others(self.words)
    }

    /// Shows that this process serves the requests that wait in it.
    pub fn beat(&self, now_ms: u64) {
        self.words[BEATS + self.column].store(now_ms, Relaxed);
    }

    /// Frees the counts of a process that has ended.
    pub fn ended(&self, process: u32) {
        self.clear(|word| word >> 32 == u64::from(process));
    }

    /// Frees the counts of processes that replaced this one, or were about to, and have ended.
    pub fn newer_ended(&self) {
        let own = u64::from(self.generation);
        self.clear(|word| generation(word) > own);
    }

    fn clear(&self, is_ended: impl Fn(u64) -> bool) {
        for column in (0..COLUMNS).filter(|column| *column != self.column) {
            let word = self.words[PROCESSES + column].load(SeqCst);
            if word == 0 || !is_ended(word) {
                continue;
            }
            wipe(self.words, column);
            // another process that learns of the end may have done this already
            let freed = self.words[PROCESSES + column].compare_exchange(word, 0, SeqCst, Relaxed);
            if freed.is_ok() {
                self.words[USED_COLUMNS].fetch_sub(1, SeqCst);
            }
        }
    }
}

impl SharedCount {
    /// Adds one to this process's count.
    #[inline]
    pub fn take(&self) {
        self.row[self.column].fetch_add(1, SeqCst);
    }

    /// Takes one from this process's count.
    #[inline]
    pub fn give_back(&self) {
        self.row[self.column].fetch_sub(1, SeqCst);
    }

    /// Adds one to this process's count, unless the count has reached `most`.
    #[inline]
    pub fn take_below(&self, most: u32) -> bool {
        let more = |taken: u64| (taken < u64::from(most)).then_some(taken + 1);
        self.row[self.column].fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Adds `taken` requests that this process already has, and that were counted elsewhere until now.
    pub fn add(&self, taken: u32) {
        self.row[self.column].fetch_add(taken.into(), SeqCst);
    }

    /// Removes `taken` requests, which are counted elsewhere from now on.
    pub fn subtract(&self, taken: u32) {
        self.row[self.column].fetch_sub(taken.into(), SeqCst);
    }

    /// Announces the ranks of requests that wait in this process, a bit for each.
    #[inline]
    pub fn set_waiting(&self, ranks: u32) {
        self.row[COLUMNS + self.column].store(ranks.into(), SeqCst);
    }

    /// The word with this process's count. Taking one from it is what [`give_back`](SharedCount::give_back)
    /// does.
    pub fn word(&self) -> &'static AtomicU64 {
        &self.row[self.column]
    }

    /// The count of this process.
    pub fn own(&self) -> u32 {
        u32::try_from(self.row[self.column].load(SeqCst)).unwrap_or(u32::MAX)
    }

    /// The counts of the other processes together.
    #[inline]
    pub fn others(&self) -> u32 {
        if !has_others(self.words) {
            return 0;
        }
        let others = self.other_columns().map(|column| self.row[column].load(SeqCst));
        u32::try_from(others.fold(0, u64::saturating_add)).unwrap_or(u32::MAX)
    }

    /// Whether a request that waits in another, live process goes before one of this rank.
    #[inline]
    pub fn is_behind(&self, rank: u8, now_ms: u64) -> bool {
        has_others(self.words) && self.is_behind_others(rank, now_ms)
    }

    fn is_behind_others(&self, rank: u8, now_ms: u64) -> bool {
        let generation = |column: usize| generation(self.words[PROCESSES + column].load(SeqCst));
        let own = generation(self.column);
        let (of_newer, of_older) = (above(rank), above(rank.saturating_add(1)));
        let beats = |column: usize| {
            let beat_ms = self.words[BEATS + column].load(Relaxed);
            now_ms.saturating_sub(beat_ms) < BEAT_MS
        };
        self.other_columns().any(|column| {
            let waiting = self.row[COLUMNS + column].load(SeqCst);
            let before = if generation(column) < own { of_older } else { of_newer };
            waiting & before != 0 && beats(column)
        })
    }

    /// The columns of other processes.
    fn other_columns(&self) -> impl Iterator<Item = usize> {
        let others = (0..COLUMNS).filter(|column| *column != self.column);
        others.filter(|column| self.words[PROCESSES + column].load(SeqCst) != 0)
    }
}

impl SharedClients {
    /// The secret for hashes of clients.
    pub fn secret(&self) -> [u64; 2] {
        [0, 1].map(|half| self.words[SECRET + half].load(Relaxed))
    }

    /// The buckets of clients, for all processes.
    pub fn buckets(&self) -> &'static [AtomicU64] {
        table(self.words, BUCKETS)
    }

    /// The counts of clients' requests under way in this process.
    pub fn counts(&self) -> &'static [AtomicU64] {
        table(self.words, CLIENTS + self.column * CLIENT_WORDS)
    }

    /// The same counts of each other process.
    pub fn counts_of_others(&self) -> impl Iterator<Item = &'static [AtomicU64]> + use<> {
        let SharedClients { words, column: own } = *self;
        let most = if has_others(words) { COLUMNS } else { 0 };
        let others = (0..most)
            .filter(move |column| *column != own && words[PROCESSES + column].load(SeqCst) != 0);
        others.map(move |column| table(words, CLIENTS + column * CLIENT_WORDS))
    }
}

/// Clears the counts, waiting ranks and clients' counts of a column.
fn wipe(words: &'static [AtomicU64], column: usize) {
    let used = (words[USED_ROWS].load(SeqCst) as usize).min(ROWS);
    for row in (0..used).map(|row| COUNTS + row * ROW) {
        words[row + column].store(0, SeqCst);
        words[row + COLUMNS + column].store(0, SeqCst);
    }
    for word in table(words, CLIENTS + column * CLIENT_WORDS) {
        // pages that were never written to are not touched
        if word.load(Relaxed) != 0 {
            word.store(0, Relaxed);
        }
    }
    words[BEATS + column].store(0, Relaxed);
}

/// The word that marks a column as used by a process.
fn of_process(process: u32, generation: u32) -> u64 {
    u64::from(process) << 32 | u64::from(generation)
}

/// The ranks above this one, a bit for each.
fn above(rank: u8) -> u64 {
    1_u64.checked_shl(rank.into()).map_or(u64::MAX, |bit| bit - 1)
}

fn generation(word: u64) -> u64 {
    word & u64::from(u32::MAX)
}

#[inline]
fn has_others(words: &[AtomicU64]) -> bool {
    words[USED_COLUMNS].load(SeqCst) > 1
}

fn table(words: &'static [AtomicU64], start: usize) -> &'static [AtomicU64] {
    &words[start..][..CLIENT_WORDS]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> &'static [AtomicU64] {
        (0..SharedCounts::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak()
    }

    fn next(words: &'static [AtomicU64], before: &SharedCounts, process: u32) -> SharedCounts {
        let (generation, rows) = before.hand();
        SharedCounts::join(words, process, generation, rows).unwrap()
    }

    #[test]
    fn each_sees_what_the_others_have_until_they_end() {
        let words = words();
        let old = SharedCounts::new(words, 71, [1, 2]);
        let of_old = old.of("a").unwrap();
        of_old.add(3);
        assert!(!old.has_others() && of_old.others() == 0 && of_old.own() == 3);
        let new = next(words, &old, 72);
        let (of_new, other) = (new.of("a").unwrap(), new.of("b").unwrap());
        assert_eq!((of_new.others(), other.others()), (3, 0));
        of_new.take();
        assert_eq!((of_old.others(), old.of("b").unwrap().others()), (1, 0));
        of_old.give_back();
        assert_eq!(of_new.others(), 2);
        assert_eq!(new.clients().secret(), [1, 2]);
        old.clients().counts()[5].store(9, Relaxed);
        let of_others = || new.clients().counts_of_others().map(|table| table[5].load(Relaxed));
        assert_eq!(of_others().collect::<Vec<_>>(), [9]);
        let newest = next(words, &new, 73);
        assert_eq!(newest.of("a").unwrap().others(), 3);
        new.ended(71);
        assert_eq!((newest.of("a").unwrap().others(), of_new.others()), (1, 0));
        assert_eq!(of_others().count(), 1);
        // the counts of the newest process are free if it ends
        newest.of("a").unwrap().take();
        assert_eq!(of_new.others(), 1);
        new.newer_ended();
        assert!(of_new.others() == 0 && !new.has_others());
        assert_eq!(next(words, &new, 74).of("a").unwrap().others(), 1);
    }

    #[test]
    fn the_highest_rank_is_first_and_then_the_oldest_process_that_is_awake() {
        let words = words();
        let old = SharedCounts::new(words, 71, [1, 2]);
        let of_old = old.of("a").unwrap();
        let new = next(words, &old, 72);
        let of_new = new.of("a").unwrap();
        old.beat(5000);
        new.beat(5000);
        of_new.set_waiting(0b10);
        assert!(!of_old.is_behind(1, 5000), "the other one is younger");
        assert!(of_old.is_behind(2, 5000), "the other one is of a higher rank");
        of_old.set_waiting(0b110);
        assert!(of_new.is_behind(1, 9900) && of_new.is_behind(63, 9900));
        assert!(!of_new.is_behind(0, 9900), "it is of a higher rank");
        assert!(!of_new.is_behind(1, 10_000), "nobody looks after it");
        assert_eq!((of_new.others(), of_old.others()), (0, 0));
        of_old.set_waiting(0);
        assert!(!of_new.is_behind(1, 9900));
    }

    #[test]
    fn there_is_an_end_to_rows_and_columns() {
        let words = words();
        let first = SharedCounts::new(words, 1, [0, 0]);
        for row in 0..ROWS {
            assert!(first.of(&row.to_string()).is_some());
        }
        assert!(first.of("more").is_none() && first.of("7").is_some());
        let (generation, _) = first.hand();
        let join = |process| SharedCounts::join(words, process, generation, []);
        let others: Vec<_> = (2..=COLUMNS as u32).map(|process| join(process).unwrap()).collect();
        assert!(join(99).is_none());
        first.ended(2);
        assert!(join(99).is_some() && others.len() == COLUMNS - 1);
    }

    /// Threads that stand for processes never have more than the limit together.
    #[test]
    fn together_they_never_have_more_than_there_is() {
        const MOST: u32 = 3;
        let words = words();
        let mut counts = vec![SharedCounts::new(words, 1, [0, 0])];
        for process in 2..5 {
            counts.push(next(words, counts.last().unwrap(), process));
        }
        let (under_way, peak, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for counts in &counts {
                let count = counts.of("a").unwrap();
                scope.spawn({
                    let (under_way, peak, done) = (&under_way, &peak, &done);
                    move || {
                        for _ in 0..20_000 {
                            if !count.take_below(MOST) {
                                continue;
                            }
                            if count.own() + count.others() <= MOST {
                                let now = under_way.fetch_add(1, SeqCst) + 1;
                                peak.fetch_max(now, SeqCst);
                                done.fetch_add(1, Relaxed);
                                under_way.fetch_sub(1, SeqCst);
                            }
                            count.give_back();
                        }
                    }
                });
            }
        });
        assert!(peak.load(Relaxed) <= u64::from(MOST) && done.load(Relaxed) > 1000);
    }
}
