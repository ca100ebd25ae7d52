//! The firewall of receive. The supervisor keeps the table and its helper, so that a crash of
//! receive lets no banned client in.
//!
//! In receive: loops and reloads use a [`Firewall`], whose clients, rules and questions for figures
//! go over a [`mod@forebay_sys::line`] to the supervisor. The supervisor passes them on to its own
//! firewall, as long as the generation of that receive judges.

use super::{BATCH, Firewall, FirewallCommand, RENEW, lock};
use crate::upgrade::handed;
use crossbeam_channel::{Receiver, unbounded};
use forebay_config::FirewallSettings;
use forebay_handler::policy::dropped_clients::{DroppedClient, DroppedClients};
use forebay_http::cidr::CidrBlock;
use forebay_metrics::FirewallFigures;
use forebay_policy::spared::{SparedAs, SparedClients};
use forebay_sys::line;
use forebay_sys::stderr::say;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The longest time for an answer of the supervisor.
const PATIENCE: Duration = Duration::from_secs(10);

/// A message of receive to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
enum RelayedCommand {
    /// Clients to drop, each until a time.
    Clients(Vec<(IpAddr, u64)>),
    /// New rules, the longest time in nanoseconds for which clients are ignored, and the networks
    /// whose clients never are.
    Rules(super::ruleset::Ruleset, u64, Vec<String>),
    /// Asks for the counters.
    Count,
}

/// The supervisor's answer.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct RelayedFigures {
    is_in_force: bool,
    clients: u64,
    listed: u64,
    told: u64,
    left_full: u64,
    left_busy: u64,
    dropped_clients: u64,
    dropped_listed: u64,
}

/// Passes what receive gives its [`Firewall`] on to the supervisor.
#[derive(Debug)]
pub struct FirewallRelay {
    firewall: Arc<Firewall>,
    clients: Receiver<DroppedClient>,
    orders: Receiver<FirewallCommand>,
    line: UnixStream,
}

/// Opens the firewall that the supervisor keeps for this process, if it keeps one.
///
/// # Errors
/// The kernel's error for the line.
pub fn open(settings: &FirewallSettings) -> io::Result<Option<FirewallRelay>> {
    let Some(line) = line::inherited(line::FIREWALL)? else { return Ok(None) };
    line.set_read_timeout(Some(PATIENCE))?;
    line.set_write_timeout(Some(PATIENCE))?;
    let (dropped, clients) = DroppedClients::new();
    let (sender, orders) = unbounded();
    let figures = FirewallFigures {
        table: settings.table().to_owned(),
        is_in_force: true,
        most: settings.clients,
        ..FirewallFigures::default()
    };
    let (dropped, figures) = (Arc::new(dropped), Mutex::new(figures));
    let firewall = Arc::new(Firewall { dropped, orders: sender, figures });
    Ok(Some(FirewallRelay { firewall, clients, orders, line }))
}

impl FirewallRelay {
    /// The firewall whose messages are passed on.
    pub fn firewall(&self) -> Arc<Firewall> {
        Arc::clone(&self.firewall)
    }

    /// Starts the thread that passes messages on.
    ///
    /// # Errors
    /// When there is no room for a thread.
    pub fn start(self) -> io::Result<()> {
        let firewall = self.firewall();
        let relay = move || {
            if let Err(error) = self.relay() {
                say(format_args!(
                    "firewall: the server alone refuses clients, because the supervisor does not answer: {error}"
                ));
            }
        };
        let thread = thread::Builder::new().name("firewall".to_owned()).spawn(relay)?;
        firewall.dropped.wake_from_now_on(thread.thread().clone());
        thread.thread().unpark();
        Ok(())
    }

    fn relay(&self) -> io::Result<()> {
        loop {
            let batch = self.clients.try_iter().take(BATCH);
            let batch: Vec<_> = batch.map(|one| (one.address, one.until_ns)).collect();
            if !batch.is_empty() {
                handed::send(&self.line, &RelayedCommand::Clients(batch))?;
            }
            // one answer for all threads that ask
            let mut curious = Vec::new();
            for order in self.orders.try_iter() {
                match order {
                    FirewallCommand::Rules(rules, most_ns, spared) => {
                        let spared = spared.blocks().map(|block| block.to_string()).collect();
                        handed::send(&self.line, &RelayedCommand::Rules(rules, most_ns, spared))?;
                    }
                    FirewallCommand::Count(tell) => curious.push(tell),
                    // the table belongs to the supervisor, which knows the clients
                    FirewallCommand::Clients(tell) => drop(tell.send(Vec::new())),
                    FirewallCommand::End(tell) | FirewallCommand::Leave(tell) => {
                        let _ = tell.send(());
                        return Ok(());
                    }
                }
            }
            if !curious.is_empty() {
                self.count()?;
                curious.iter().for_each(|tell| _ = tell.send(()));
            }
            self.firewall.dropped.set_awake(false);
            if self.clients.is_empty() && self.orders.is_empty() {
                thread::park_timeout(RENEW);
            }
            self.firewall.dropped.set_awake(true);
        }
    }

    fn count(&self) -> io::Result<()> {
        handed::send(&self.line, &RelayedCommand::Count)?;
        let told: RelayedFigures = handed::receive(&self.line)?;
        let mut figures = lock(&self.firewall.figures);
        figures.is_in_force = told.is_in_force;
        (figures.clients, figures.listed) = (told.clients, told.listed);
        (figures.told, figures.left_full) = (told.told, told.left_full);
        figures.left_busy = told.left_busy + self.firewall.dropped.lost();
        figures.dropped_clients = told.dropped_clients;
        figures.dropped_listed = told.dropped_listed;
        Ok(())
    }
}

/// Makes a line for a new receive; its rules are followed while `is_heard` returns true.
///
/// # Errors
/// Lack of threads or descriptors.
pub fn line(
    firewall: &Arc<Firewall>,
    is_heard: impl Fn() -> bool + Send + 'static,
) -> io::Result<OwnedFd> {
    let (theirs, own) = line::pair()?;
    let firewall = Arc::clone(firewall);
    let hear = move || {
        // until receive ends
        while let Ok(command) = handed::receive::<RelayedCommand>(&own) {
            if !firewall.hear(command, &is_heard, &own) {
                return;
            }
        }
    };
    thread::Builder::new().name("firewall line".to_owned()).spawn(hear)?;
    Ok(theirs)
}

impl Firewall {
    /// Carries out a message of receive. Returns whether more may follow.
    fn hear(&self, command: RelayedCommand, is_heard: &impl Fn() -> bool, to: &UnixStream) -> bool {
        match command {
            // also from a receive that drains, or is about to be replaced: it still serves clients
            RelayedCommand::Clients(clients) => {
                clients
                    .iter()
                    .for_each(|(client, until)| self.dropped.drop_client(*client, *until));
            }
            RelayedCommand::Rules(rules, most_ns, spared) if is_heard() => {
                let mut clients = SparedClients::default();
                let blocks = spared.iter().filter_map(|text| CidrBlock::parse(text).ok());
                // the reason for sparing does not matter here
                blocks.for_each(|block| clients.add(block, SparedAs::OwnAddress));
                self.order(FirewallCommand::Rules(rules, most_ns, clients));
            }
            RelayedCommand::Rules(..) => {}
            RelayedCommand::Count => {
                let figures = self.figures();
                let told = RelayedFigures {
                    is_in_force: figures.is_in_force,
                    clients: figures.clients,
                    listed: figures.listed,
                    told: figures.told,
                    left_full: figures.left_full,
                    left_busy: figures.left_busy,
                    dropped_clients: figures.dropped_clients,
                    dropped_listed: figures.dropped_listed,
                };
                return handed::send(to, &told).is_ok();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firewall::rules;
    use forebay_policy::Policy;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn firewall() -> (Arc<Firewall>, Receiver<DroppedClient>, Receiver<FirewallCommand>) {
        let (dropped, clients) = DroppedClients::new();
        let (sender, orders) = unbounded();
        let (dropped, figures) = (Arc::new(dropped), Mutex::default());
        (Arc::new(Firewall { dropped, orders: sender, figures }), clients, orders)
    }

    #[test]
    fn what_receive_says_is_done_while_its_generation_judges() {
        let (kept, clients, orders) = firewall();
        let is_heard = Arc::new(AtomicBool::new(true));
        let heard = Arc::clone(&is_heard);
        let end = line(&kept, move || heard.load(Relaxed)).unwrap();
        let (own, to_relay, ordered) = firewall();
        let relay = FirewallRelay {
            firewall: Arc::clone(&own),
            clients: to_relay,
            orders: ordered,
            line: UnixStream::from(end),
        };
        relay.start().unwrap();
        let client: IpAddr = "192.0.2.7".parse().unwrap();
        own.dropped.drop_client(client, 7);
        let told = clients.recv().unwrap();
        assert_eq!((told.address, told.until_ns), (client, 7));
        let mut spared = SparedClients::default();
        spared.add(CidrBlock::parse("192.0.2.0/24").unwrap(), SparedAs::TrustedProxy);
        let listeners: [SocketAddr; 1] = ["192.0.2.1:80".parse().unwrap()];
        let ruleset = rules(&FirewallSettings::default(), &listeners, &Policy::default());
        own.order(FirewallCommand::Rules(ruleset.clone(), 9, spared));
        let FirewallCommand::Rules(told, most_ns, spared) = orders.recv().unwrap() else {
            panic!("another order")
        };
        assert_eq!((&told, most_ns), (&ruleset, 9));
        assert!(spared.why(client).is_some() && spared.why("192.0.3.1".parse().unwrap()).is_none());
        is_heard.store(false, Relaxed);
        own.order(FirewallCommand::Rules(ruleset, 10, SparedClients::default()));
        own.dropped.drop_client(client, 8);
        assert_eq!(clients.recv().unwrap().until_ns, 8, "one that is replaced still serves");
        // a later question has been answered, so the message before it was handled
        own.figures();
        assert!(!orders.try_iter().any(|order| matches!(order, FirewallCommand::Rules(..))));
    }
}
