//! The queue of one rank: clients take turns, or entries have numbers and the least goes first.

use super::Key;
use super::keyed::Keyed;
use super::nodes::{List, Mark, Nodes};
use std::collections::VecDeque;

/// The number of queues over which the clients of a rank are spread, once they need queues.
pub const BUCKETS: usize = 1024;

/// The bucket of a client: the upper bits of its hash, which depend on all bits of the client.
pub(super) fn bucket(hash: u64) -> u16 {
    (hash >> (64 - BUCKETS.trailing_zeros())) as u16
}

/// The queue of one rank.
#[derive(Debug)]
pub(super) struct Lane {
    len: usize,
    /// All entries in the order of arrival, while that is the same as by turns.
    plain: List,
    /// The clients that have entries in `plain`.
    clients: Clients,
    /// The queues of clients, allocated when first needed and kept for the next time.
    turns: Option<Box<Turns>>,
    /// Whether the entries are in `turns` rather than in `plain`.
    by_turns: bool,
    /// The order of the entries in `plain`, if they have numbers.
    keyed: Option<Box<Keyed>>,
}

/// What is known of the clients in the plain list.
#[derive(Debug)]
enum Clients {
    /// All entries are of one client, given by its hash.
    One(u64),
    /// Each client has at most one entry. The bits mark the buckets in which entries fall,
    /// coarsely.
    Distinct([u64; 4]),
}

fn bit(hash: u64) -> (usize, u64) {
    ((hash >> 62) as usize, 1 << ((hash >> 56) & 63))
}

/// The queues of clients, and the order of their turns.
#[derive(Debug)]
struct Turns {
    buckets: Box<[ClientBucket]>,
    /// Buckets with entries, beginning with the one whose turn it is. A bucket emptied by removals
    /// may still be in the list; each bucket is in it at most once.
    round: VecDeque<u16>,
}

#[derive(Clone, Copy, Debug)]
struct ClientBucket {
    list: List,
    /// The number of entries to pop before the turn passes on; 0 if the turn has not begun.
    left: u8,
    weight: u8,
    in_round: bool,
}

impl Lane {
    pub(super) fn new() -> Lane {
        let (plain, clients) = (List::EMPTY, Clients::One(0));
        Lane { len: 0, plain, clients, turns: None, by_turns: false, keyed: None }
    }

    /// A queue for entries [with numbers](Lane::push_keyed).
    pub(super) fn keyed() -> Lane {
        Lane { keyed: Some(Box::default()), ..Lane::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn push<T>(
        &mut self,
        nodes: &mut Nodes<T>,
        hash: u64,
        rank: u8,
        weight: u8,
        item: T,
    ) -> Key {
        let mark = Mark { bucket: bucket(hash), rank, weight };
        self.len += 1;
        if self.len == 1 {
            if self.by_turns {
                self.start_again();
            }
            self.clients = Clients::One(hash);
            return nodes.push(&mut self.plain, item, mark);
        }
        if !self.by_turns && self.clients.stay_in_order(hash, self.len) {
            return nodes.push(&mut self.plain, item, mark);
        }
        let turns = self.turns.get_or_insert_with(Turns::new);
        if !self.by_turns {
            self.by_turns = true;
            turns.take_over(nodes, &mut self.plain);
        }
        nodes.push(turns.enter(mark), item, mark)
    }

    /// Like [`push`](Lane::push), with a number; entries of equal numbers are popped in the order
    /// of arrival.
    pub(super) fn push_keyed<T>(
        &mut self,
        nodes: &mut Nodes<T>,
        rank: u8,
        number: u64,
        item: T,
    ) -> Key {
        self.len += 1;
        let keyed = self.keyed.get_or_insert_default();
        keyed.push(nodes, &mut self.plain, (rank, number), item)
    }

    #[inline]
    pub(super) fn pop<T>(&mut self, nodes: &mut Nodes<T>) -> Option<T> {
        let item = match (&mut self.turns, &mut self.keyed) {
            (Some(turns), _) if self.by_turns => turns.pop(nodes),
            (_, Some(keyed)) => keyed.pop(nodes, &mut self.plain, self.len),
            _ => nodes.pop(&mut self.plain),
        };
        self.len -= usize::from(item.is_some());
        item
    }

    /// Removes an entry of this rank.
    pub(super) fn remove<T>(&mut self, nodes: &mut Nodes<T>, index: u32) -> Option<T> {
        self.len -= 1;
        match &mut self.turns {
            Some(turns) if self.by_turns => {
                let bucket = &mut turns.buckets[usize::from(nodes.mark(index).bucket)];
                nodes.remove(&mut bucket.list, index)
            }
            _ => {
                let item = nodes.remove(&mut self.plain, index);
                if let Some(keyed) = &mut self.keyed {
                    keyed.clear_away(nodes, self.len);
                }
                item
            }
        }
    }

    /// Returns to the plain list. The queue is empty, though removals may have left buckets in the
    /// round.
    fn start_again(&mut self) {
        self.by_turns = false;
        if let Some(turns) = &mut self.turns {
            for bucket in turns.round.drain(..) {
                turns.buckets[usize::from(bucket)].leave();
            }
        }
    }
}

impl Clients {
    /// Whether an entry of this client may be added at the end of the plain list, which then has
    /// `len` entries.
    #[inline]
    fn stay_in_order(&mut self, hash: u64, len: usize) -> bool {
        if let Clients::One(one) = self {
            if *one == hash {
                return true;
            }
            if len > 2 {
                return false;
            }
            let (word, mask) = bit(*one);
            let mut seen = [0; 4];
            seen[word] = mask;
            *self = Clients::Distinct(seen);
        }
        let Clients::Distinct(seen) = self else { return true };
        let (word, mask) = bit(hash);
        let is_new = seen[word] & mask == 0;
        seen[word] |= mask;
        is_new
    }
}

impl Turns {
    #[cold]
    fn new() -> Box<Turns> {
        let bucket = ClientBucket { list: List::EMPTY, left: 0, weight: 1, in_round: false };
        Box::new(Turns { buckets: vec![bucket; BUCKETS].into(), round: VecDeque::new() })
    }

    /// Moves the entries of the plain list to the clients' queues.
    #[cold]
    fn take_over<T>(&mut self, nodes: &mut Nodes<T>, plain: &mut List) {
        while let Some(index) = plain.head() {
            nodes.shift(plain, self.enter(nodes.mark(index)));
        }
    }

    /// The queue of a client that gets an entry.
    fn enter(&mut self, mark: Mark) -> &mut List {
        let bucket = &mut self.buckets[usize::from(mark.bucket)];
        bucket.weight = mark.weight;
        if !bucket.in_round {
            bucket.in_round = true;
            self.round.push_back(mark.bucket);
        }
        &mut bucket.list
    }

    fn pop<T>(&mut self, nodes: &mut Nodes<T>) -> Option<T> {
        loop {
            let number = *self.round.front()?;
            let bucket = &mut self.buckets[usize::from(number)];
            let Some(item) = nodes.pop(&mut bucket.list) else {
                bucket.leave();
                self.round.pop_front();
                continue;
            };
            if bucket.left == 0 {
                bucket.left = bucket.weight;
            }
            bucket.left -= 1;
            if bucket.list.head().is_none() {
                bucket.leave();
                self.round.pop_front();
            } else if bucket.left == 0 {
                self.round.rotate_left(1);
            }
            return Some(item);
        }
    }
}

impl ClientBucket {
    fn leave(&mut self) {
        (self.in_round, self.left) = (false, 0);
    }
}
