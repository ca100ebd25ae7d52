//! What a server hands to its successor: a text in JSON, and descriptors beside it.

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

/// The longest text that is accepted.
const MOST_BYTES: usize = 64 << 20;

/// What is handed over before the successor serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handed {
    /// The version of the predecessor's program.
    pub version: String,
    /// The process number of the predecessor.
    pub process: u32,
    /// The listening sockets, in the order of their descriptors, which follow the text. After them
    /// come the connections to the servers before the predecessor, the descriptors of the gate, of
    /// the shared counts and of the control socket, standard output, which may be the access log,
    /// and standard error.
    pub sockets: Vec<HandedSocket>,
    /// The replaced servers that still have connections, oldest first: the process
    /// numbers, and the connections.
    pub before: Vec<(u32, OpenConnections)>,
    /// Upstreams that an operator has drained, by their names in logs.
    pub drained: Vec<String>,
    /// For upstreams where this was learnt, how many requests at once are useful, by their names in logs.
    pub learnt: Vec<(String, u32)>,
    /// The keys of session tickets, so that clients can resume their sessions.
    pub tickets: Vec<HandedTickets>,
    /// The predecessor's gate.
    pub gate: Option<HandedKernel>,
    /// The name of the predecessor's table in the firewall.
    pub firewall: Option<String>,
    /// The bans that were set by command.
    pub bans: Vec<HandedBan>,
    /// The changes made by `policy set --keep`.
    pub overrides: Vec<HandedOverride>,
    /// The limits that the predecessor counts together with other processes.
    pub counts: Option<HandedCounts>,
    /// The path of the control socket.
    pub control: PathBuf,
    /// The user who has started the predecessor, which may have switched to another user since.
    pub started_by: Option<u32>,
    /// The address of the service manager's socket, and the watchdog's time in microseconds.
    pub notify: Option<(Vec<u8>, Option<u64>)>,
}

/// The successor, as it introduces itself when it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewServer {
    /// The process number.
    pub process: u32,
    /// Addresses that the successor does not serve.
    pub left: Vec<HandedAddress>,
    /// Whether the successor judges in the place of the predecessor's gate.
    #[serde(default)]
    pub takes_gate: bool,
    /// Whether the successor has the predecessor's control socket.
    #[serde(default)]
    pub takes_control: bool,
    /// Whether the successor keeps the predecessor's table in the firewall.
    #[serde(default)]
    pub takes_firewall: bool,
}

/// What is handed over when the successor serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWords {
    /// Why the predecessor keeps its place after all.
    pub keeps_place: Option<String>,
    /// The open connections; `None` if the predecessor does not count them.
    pub open: Option<OpenConnections>,
    /// Drained upstreams, as in [`Handed::drained`], at this later time.
    pub drained: Vec<String>,
    /// Clients that the firewall drops, and until when, on the machine's monotonic clock,
    /// which all processes share.
    pub dropped: Vec<(IpAddr, u64)>,
    /// Bans by command, as in [`Handed::bans`], at this later time.
    pub bans: Vec<HandedBan>,
    /// The charges of buckets that are in the memory of the predecessor alone.
    pub charged: Vec<HandedBucket>,
}

/// The connections of a server that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenConnections {
    /// The number of connections.
    pub count: usize,
    /// The number of connections of each client, by
    /// [word](forebay_http::client::ClientKey::as_u64), as far as clients are counted.
    pub clients: Vec<(u64, usize)>,
}

impl OpenConnections {
    /// The open connections of this process.
    pub fn of(admission: &ConnectionAdmission) -> OpenConnections {
        let clients = admission.clients().into_iter();
        let clients = clients.map(|(client, count)| (client.as_u64(), count)).collect();
        OpenConnections { count: admission.open(), clients }
    }
}

/// A description of the counts that are shared with other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedCounts {
    /// The version of the memory's layout.
    pub layout: u32,
    /// The number of servers that have shared these counts.
    pub generation: u32,
    /// The row of each limit, by the limit's name.
    pub rows: Vec<(String, u32)>,
}

/// A bucket that all clients of a rule share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedBucket {
    /// The name of the rule.
    pub rule: String,
    /// Whether the bucket is for connections rather than for requests.
    pub is_connections: bool,
    /// The time until which the bucket is charged, on the machine's monotonic clock,
    /// which all processes share.
    pub charged: u64,
}

impl HandedBucket {
    /// The shared buckets of the rules in force.
    pub fn of(state: &State) -> Vec<HandedBucket> {
        let handed = |bucket: ChargedBucket| {
            let ChargedBucket { rule, is_connections, charged } = bucket;
            HandedBucket { rule, is_connections, charged }
        };
        state.charged(clock::monotonic_ns()).into_iter().map(handed).collect()
    }

    /// Charges the rules in force for at least as much.
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
    /// The assignment, as `NAME.KEY=VALUE`.
    pub assignment: String,
    /// The value in the file.
    pub file_value: Option<String>,
    /// Whether the next reload undoes the change. It is then handed only to a process that starts
    /// with the same file.
    pub until_reload: bool,
}

impl HandedOverride {
    /// The overrides of a configuration that reloads keep.
    pub fn of(config: &Config) -> Vec<HandedOverride> {
        let mut handed = HandedOverride::all(config);
        handed.retain(|one| !one.until_reload);
        handed
    }

    /// All overrides of a configuration.
    pub fn all(config: &Config) -> Vec<HandedOverride> {
        let handed = |one: &PolicyOverride| HandedOverride {
            assignment: one.assignment.clone(),
            file_value: one.file_value.clone(),
            until_reload: !one.is_kept,
        };
        config.assigned.iter().map(handed).collect()
    }

    /// The same override as part of a configuration.
    pub fn kept(&self) -> PolicyOverride {
        let HandedOverride { assignment, file_value, until_reload: _ } = self.clone();
        PolicyOverride { assignment, is_kept: true, file_value }
    }
}

/// A ban by command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedBan {
    /// The network, as commands write it.
    pub network: String,
    /// The end of the ban, in seconds since 1970.
    pub until_s: Option<u64>,
    /// The reason.
    pub why: String,
}

impl HandedBan {
    /// The bans of a list.
    pub fn of(bans: &BanList) -> Vec<HandedBan> {
        let handed = |ban: BanRecord| {
            let BanRecord { network, until_s, why } = ban;
            HandedBan { network: network.to_string(), until_s, why }
        };
        bans.records().into_iter().map(handed).collect()
    }

    /// The ban as a record; `None` if it comes from another version in a form that this one does not know.
    pub fn record(&self) -> Option<BanRecord> {
        let network = CidrBlock::parse(&self.network).ok()?;
        Some(BanRecord::new(network, self.until_s, &self.why))
    }
}

/// Sends a text with its length.
pub(crate) fn send(mut stream: &UnixStream, text: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(text)?;
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&text)
}

/// Receives a text, and reads no byte beyond it, because descriptors may follow.
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

    /// Fields of other versions are ignored or missing: a later version may send more, an earlier one less.
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
