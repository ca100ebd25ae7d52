//! What a server hands to the process that takes its place: a text in JSON, and descriptors beside it.

use crate::listen::handing::{HandedAddress, HandedSocket};
use forebay_config::{Config, PolicyOverride};
use forebay_engine::admission::ConnectionAdmission;
use forebay_handler::certificates::HandedTickets;
use forebay_handler::policy::enforced::HandedKernel;
use forebay_http::cidr::CidrBlock;
use forebay_policy::bans::{BanList, BanRecord};
use forebay_policy::{ChargedBucket, State};

use forebay_sys::clock;
use forebay_sys::descriptors;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The longest text.
const MOST_BYTES: usize = 64 << 20;

/// What is handed before the successor serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handed {
    /// The version of the program.
    pub version: String,
    /// The process that hands it.
    pub process: u32,
    /// Its listening sockets, in the order of their descriptors, which follow the text. After them come the
    /// connections to the servers before it, those of the gate, that of its counts, that of its control socket, its standard output, which
    /// may be the access log, and its standard error.
    pub sockets: Vec<HandedSocket>,
    /// The processes of the servers before it that have connections yet, oldest first, and which.
    pub before: Vec<(u32, OpenConnections)>,
    /// Upstreams that an operator has taken out, as logs call them.
    pub drained: Vec<String>,
    /// How many requests are useful for upstreams, by what logs call them, where that was learnt.
    pub learnt: Vec<(String, u32)>,
    /// The keys of tickets, so that clients resume their sessions.
    pub tickets: Vec<HandedTickets>,
    /// Its gate.
    pub gate: Option<HandedKernel>,
    /// The table that it has in the firewall.
    pub firewall: Option<String>,
    /// Bans by command.
    pub bans: Vec<HandedBan>,
    /// What `policy set --keep` has changed.
    pub overrides: Vec<HandedOverride>,
    /// What it counts together with others.
    pub counts: Option<HandedCounts>,
    /// Where its control socket is.
    pub control: PathBuf,
    /// The number of the user who has started it, which it may have become another since.
    pub started_by: Option<u32>,
    /// Where the service manager listens, and after how many microseconds without a sign of life it takes the
    /// server for dead.
    pub notify: Option<(Vec<u8>, Option<u64>)>,
}

/// The process that serves in place of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewServer {
    /// The number of its process.
    pub process: u32,
    /// Addresses that it does not serve.
    pub left: Vec<HandedAddress>,
    /// Whether it judges in the place of this server's gate.
    #[serde(default)]
    pub takes_gate: bool,
    /// Whether it has this server's control socket.
    #[serde(default)]
    pub takes_control: bool,
    /// Whether it keeps this server's table in the firewall.
    #[serde(default)]
    pub takes_firewall: bool,
}

/// What is handed when the successor serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWords {
    /// Why this server keeps its place after all.
    pub keeps_place: Option<String>,
    /// Connections that are open; `None` if it does not count them.
    pub open: Option<OpenConnections>,
    /// As [`Handed::drained`], later.
    pub drained: Vec<String>,
    /// Clients that the firewall drops, and until when, on the clock of the machine that all its processes read.
    pub dropped: Vec<(IpAddr, u64)>,
    /// As [`Handed::bans`], later.
    pub bans: Vec<HandedBan>,
    /// What buckets of rules are charged for that lie in this process alone.
    pub charged: Vec<HandedBucket>,
}

/// The connections of a server that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenConnections {
    /// How many it has.
    pub count: usize,
    /// How many of these each client has, by [word](forebay_http::client::ClientKey::as_u64), as far as clients are counted.
    pub clients: Vec<(u64, usize)>,
}

impl OpenConnections {
    /// Those of this process.
    pub fn of(admission: &ConnectionAdmission) -> OpenConnections {
        let clients = admission.clients().into_iter();
        let clients = clients.map(|(client, count)| (client.as_u64(), count)).collect();
        OpenConnections { count: admission.open(), clients }
    }
}

/// What is counted together with other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedCounts {
    /// What the words mean.
    pub layout: u32,
    /// How many servers there were.
    pub generation: u32,
    /// Which limit has which row, by name.
    pub rows: Vec<(String, u32)>,
}

/// A bucket that all clients of a rule share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedBucket {
    /// The name of the rule.
    pub rule: String,
    /// Whether it is that for connections, and not that for requests.
    pub is_connections: bool,
    /// What it is charged for: until when, on the clock of the machine that all its processes read.
    pub charged: u64,
}

impl HandedBucket {
    /// Those of the rules in force.
    pub fn of(state: &State) -> Vec<HandedBucket> {
        let handed = |bucket: ChargedBucket| {
            let ChargedBucket { rule, is_connections, charged } = bucket;
            HandedBucket { rule, is_connections, charged }
        };
        state.charged(clock::monotonic_ns()).into_iter().map(handed).collect()
    }

    /// The rules in force are charged for as much at least.
    pub fn charge(buckets: &[HandedBucket], state: &State) {
        let known = buckets.iter().map(|bucket| {
            let HandedBucket { rule, is_connections, charged } = bucket.clone();
            ChargedBucket { rule, is_connections, charged }
        });
        state.charge_as(&known.collect::<Vec<_>>(), clock::monotonic_ns());
    }
}

/// A setting that `policy set --keep` has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedOverride {
    /// `NAME.KEY=VALUE`
    pub assignment: String,
    /// What the file said.
    pub file_value: Option<String>,
    /// The next reload takes it back: it is handed to a process that starts with the same file only.
    pub until_reload: bool,
}

impl HandedOverride {
    /// Those of a configuration that are kept.
    pub fn of(config: &Config) -> Vec<HandedOverride> {
        let mut handed = HandedOverride::all(config);
        handed.retain(|one| !one.until_reload);
        handed
    }

    /// All of a configuration.
    pub fn all(config: &Config) -> Vec<HandedOverride> {
        let handed = |one: &PolicyOverride| HandedOverride {
            assignment: one.assignment.clone(),
            file_value: one.file_value.clone(),
            until_reload: !one.is_kept,
        };
        config.assigned.iter().map(handed).collect()
    }

    /// The same in a configuration.
    pub fn kept(&self) -> PolicyOverride {
        let HandedOverride { assignment, file_value, until_reload: _ } = self.clone();
        PolicyOverride { assignment, is_kept: true, file_value }
    }
}

/// A ban by command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedBan {
    /// The network, as commands have it.
    pub network: String,
    /// Until when, in seconds since 1970.
    pub until_s: Option<u64>,
    /// Why.
    pub why: String,
}

impl HandedBan {
    /// Those of a list.
    pub fn of(bans: &BanList) -> Vec<HandedBan> {
        let handed = |ban: BanRecord| {
            let BanRecord { network, until_s, why } = ban;
            HandedBan { network: network.to_string(), until_s, why }
        };
        bans.records().into_iter().map(handed).collect()
    }

    /// What it says; `None` if another version says it in a way that is not known here.
    pub fn record(&self) -> Option<BanRecord> {
        let network = CidrBlock::parse(&self.network).ok()?;
        Some(BanRecord::new(network, self.until_s, &self.why))
    }
}

/// Sends a text.
pub(crate) fn send(mut stream: &UnixStream, text: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(text)?;
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&text)
}

/// Receives a text, and no byte beyond it.
pub(crate) fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Sends descriptors.
pub(crate) fn give(stream: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    descriptors::give(stream, &borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::handing::HandedOrigin;

    #[test]
    fn what_is_sent_arrives_with_descriptors_behind_it() {
        let (a, b) = UnixStream::pair().unwrap();
        let address = HandedAddress::Tcp(([127, 0, 0, 1], 8080).into());
        let socket =
            HandedSocket { wanted: address.clone(), bound: address, origin: HandedOrigin::Bound };
        let handed = Handed { process: 1, sockets: vec![socket], ..Handed::default() };
        send(&a, &handed).unwrap();
        give(&a, &[a.try_clone().unwrap().into()]).unwrap();
        assert_eq!(receive::<Handed>(&b).unwrap(), handed);
        assert_eq!(descriptors::take(&b, 1).unwrap().len(), 1);
    }

    #[test]
    fn bans_are_handed_with_their_end_and_reason() {
        let mut bans = BanList::default();
        for (network, until_s) in [("203.0.113.0/24", Some(100)), ("2001:db8::/64", None)] {
            let network = CidrBlock::parse(network).unwrap();
            bans.add(BanRecord::new(network, until_s, "a flood")).unwrap();
        }
        let (a, b) = UnixStream::pair().unwrap();
        send(&a, &LastWords { bans: HandedBan::of(&bans), ..LastWords::default() }).unwrap();
        let words: LastWords = receive(&b).unwrap();
        let mut restored = BanList::default();
        restored.restore(words.bans.iter().filter_map(HandedBan::record), 99);
        assert_eq!(restored.records(), bans.records());
    }

    /// A later version may say more, an earlier one less.
    #[test]
    fn what_is_not_known_is_passed_over() {
        let (a, b) = UnixStream::pair().unwrap();
        send(&a, &serde_json::json!({ "open": { "count": 3 }, "drained": [], "more": 1 })).unwrap();
        let open = receive::<LastWords>(&b).unwrap().open;
        assert_eq!(open.map(|open| open.count), Some(3));
        send(&a, &serde_json::json!({})).unwrap();
        assert_eq!(receive::<Handed>(&b).unwrap(), Handed::default());
    }
}
