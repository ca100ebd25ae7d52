//! Clients that an operator keeps out for a time: a list that commands and files change, and the table in
//! which connections and requests are looked up.
//!
//! A ban ends by the wall clock, so that it means the same in the process that takes the place of this one. A
//! [spared](crate::spared) client is never kept out: the caller of [`BanTable::find`] must check that, too.

mod text;

pub use text::{BanLineError, banned_network, is_wide, parse_lines};

use crate::networks::{NetworkPrefix, Networks};
use forebay_http::cidr::{CidrBlock, bits_of};
use forebay_metrics::RefusedAt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The largest number of bans by commands, all of which go to the process that takes the place of this
/// one, in one text.
pub const MOST_BY_COMMAND: usize = 5_000;

/// The most bans of one file.
pub const MOST_OF_FILE: usize = 100_000;

/// The longest reason that is kept, in bytes.
pub const MOST_WHY_BYTES: usize = 200;

/// A ban as one process passes it to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanRecord {
    /// The banned network.
    pub network: CidrBlock,
    /// When the ban ends, in seconds since 1970; `None` until it is lifted.
    pub until_s: Option<u64>,
    /// The reason, in the operator's words; may be empty.
    pub why: String,
}

/// Where a ban comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BanOrigin {
    /// `forebay policy ban`.
    Command,
    /// A line of a file.
    File {
        /// The file, as the configuration names it.
        file: Arc<str>,
        /// The number of the line, from 1.
        line: usize,
    },
}

/// A ban, and what it has refused.
#[derive(Debug)]
pub struct ClientBan {
    /// The network, the end and the reason.
    pub record: BanRecord,
    /// The command or file that the ban comes from.
    pub origin: BanOrigin,
    /// How much the ban has refused, by [`RefusedAt`].
    refused: [AtomicU64; RefusedAt::ALL.len()],
}

impl ClientBan {
    fn new(record: BanRecord, origin: BanOrigin, before: Option<&ClientBan>) -> ClientBan {
        let refused = RefusedAt::ALL.map(|at| before.map_or(0, |before| before.refused(at)).into());
        ClientBan { record, origin, refused }
    }

    /// Counts a connection or request that the ban has refused.
    #[inline]
    pub fn count(&self, at: RefusedAt) {
        self.refused[at as usize].fetch_add(1, Relaxed);
    }

    /// How many connections or requests the ban has refused.
    pub fn refused(&self, at: RefusedAt) -> u64 {
        self.refused[at as usize].load(Relaxed)
    }

    /// Whether the ban holds at this time.
    #[inline]
    pub fn holds_at(&self, now_s: u64) -> bool {
        self.record.until_s.is_none_or(|until_s| now_s < until_s)
    }

    /// Whether the ban comes from a file.
    pub fn is_of_file(&self) -> bool {
        matches!(self.origin, BanOrigin::File { .. })
    }
}

/// All bans, for the one thread that changes them.
///
/// ```
/// use forebay_http::cidr::CidrBlock;
/// use forebay_policy::bans::{BanList, BanRecord};
///
/// let mut bans = BanList::default();
/// let network = CidrBlock::parse("203.0.113.0/24").unwrap();
/// bans.add(BanRecord { network, until_s: Some(1000), why: "a flood".to_owned() }).unwrap();
/// let table = bans.table().unwrap();
/// let client = "203.0.113.7".parse().unwrap();
/// assert!(table.find(client, 999).is_some());
/// assert!(table.find(client, 1000).is_none());
///
/// // to the process that takes the place of this one
/// let mut restored = BanList::default();
/// restored.restore(bans.records(), 999);
/// assert_eq!(restored.records(), bans.records());
/// ```
#[derive(Clone, Debug, Default)]
pub struct BanList {
    by_command: Vec<Arc<ClientBan>>,
    by_file: Vec<Arc<ClientBan>>,
}

/// The error of [`BanList::add`]: there are as many bans as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyBans;

impl BanList {
    /// Adds a ban by command, or puts it in place of the one of the same network, which is returned.
    ///
    /// # Errors
    /// There are [as many](MOST_BY_COMMAND) as there may be.
    pub fn add(&mut self, record: BanRecord) -> Result<Option<Arc<ClientBan>>, TooManyBans> {
        let known = self.by_command.iter_mut().find(|ban| ban.record.network == record.network);
        if let Some(known) = known {
            let next = ClientBan::new(record, BanOrigin::Command, Some(known));
            return Ok(Some(std::mem::replace(known, Arc::new(next))));
        }
        if self.by_command.len() >= MOST_BY_COMMAND {
            return Err(TooManyBans);
        }
        self.by_command.push(Arc::new(ClientBan::new(record, BanOrigin::Command, None)));
        Ok(None)
    }

    /// Removes the ban by command of just this network.
    pub fn remove(&mut self, network: CidrBlock) -> Option<Arc<ClientBan>> {
        let at = self.by_command.iter().position(|ban| ban.record.network == network)?;
        Some(self.by_command.remove(at))
    }

    /// Replaces the bans of files. A network that stays keeps its counts.
    pub fn set_files(&mut self, said: Vec<(BanRecord, BanOrigin)>) {
        let mut before: Vec<_> = std::mem::take(&mut self.by_file);
        before.sort_unstable_by_key(|ban| prefix(ban.record.network));
        let known = |network| {
            let at =
                before.binary_search_by_key(&prefix(network), |ban| prefix(ban.record.network));
            at.ok().map(|at| &*before[at])
        };
        let bans = said.into_iter().map(|(record, origin)| {
            let known = known(record.network);
            Arc::new(ClientBan::new(record, origin, known))
        });
        self.by_file = bans.collect();
    }

    /// Whether the bans of files are exactly these already.
    pub fn says_of_files(&self, said: &[(BanRecord, BanOrigin)]) -> bool {
        self.by_file
            .iter()
            .map(|ban| (&ban.record, &ban.origin))
            .eq(said.iter().map(|(record, origin)| (record, origin)))
    }

    /// Removes the bans by command that have expired. Returns how many.
    pub fn expire(&mut self, now_s: u64) -> usize {
        let before = self.by_command.len();
        self.by_command.retain(|ban| ban.holds_at(now_s));
        before - self.by_command.len()
    }

    /// When the next ban expires, of those that hold, in seconds since 1970.
    pub fn next_expiry_s(&self, now_s: u64) -> Option<u64> {
        self.holding(now_s).filter_map(|ban| ban.record.until_s).min()
    }

    /// The bans that hold now: those by command in their order, then those of files.
    pub fn holding(&self, now_s: u64) -> impl Iterator<Item = &ClientBan> {
        let all = self.by_command.iter().chain(&self.by_file).map(|ban| &**ban);
        all.filter(move |ban| ban.holds_at(now_s))
    }

    /// How many bans hold now by command, and how many of files.
    pub fn count(&self, now_s: u64) -> [usize; 2] {
        let count = |bans: &[Arc<ClientBan>]| bans.iter().filter(|ban| ban.holds_at(now_s)).count();
        [count(&self.by_command), count(&self.by_file)]
    }

    /// The innermost ban, of those that hold now, that covers the whole network.
    pub fn around(&self, network: CidrBlock, now_s: u64) -> Option<&ClientBan> {
        let around = self.holding(now_s).filter(|ban| ban.record.network.surrounds(network));
        around.max_by_key(|ban| ban.record.network.whole_len())
    }

    /// The bans by command, for the process that takes the place of this one. That process reads the files
    /// itself.
    pub fn records(&self) -> Vec<BanRecord> {
        self.by_command.iter().map(|ban| ban.record.clone()).collect()
    }

    /// Replaces the bans by command with those that another process has recorded and that still hold.
    pub fn restore(&mut self, records: impl IntoIterator<Item = BanRecord>, now_s: u64) {
        self.by_command.clear();
        for record in records {
            if record.until_s.is_none_or(|until_s| now_s < until_s) {
                // beyond the largest number, the last ones are left out
                let _ = self.add(record);
            }
        }
    }

    /// The table for look-ups; `None` if there are no bans.
    pub fn table(&self) -> Option<Arc<BanTable>> {
        let all = self.by_command.iter().chain(&self.by_file);
        let mut bans: Vec<Arc<ClientBan>> = all.cloned().collect();
        // of several bans of one network, the one that holds longest stands first
        let lasts = |ban: &ClientBan| ban.record.until_s.unwrap_or(u64::MAX);
        bans.sort_by_key(|ban| (prefix(ban.record.network), u64::MAX - lasts(ban)));
        bans.dedup_by_key(|ban| ban.record.network);
        let pairs = (0u32..).zip(&bans).map(|(at, ban)| (prefix(ban.record.network), at));
        let networks = Networks::new(pairs.collect());
        (!bans.is_empty()).then(|| Arc::new(BanTable { networks, bans: bans.into() }))
    }
}

fn prefix(network: CidrBlock) -> NetworkPrefix {
    NetworkPrefix { bits: network.bits(), len: network.whole_len() }
}

/// Bans by network, for look-ups. The table does not change.
#[derive(Debug)]
pub struct BanTable {
    networks: Networks<u32>,
    bans: Box<[Arc<ClientBan>]>,
}

impl BanTable {
    /// The innermost ban of a client that holds now. The look-up takes no lock and allocates nothing.
    #[inline]
    pub fn find(&self, client: IpAddr, now_s: u64) -> Option<&ClientBan> {
        let (bits, is_v4) = bits_of(client);
        let mut found = None;
        self.networks.holding(bits, |at| {
            let ban = self.bans.get(*at as usize);
            let holds = |ban: &&Arc<ClientBan>| {
                ban.record.network.is_ipv4() == is_v4 && ban.holds_at(now_s)
            };
            found = found.or(ban.filter(holds));
        });
        found.map(|ban| &**ban)
    }

    /// How many networks are banned now by a command, and how many by files alone.
    pub fn count(&self, now_s: u64) -> [usize; 2] {
        let mut count = [0; 2];
        let holding = self.bans.iter().filter(|ban| ban.holds_at(now_s));
        holding.for_each(|ban| count[usize::from(ban.is_of_file())] += 1);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(network: &str, until_s: Option<u64>) -> BanRecord {
        let network = CidrBlock::parse(network).unwrap();
        BanRecord { network, until_s, why: String::new() }
    }

    fn found(bans: &BanList, client: &str, now_s: u64) -> Option<String> {
        let table = bans.table()?;
        let ban = table.find(client.parse().unwrap(), now_s)?;
        Some(ban.record.network.to_string())
    }

    #[test]
    fn a_ban_holds_for_its_network_until_it_expires_or_is_lifted() {
        let mut bans = BanList::default();
        assert!(bans.table().is_none());
        bans.add(record("203.0.113.0/24", Some(100))).unwrap();
        bans.add(record("203.0.113.9", Some(50))).unwrap();
        bans.add(record("2001:db8:1::/48", None)).unwrap();
        let at = |client, now_s| found(&bans, client, now_s);
        assert_eq!(at("203.0.113.9", 0).as_deref(), Some("203.0.113.9/32"));
        assert_eq!(at("::ffff:203.0.113.9", 0).as_deref(), Some("203.0.113.9/32"));
        assert_eq!(at("203.0.113.9", 50).as_deref(), Some("203.0.113.0/24"));
        assert_eq!(at("203.0.113.9", 100), None);
        assert_eq!(at("203.0.114.9", 0), None);
        assert_eq!(at("2001:db8:1:2::3", u64::MAX).as_deref(), Some("2001:db8:1::/48"));
        assert_eq!((bans.next_expiry_s(0), bans.next_expiry_s(50)), (Some(50), Some(100)));
        assert_eq!(bans.expire(60), 1);
        let lifted = bans.remove(CidrBlock::parse("203.0.113.0/24").unwrap()).unwrap();
        assert_eq!(lifted.record.until_s, Some(100));
        assert!(bans.remove(CidrBlock::parse("203.0.113.0/25").unwrap()).is_none());
        assert_eq!(bans.holding(0).count(), 1);
    }

    /// The ban of a family bans that family alone, though all IPv4 addresses have a place within IPv6.
    #[test]
    fn a_family_is_banned_alone() {
        let mut bans = BanList::default();
        bans.add(record("::/0", None)).unwrap();
        assert_eq!(found(&bans, "192.0.2.1", 0), None);
        assert_eq!(found(&bans, "2001:db8::1", 0).as_deref(), Some("::/0"));
    }

    #[test]
    fn a_network_keeps_its_counts_and_the_longest_ban_of_it_holds() {
        let mut bans = BanList::default();
        let of_file = |line, until_s| {
            (record("192.0.2.0/24", until_s), BanOrigin::File { file: "/etc/bad".into(), line })
        };
        bans.add(record("192.0.2.0/24", Some(10))).unwrap();
        let client = "192.0.2.1".parse().unwrap();
        bans.table().unwrap().find(client, 0).unwrap().count(RefusedAt::Accept);
        assert_eq!(
            bans.add(record("192.0.2.0/24", Some(20))).unwrap().unwrap().record.until_s,
            Some(10)
        );
        assert_eq!(bans.table().unwrap().find(client, 0).unwrap().refused(RefusedAt::Accept), 1);
        bans.set_files(vec![of_file(1, Some(30))]);
        let table = bans.table().unwrap();
        let ban = table.find(client, 0).unwrap();
        assert!(ban.is_of_file());
        ban.count(RefusedAt::Request);
        bans.set_files(vec![of_file(7, None)]);
        let table = bans.table().unwrap();
        let ban = table.find(client, 0).unwrap();
        assert_eq!((ban.refused(RefusedAt::Request), &ban.origin), (1, &of_file(7, None).1));
        // commands do not lift what files say
        assert!(bans.remove(CidrBlock::parse("192.0.2.0/24").unwrap()).is_some());
        assert!(bans.table().unwrap().find(client, 40).is_some());
        assert_eq!(bans.records(), []);
    }

    #[test]
    fn what_has_expired_is_not_restored() {
        let mut bans = BanList::default();
        let all = [("192.0.2.1", Some(10)), ("192.0.2.2", Some(20)), ("192.0.2.3", None)];
        bans.restore(all.map(|(network, until_s)| record(network, until_s)), 10);
        assert_eq!(bans.records().len(), 2);
    }

    proptest! {
        /// A look-up finds what a comparison with each ban finds.
        #[test]
        fn the_table_finds_whom_a_ban_names(
            networks in prop::collection::vec((any::<u32>(), 0u8..=12, 0u64..4), 0..20),
            clients in prop::collection::vec(any::<u32>(), 0..20),
        ) {
            let mut bans = BanList::default();
            for (bits, len, until_s) in networks {
                let bits = bits & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                let network = CidrBlock::new(std::net::Ipv4Addr::from_bits(bits).into(), len).unwrap();
                bans.add(BanRecord { network, until_s: Some(until_s), why: String::new() }).unwrap();
            }
            let table = bans.table();
            for (client, now_s) in clients.into_iter().zip((0..4).cycle()) {
                let client = std::net::Ipv4Addr::from_bits(client).into();
                let innermost = bans.holding(now_s).filter(|ban| ban.record.network.holds(client));
                let innermost = innermost.max_by_key(|ban| ban.record.network.whole_len());
                let found = table.as_ref().and_then(|table| table.find(client, now_s));
                prop_assert_eq!(
                    found.map(|ban| ban.record.network),
                    innermost.map(|ban| ban.record.network)
                );
            }
        }
    }
}
