//! The clients that the firewall drops, as far as the server knows, and those that are still to be
//! added to it.
//!
//! A client that reaches the server although the firewall should drop it is added anew: the
//! firewall may have lost its table, or the client's time was made longer.

use super::ruleset::{Ban, client};
use std::collections::HashMap;
use std::net::IpAddr;

const SECOND_NS: u64 = 1_000_000_000;

/// How long packets that a client had sent before may still arrive after the firewall began to drop
/// it.
const SETTLES_NS: u64 = 2 * SECOND_NS;

/// How often expired clients are looked for at most, when the firewall is full.
const SWEEP_NS: u64 = SECOND_NS;

/// The clients that the firewall drops or will drop.
#[derive(Debug)]
pub struct Bans {
    most: usize,
    known: HashMap<IpAddr, Known>,
    /// The clients that are still to be added to the firewall, each once.
    pending: Vec<IpAddr>,
    swept_ns: u64,
    /// How often there was no room.
    full: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    until_ns: u64,
    is_pending: bool,
    /// When the client was added to the firewall; `None` if it never was.
    told_ns: Option<u64>,
}

/// The clients that are added to the firewall at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BanBatch {
    /// Clients that are not in the table.
    pub fresh: Vec<Ban>,
    /// Clients that were added before, and may still be in the table.
    pub again: Vec<Ban>,
}

impl Bans {
    /// Makes an empty set with room for `most` clients.
    pub fn new(most: u64) -> Bans {
        let most = most.try_into().unwrap_or(usize::MAX);
        Bans { most, known: HashMap::new(), pending: Vec::new(), swept_ns: 0, full: 0 }
    }

    /// Has a client dropped until `until_ns`. Times under a second are not worth a change.
    pub fn note(&mut self, address: IpAddr, until_ns: u64, now_ns: u64) {
        let Some(address) = client(address) else { return };
        if until_ns < now_ns + SECOND_NS {
            return;
        }
        if let Some(known) = self.known.get_mut(&address) {
            let settles = known.told_ns.is_some_and(|told_ns| now_ns < told_ns + SETTLES_NS);
            if known.is_pending || !settles {
                known.until_ns = until_ns.max(known.until_ns);
            }
            if !known.is_pending && !settles {
                known.is_pending = true;
                self.pending.push(address);
            }
            return;
        }
        if self.known.len() >= self.most {
            if now_ns >= self.swept_ns + SWEEP_NS {
                self.swept_ns = now_ns;
                self.forget_expired(now_ns);
            }
            if self.known.len() >= self.most {
                self.full += 1;
                return;
            }
        }
        self.known.insert(address, Known { until_ns, is_pending: true, told_ns: None });
        self.pending.push(address);
    }

    /// Whether clients wait to be added to the firewall.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes at most `most` of the pending clients.
    pub fn take(&mut self, most: usize, now_ns: u64) -> BanBatch {
        let mut batch = BanBatch::default();
        let rest = self.pending.len().saturating_sub(most);
        for address in self.pending.split_off(rest) {
            let Some(known) = self.known.get_mut(&address) else { continue };
            let is_known = known.told_ns.is_some();
            (known.is_pending, known.told_ns) = (false, Some(now_ns));
            match seconds(known.until_ns, now_ns) {
                0 if is_known => {}
                0 => drop(self.known.remove(&address)),
                seconds if is_known => batch.again.push((address, seconds)),
                seconds => batch.fresh.push((address, seconds)),
            }
        }
        batch
    }

    /// Forgets the clients that must no longer be dropped. Returns whether the firewall may know
    /// any of them.
    pub fn forget(&mut self, is_spared: impl Fn(IpAddr) -> bool) -> bool {
        let before = self.known.len();
        self.known.retain(|address, _| !is_spared(*address));
        // pending clients that are no longer known are skipped when a batch is taken
        self.known.len() < before
    }

    /// All clients, for a table that is made anew; none for longer than `most_ns` from now.
    pub fn take_all(&mut self, most_ns: u64, now_ns: u64) -> Vec<Ban> {
        self.pending.clear();
        // the server itself does not ignore clients beyond this time any more
        self.known.retain(|_, known| known.until_ns <= now_ns.saturating_add(most_ns));
        self.forget_expired(now_ns);
        let told = self.known.iter_mut().map(|(address, known)| {
            (known.is_pending, known.told_ns) = (false, Some(now_ns));
            (*address, seconds(known.until_ns, now_ns))
        });
        told.filter(|(_, seconds)| *seconds > 0).collect()
    }

    /// All clients, and until when each is dropped: for another process.
    pub fn all(&self) -> Vec<(IpAddr, u64)> {
        self.known.iter().map(|(address, known)| (*address, known.until_ns)).collect()
    }

    /// The number of clients that are dropped now.
    pub fn count(&mut self, now_ns: u64) -> u64 {
        self.forget_expired(now_ns);
        self.known.len() as u64
    }

    /// How often a client was left to the server for want of room.
    pub fn full(&self) -> u64 {
        self.full
    }

    fn forget_expired(&mut self, now_ns: u64) {
        self.known.retain(|_, known| known.is_pending || known.until_ns > now_ns);
    }
}

/// The whole seconds until `until_ns`, rounded down: the server itself ignores clients that the
/// firewall forgets too early.
fn seconds(until_ns: u64, now_ns: u64) -> u64 {
    until_ns.saturating_sub(now_ns) / SECOND_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const START: u64 = 1_000 * SECOND_NS;

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn a_client_is_told_of_once() {
        let mut bans = Bans::new(10);
        for _ in 0..3 {
            bans.note(ip(1), START + 5 * SECOND_NS, START);
        }
        bans.note(ip(2), START + SECOND_NS - 1, START);
        assert_eq!(bans.take(10, START), BanBatch { fresh: vec![(ip(1), 5)], again: vec![] });
        // a packet that was under way when the client was added
        bans.note(ip(1), START + 6 * SECOND_NS, START + SECOND_NS);
        assert!(!bans.has_pending());
    }

    #[test]
    fn who_comes_although_it_is_dropped_is_told_of_again() {
        let mut bans = Bans::new(10);
        bans.note(ip(1), START + 60 * SECOND_NS, START);
        bans.take(10, START);
        let later = START + SETTLES_NS;
        bans.note(ip(1), START + 60 * SECOND_NS, later);
        assert_eq!(bans.take(10, later), BanBatch { fresh: vec![], again: vec![(ip(1), 58)] });
        // a client whose time is over is forgotten, and begins anew
        let over = START + 60 * SECOND_NS;
        assert_eq!(bans.count(over), 0);
        bans.note(ip(1), over + 5 * SECOND_NS, over);
        assert_eq!(bans.take(10, over).fresh, [(ip(1), 5)]);
    }

    #[test]
    fn who_is_spared_from_now_on_is_forgotten() {
        let mut bans = Bans::new(10);
        for number in 1..4 {
            bans.note(ip(number), START + 60 * SECOND_NS, START);
        }
        bans.take(1, START);
        assert!(bans.forget(|address| address == ip(1) || address == ip(3)));
        assert!(!bans.forget(|address| address == ip(1)));
        assert_eq!(bans.take(10, START).fresh, [(ip(2), 60)]);
        assert_eq!(bans.take_all(60 * SECOND_NS, START), [(ip(2), 60)]);
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let mut bans = Bans::new(3);
        for number in 0..5 {
            bans.note(ip(number), START + 5 * SECOND_NS, START);
        }
        assert_eq!((bans.full(), bans.count(START)), (2, 3));
        assert_eq!(bans.take(2, START).fresh.len(), 2);
        assert_eq!(bans.take(2, START).fresh.len(), 1);
        let later = START + 6 * SECOND_NS;
        bans.note(ip(9), later + 5 * SECOND_NS, later);
        assert_eq!((bans.full(), bans.count(later)), (2, 1));
    }

    #[test]
    fn a_new_table_gets_all_but_those_who_are_free_by_now() {
        let mut bans = Bans::new(10);
        bans.note(ip(1), START + 5 * SECOND_NS, START);
        bans.note(ip(2), START + 60 * SECOND_NS, START);
        assert_eq!(bans.take_all(10 * SECOND_NS, START), [(ip(1), 5)]);
        assert!(!bans.has_pending());
        assert_eq!(bans.take_all(0, START), []);
    }
}
