//! Has the machine's own firewall drop clients that the server ignores, and addresses that rules
//! drop. The server keeps a table of nftables of its own for that.
//!
//! In: the clients to ignore because of a limit, from every loop; the compiled policy; the
//! addresses that are listened on. Out: a table in force, and its counters. Whatever the firewall
//! does not drop, the server refuses as it would without a firewall: the policy is the same.
//!
//! A loop only puts an address into a queue of bounded length. A thread of its own gathers the
//! addresses, and has a helper process change the firewall; that process alone keeps the right to.
//! Many clients are added at a time, for at most a fifth of a core.
//!
//! | module | what it holds |
//! |---|---|
//! | [`bans`] | which clients are dropped, and which of them the firewall does not know yet |
//! | [`lists`] | which addresses the firewall may drop by rules |
//! | [`ruleset`] | the table as JSON for `nft` |
//! | [`relayed`] | the firewall of receive, which the supervisor of stages keeps |
//! | [`helper`] | the process that changes the table, and reads sets of other tables |
//! | `helper_process` | that process as the server sees it |
//! | [`sets`], `set_text` | sets of other tables that rules name, and how `nft` prints one |
//! | `rules` | rules of other tables |

pub mod bans;
pub mod helper;
mod helper_process;
pub mod lists;
pub mod relayed;
pub(crate) mod rules;
pub mod ruleset;
mod set_text;
pub mod sets;

use bans::{BanBatch, Bans};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use forebay_config::{FirewallMode, FirewallSettings};
use forebay_handler::policy::dropped_clients::{DroppedClient, DroppedClients};
use forebay_metrics::FirewallFigures;
use forebay_policy::Policy;
use forebay_policy::spared::SparedClients;
use forebay_sys::clock;
use forebay_sys::stderr::say;
use helper::HelperMessage;
pub use helper::lack;
use helper_process::Helper;
use ruleset::Ruleset;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The largest number of clients added to the firewall at a time, which takes it some 60 ms.
const BATCH: usize = 8192;

/// The rest between two changes, as a multiple of the time that the last one took, and its bounds:
/// where cores are short, a change that takes long has not used them for long.
const RESTS: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_millis(250);

/// How often the queue is looked at while there is work; below it, how often the table is renewed.
const LOOK: Duration = Duration::from_millis(10);
const RENEW: Duration = Duration::from_secs(30);

/// How long a thread that asks for figures waits for new ones; below it, how long the end waits for
/// the helper.
const COUNT: Duration = Duration::from_millis(500);
const END: Duration = Duration::from_secs(5);

/// The server's own table in the machine's firewall, as its other threads use it.
#[derive(Debug)]
pub struct Firewall {
    dropped: Arc<DroppedClients>,
    orders: Sender<FirewallCommand>,
    figures: Mutex<FirewallFigures>,
}

#[derive(Debug)]
enum FirewallCommand {
    /// New rules, the longest time in nanoseconds for which clients are ignored, and the clients
    /// that never are.
    Rules(Ruleset, u64, SparedClients),
    Count(Sender<()>),
    End(Sender<()>),
    /// Asks which clients are dropped, and until when.
    Clients(Sender<Vec<(IpAddr, u64)>>),
    /// Leaves the table to another process.
    Leave(Sender<()>),
}

/// Keeps the firewall's table up to date. The keeper is made with all rights, and its thread starts
/// once they are given up.
#[derive(Debug)]
pub struct FirewallKeeper {
    firewall: Arc<Firewall>,
    clients: Receiver<DroppedClient>,
    orders: Receiver<FirewallCommand>,
    helper: Helper,
    bans: Bans,
    rules: Ruleset,
    most_ns: u64,
    spared: SparedClients,
    /// Whether the table is in force with the current rules.
    is_made: bool,
    told: u64,
    /// The trouble that was logged last.
    trouble: Option<String>,
}

/// Opens the firewall that the configuration wants, with its table in force. With `auto`, returns
/// `None` and logs why if the machine has none. Must be called before rights are given up, and
/// before there are threads.
///
/// `follows` says that another process has the table: then its table stays in force until the
/// keeper [starts](FirewallKeeper::start).
///
/// # Errors
/// With `nftables`, why the machine has no firewall.
pub fn open(
    settings: &FirewallSettings,
    listeners: &[SocketAddr],
    policy: &Policy,
    follows: bool,
) -> Result<Option<FirewallKeeper>, String> {
    if settings.mode == FirewallMode::Off {
        return Ok(None);
    }
    match begin(settings, listeners, policy, follows) {
        Ok(keeper) => Ok(Some(keeper)),
        Err(why) if settings.mode == FirewallMode::Nftables => Err(why),
        Err(why) => {
            say(format_args!("firewall: {why}; the server alone refuses clients"));
            Ok(None)
        }
    }
}

fn begin(
    settings: &FirewallSettings,
    listeners: &[SocketAddr],
    policy: &Policy,
    follows: bool,
) -> Result<FirewallKeeper, String> {
    let mut helper = Helper::open()?;
    let rules = rules(settings, listeners, policy);
    if !follows {
        helper.change(&HelperMessage::Install(rules.clone(), Vec::new()))?;
    }
    let (dropped, clients) = DroppedClients::new();
    let (orders, ordered) = unbounded();
    let figures = FirewallFigures {
        table: settings.table().to_owned(),
        is_in_force: true,
        most: settings.clients,
        ..FirewallFigures::default()
    };
    let firewall =
        Arc::new(Firewall { dropped: Arc::new(dropped), orders, figures: Mutex::new(figures) });
    let (bans, most_ns) = (Bans::new(settings.clients), u64::MAX);
    Ok(FirewallKeeper {
        firewall,
        clients,
        orders: ordered,
        helper,
        bans,
        rules,
        most_ns,
        spared: policy.spared().clone(),
        is_made: true,
        told: 0,
        trouble: None,
    })
}

/// The rules of a policy that the table holds.
fn rules(settings: &FirewallSettings, listeners: &[SocketAddr], policy: &Policy) -> Ruleset {
    let (lists, left) = lists::of(policy);
    if let Some(rule) = left {
        say(format_args!(
            "firewall: no room for the addresses of rule {rule:?}: the server refuses those, and what rules \
             behind it drop"
        ));
    }
    Ruleset {
        table: settings.table().to_owned(),
        listeners: listeners.to_vec(),
        lists,
        most_clients: settings.clients.try_into().unwrap_or(u32::MAX),
    }
}

impl Firewall {
    /// The queue in which loops put clients for the firewall to drop.
    pub fn dropped(&self) -> Arc<DroppedClients> {
        Arc::clone(&self.dropped)
    }

    /// Puts new rules in force: which addresses are dropped, on which listeners, and for how long
    /// clients are ignored at most.
    pub fn enforce(
        &self,
        settings: &FirewallSettings,
        listeners: &[SocketAddr],
        policy: &Policy,
        most_ns: u64,
    ) {
        let rules = rules(settings, listeners, policy);
        self.order(FirewallCommand::Rules(rules, most_ns, policy.spared().clone()));
    }

    /// The table's counters, read just now unless the helper is busy.
    pub fn figures(&self) -> FirewallFigures {
        let (tell, told) = bounded(1);
        self.order(FirewallCommand::Count(tell));
        let _ = told.recv_timeout(COUNT);
        lock(&self.figures).clone()
    }

    /// The clients that are dropped, and until when, for the process that takes over the table.
    pub fn clients(&self) -> Vec<(IpAddr, u64)> {
        let (tell, told) = bounded(1);
        self.order(FirewallCommand::Clients(tell));
        told.recv_timeout(END).unwrap_or_else(|_| {
            say(format_args!("firewall: its helper has not answered within {END:?}"));
            Vec::new()
        })
    }

    /// Leaves the table to another process. This handle must not be used for changes any more.
    pub fn leave(&self) {
        let (tell, told) = bounded(1);
        self.order(FirewallCommand::Leave(tell));
        // the other process waits for the lock on the table's name
        let _ = told.recv_timeout(END);
    }

    /// The name of the table, which distinguishes it from those of other programs.
    pub fn table(&self) -> String {
        lock(&self.figures).table.clone()
    }

    /// Removes the table.
    pub fn end(&self) {
        let (tell, told) = bounded(1);
        self.order(FirewallCommand::End(tell));
        if told.recv_timeout(END).is_err() {
            say(format_args!("firewall: its helper has not ended within {END:?}"));
        }
    }

    fn order(&self, order: FirewallCommand) {
        // the keeper's thread may have ended with the server
        let _ = self.orders.send(order);
        self.dropped.wake();
    }
}

impl FirewallKeeper {
    /// The firewall that this keeper keeps.
    pub fn firewall(&self) -> Arc<Firewall> {
        Arc::clone(&self.firewall)
    }

    /// Starts the thread that keeps the firewall.
    ///
    /// # Errors
    /// When there is no room for a thread.
    pub fn start(self) -> io::Result<()> {
        self.begin(None)
    }

    /// Starts the thread where another process has left the table. `clients` are those that process
    /// had dropped, with their times; no client is dropped for longer than `most_ns` from now.
    ///
    /// # Errors
    /// When there is no room for a thread.
    pub fn start_after(mut self, clients: Vec<(IpAddr, u64)>, most_ns: u64) -> io::Result<()> {
        self.most_ns = most_ns;
        self.begin(Some(clients))
    }

    fn begin(mut self, clients: Option<Vec<(IpAddr, u64)>>) -> io::Result<()> {
        let firewall = Arc::clone(&self.firewall);
        let keep = move || {
            if let Some(clients) = clients {
                self.take_over(clients);
            }
            self.keep();
        };
        let thread = thread::Builder::new().name("firewall".to_owned()).spawn(keep)?;
        // orders sent before the thread could be woken are found at its first look
        firewall.dropped.wake_from_now_on(thread.thread().clone());
        thread.thread().unpark();
        Ok(())
    }

    /// Replaces the table that was left, in one transaction.
    fn take_over(&mut self, clients: Vec<(IpAddr, u64)>) {
        let now_ns = clock::monotonic_ns();
        // with stages, newer rules may have arrived before this thread started
        while let Ok(order) = self.orders.try_recv() {
            if let FirewallCommand::Rules(rules, most_ns, spared) = order {
                (self.rules, self.most_ns, self.spared) = (rules, most_ns, spared);
            }
        }
        let clients = clients.into_iter().filter(|(client, _)| self.spared.why(*client).is_none());
        clients.for_each(|(client, until_ns)| self.bans.note(client, until_ns, now_ns));
        self.make(None);
        self.publish();
    }

    fn keep(&mut self) {
        let mut rest_until = Instant::now();
        let mut renew_at = rest_until + RENEW;
        loop {
            let now_ns = clock::monotonic_ns();
            while let Ok(DroppedClient { address, until_ns }) = self.clients.try_recv() {
                // a client that an earlier configuration ignored may still be in the queue
                if self.spared.why(address).is_none() {
                    self.bans.note(address, until_ns, now_ns);
                }
            }
            // one answer for all threads that ask: on a busy machine questions may come faster than
            // answers
            let mut curious = Vec::new();
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    FirewallCommand::Rules(rules, most_ns, spared) => {
                        self.take_rules(rules, most_ns, spared);
                    }
                    FirewallCommand::Count(tell) => curious.push(tell),
                    FirewallCommand::End(tell) => {
                        self.helper.end();
                        let _ = tell.send(());
                        return;
                    }
                    FirewallCommand::Clients(tell) => drop(tell.send(self.bans.all())),
                    FirewallCommand::Leave(tell) => {
                        // if the helper has ended, its table is gone, and the successor makes it
                        // anew
                        let _ = self.ask(&HelperMessage::Leave);
                        self.helper.end();
                        let _ = tell.send(());
                        return;
                    }
                }
            }
            if !curious.is_empty() {
                if self.is_made {
                    // a failure is logged at the next change of the table
                    let _ = self.ask(&HelperMessage::Count);
                }
                self.publish();
                for tell in curious {
                    let _ = tell.send(());
                }
            }
            let now = Instant::now();
            if now >= renew_at {
                self.renew();
                renew_at = now + RENEW;
            }
            if self.bans.has_pending() && now >= rest_until {
                self.tell_clients();
                let rest = (now.elapsed() * RESTS).clamp(SHORTEST_REST, LONGEST_REST);
                rest_until = Instant::now() + rest;
            }
            if self.bans.has_pending() {
                thread::sleep(LOOK);
                continue;
            }
            // cleared before the queues are checked again: a client that a loop adds after the
            // check unparks this thread, and one added before is found by the check
            self.firewall.dropped.set_awake(false);
            if self.clients.is_empty() && self.orders.is_empty() {
                thread::park_timeout(renew_at.saturating_duration_since(Instant::now()));
            }
            self.firewall.dropped.set_awake(true);
        }
    }

    /// Adds some of the pending clients to the table.
    fn tell_clients(&mut self) {
        let BanBatch { fresh, again } = self.bans.take(BATCH, clock::monotonic_ns());
        let count = (fresh.len() + again.len()) as u64;
        if count == 0 || !self.is_made {
            // a client that is not added now comes again, or is added with the whole table
            return;
        }
        match self.ask(&HelperMessage::Ban(fresh, again)) {
            Ok(()) => self.told += count,
            Err(why) => self.make(Some(&why)),
        }
        self.publish();
    }

    fn take_rules(&mut self, rules: Ruleset, most_ns: u64, spared: SparedClients) {
        let is_less =
            self.bans.forget(|client| spared.why(client).is_some()) | (most_ns < self.most_ns);
        self.spared = spared;
        let is_same = rules == self.rules && self.is_made;
        (self.rules, self.most_ns) = (rules, most_ns);
        if !is_same || is_less {
            self.make(None);
            self.publish();
        }
    }

    /// Renews the table, or makes it if it is not there.
    fn renew(&mut self) {
        match self.is_made {
            true => {
                if let Err(why) = self.ask(&HelperMessage::Renew) {
                    self.make(Some(&why));
                }
            }
            false => self.make(None),
        }
        self.publish();
    }

    /// Makes the table anew, with all clients; `why` says why the old one was gone.
    fn make(&mut self, why: Option<&str>) {
        let now_ns = clock::monotonic_ns();
        let clients = self.bans.take_all(self.most_ns, now_ns);
        let made = self.ask(&HelperMessage::Install(self.rules.clone(), clients));
        let was_made = std::mem::replace(&mut self.is_made, made.is_ok());
        let table = &self.rules.table;
        let trouble = match (made, why) {
            (Ok(()), Some(why)) => {
                Some(format!("the table {table} could not be changed and is made anew: {why}"))
            }
            (Ok(()), None) if !was_made => Some(format!("the table {table} is in force again")),
            (Ok(()), None) => None,
            (Err(why), _) => Some(format!(
                "{why}; the server alone refuses clients, and tries again in {RENEW:?}"
            )),
        };
        if trouble != self.trouble
            && let Some(trouble) = &trouble
        {
            say(format_args!("firewall: {trouble}"));
        }
        self.trouble = trouble;
    }

    fn ask(&mut self, message: &HelperMessage) -> Result<(), String> {
        let [clients, listed] = self.helper.change(message)?;
        let mut figures = lock(&self.firewall.figures);
        (figures.dropped_clients, figures.dropped_listed) = (clients, listed);
        Ok(())
    }

    /// Updates the figures that other threads read.
    fn publish(&mut self) {
        let clients = self.bans.count(clock::monotonic_ns());
        let ranges = self.rules.lists.iter().filter(|list| list.is_dropped);
        let ranges = ranges.map(|list| list.ranges.as_ref().map_or(1, Vec::len)).sum::<usize>();
        let mut figures = lock(&self.firewall.figures);
        figures.is_in_force = self.is_made;
        (figures.clients, figures.listed) = (clients, ranges as u64);
        (figures.told, figures.left_full) = (self.told, self.bans.full());
        figures.left_busy = self.firewall.dropped.lost();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
