//! The gate with the feature `gate`: the programs of `forebay_gate`.

use super::{HandedKernel, OfClasses, ProtectedServer};
use forebay_config::{GateCharge, GateRules};
use forebay_gate::{
    AnswerRoom, Charge, ClassSockets, Count, FirstCount, Gate, GateError, HandedFilters,
    HandedGate, OtherServer,
};
use forebay_metrics::{GateFigures, GateRule};
use forebay_policy::rule::Degree;
use forebay_policy::{GivenWord, Policy};
use forebay_sys::{privileges, stderr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

mod answers;

pub use answers::GivenAnswers;

/// The largest number of rules that appear in a report.
const MOST_RULES: usize = 1000;

/// Whether this program has the gate.
pub fn is_built() -> bool {
    true
}

/// Whether this kernel can make connections from cookies that are not its own.
pub fn makes_connections() -> bool {
    forebay_gate::makes_connections()
}

/// Runs as the guard: the process that a server starts beside it where the kernel does not remove the
/// gate together with the server.
///
/// # Errors
/// The process was not started by a server, or cannot give up its rights.
pub fn guard() -> io::Result<()> {
    // a signal to the whole process group is for the server, which may have clients yet
    for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    privileges::keep_net_admin_only()?;
    forebay_gate::guard()
}

/// The programs in the kernel.
#[derive(Debug)]
pub struct KernelGate(Gate);

/// Rules as the kernel has them.
#[derive(Debug, Default)]
pub struct KernelTables(forebay_gate::Tables);

impl KernelTables {
    pub(super) fn slot(&self, rule: u32) -> Option<u32> {
        self.0.slot(rule)
    }

    pub(super) fn charge(&self) -> bool {
        self.0.charge()
    }

    pub(super) fn charge_requests(&self) -> bool {
        self.0.charge_requests()
    }

    pub(super) fn rule_of_requests(&self, slot: u32) -> Option<u32> {
        self.0.rule_of_requests(slot)
    }
}

impl KernelGate {
    /// Opens a gate for these charges. One that `steers` also answers SYNs, where classes have sockets.
    /// The gate judges first requests if `rules` are enforced on them, and with `answers` it gives
    /// answers of the cache. If another process has handed its gate over, the new gate takes the place of
    /// that one where it is attached.
    ///
    /// # Errors
    /// The reason why this machine cannot.
    pub fn open(
        charge: GateCharge,
        steers: bool,
        rules: GateRules,
        answers: bool,
        before: Option<(HandedKernel, Vec<OwnedFd>)>,
    ) -> Result<KernelGate, String> {
        let room = (answers && steers).then(AnswerRoom::default);
        let charge = match charge {
            GateCharge::Syn => Charge::AtSyn,
            GateCharge::Handshake => Charge::AtHandshake,
        };
        let gate = match before.and_then(|(text, descriptors)| handed(text, descriptors)) {
            Some(before) => match &room {
                Some(room) => Gate::load_answering_after(charge, room, before),
                None => Gate::load_after(charge, steers, before),
            },
            None => match &room {
                Some(room) => Gate::load_answering(charge, room),
                None => load(charge, steers),
            },
        };
        let gate = gate.and_then(|gate| match gate.has_filters() || gate.has_links() {
            true => Ok(gate),
            false => gate.by_filters(
                // in a process group of its own: a signal from the terminal is for the server
                Command::new("/proc/self/exe")
                    .arg("gate")
                    .process_group(0)
                    .stderr(stderr::of_children()),
            ),
        });
        let gate = gate.map(|gate| match rules {
            GateRules::Addresses => gate,
            GateRules::FirstRequest => gate.judging_requests(),
        });
        gate.map(KernelGate).map_err(|error| error.to_string())
    }

    /// The gate's text and descriptors, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<(HandedKernel, Vec<OwnedFd>)> {
        let HandedGate { layout, steers, slots, maps, links, filters } = self.0.hand()?;
        let (maps, mut descriptors): (_, Vec<_>) = maps.into_iter().unzip();
        let (links, of_links): (_, Vec<_>) = links.into_iter().unzip();
        descriptors.extend(of_links);
        let filters = filters.map(|HandedFilters { number, guard, line, named }| {
            descriptors.extend([line, named]);
            (number, guard)
        });
        Ok((HandedKernel { layout, steers, slots, maps, links, filters }, descriptors))
    }

    /// A descriptor that another process must hold, besides those handed over, so that the kernel judges
    /// on when this process has ended.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn programs(&self) -> io::Result<OwnedFd> {
        self.0.programs()
    }

    /// Does all of [`attach`](KernelGate::attach) but the last step: the gate before judges on.
    ///
    /// # Errors
    /// The obstacle.
    pub fn prepare(&self, listeners: &[SocketAddr]) -> Result<(), String> {
        self.0.prepare(listeners).map_err(|error| error.to_string())
    }

    /// Takes judging back that another process was about to take over.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn retake(&self) -> Result<(), String> {
        self.0.retake().map_err(|error| error.to_string())
    }

    /// Whether the gate judges anywhere.
    pub fn is_attached(&self) -> bool {
        !self.0.interfaces().is_empty()
    }

    /// Ends the judging of the gate before, everywhere, even if this one has no listeners.
    pub fn settle(&self) {
        self.0.settle();
    }

    /// Leaves the gate to another process, which judges from now on.
    pub fn let_go(&self) {
        self.0.let_go();
    }

    /// Ends all judging.
    pub fn detach(&self) {
        self.0.detach();
    }

    /// Loads the programs that a rung needs, and unloads them again; returns by what they would be
    /// attached.
    ///
    /// # Errors
    /// The reason why they cannot be loaded or attached.
    pub fn try_load(steers: bool) -> Result<&'static str, String> {
        let gate = load(Charge::default(), steers).map_err(|error| error.to_string())?;
        if gate.has_links() {
            return Ok("links, which go with the server");
        }
        gate.try_filters().map_err(|error| error.to_string())?;
        Ok("filters at clsact, which a process beside the server takes away")
    }

    /// Whether the gate queues connections by class, and so answers SYNs.
    pub fn steers(&self) -> bool {
        self.0.steers()
    }

    /// Whether the gate judges first requests.
    pub fn judges_requests(&self) -> bool {
        self.0.judges_requests()
    }

    /// The gate's name, as the setting has it.
    pub fn rung(&self) -> &'static str {
        if self.steers() { "full" } else { "address" }
    }

    /// The gate's tasks, in words.
    pub fn does(&self) -> &'static str {
        match (self.steers(), self.0.has_filters()) {
            (true, _) if self.answers_requests() => {
                "the kernel judges SYNs and first requests, queues by class, and answers requests for small files"
            }
            (true, _) if self.judges_requests() => {
                "the kernel judges SYNs and first requests, and queues by class"
            }
            (false, false) => "the kernel judges SYNs",
            (false, true) => "the kernel judges SYNs, by filters at clsact",
            (true, _) => "the kernel judges SYNs and queues by class",
        }
    }

    pub(super) fn lower(&self, policy: &Policy) -> Result<KernelTables, String> {
        self.0.lower(policy).map(KernelTables).map_err(|error| error.to_string())
    }

    pub(super) fn word(&self, rule: &str, of: GivenWord) -> Option<&'static AtomicU64> {
        self.0.word(rule, of)
    }

    pub(super) fn take_charged_request(
        &self,
        client: SocketAddr,
        local: SocketAddr,
    ) -> Option<u32> {
        self.0.take_charged_request(client, local)
    }

    pub(super) fn enforce(&self, tables: &KernelTables) -> Result<(), String> {
        self.0.enforce(&tables.0).map_err(|error| error.to_string())
    }

    pub(super) fn set_degree(&self, degree: Degree) {
        self.0.set_degree(degree);
    }

    /// Protects these servers, and no others, once the gate is attached anew.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn protect(&self, servers: &[ProtectedServer]) -> Result<(), String> {
        let others = servers.iter().map(|server| {
            let ProtectedServer { forwarded_to, port, queue, speaks_first } = *server;
            OtherServer { forwarded_to, port, queue, speaks_first }
        });
        self.0.protect(&others.collect::<Vec<_>>()).map_err(|error| error.to_string())
    }

    /// Has SYNs to these addresses judged.
    ///
    /// # Errors
    /// The address at which that is not possible, and why.
    pub fn attach(&self, listeners: &[SocketAddr]) -> Result<(), String> {
        self.0.attach(listeners).map_err(|error| error.to_string())
    }

    /// Has connections queued in the sockets of their classes, if the gate steers.
    ///
    /// # Errors
    /// The address at which that is not possible, and why.
    pub fn place(&self, of_classes: Vec<OfClasses<'_>>) -> Result<(), String> {
        let listeners: Vec<_> = of_classes
            .into_iter()
            .map(|OfClasses { address, speaks_tls, sockets }| ClassSockets {
                address,
                speaks_tls,
                sockets,
            })
            .collect();
        self.0.place(&listeners).map_err(|error| error.to_string())
    }

    pub(super) fn take_charged(&self, client: SocketAddr, local: SocketAddr, slot: u32) -> bool {
        self.0.take_charged(client, local, slot)
    }

    pub(super) fn ignore(&self, client: IpAddr, until_ns: u64) {
        self.0.ignore(client, until_ns);
    }

    pub(super) fn paced(&self, class: &str) -> (u64, u64) {
        self.0.paced(class)
    }

    pub(super) fn refused_by(&self, rule: &str) -> u64 {
        self.0.tally(rule).requests
    }

    pub(super) fn first_requests(&self, ranks: usize) -> Vec<u64> {
        if self.steers() { self.0.judged(ranks).0 } else { Vec::new() }
    }

    pub(super) fn figures(&self, ranks: usize) -> GateFigures {
        let counts = self.0.counts();
        let count = |count: Count| counts[count as usize];
        let firsts = self.0.first_counts();
        let first = |count: FirstCount| firsts[count as usize];
        let rules = self.0.tallies().into_iter().take(MOST_RULES).map(|(name, tally)| GateRule {
            name: name.into(),
            admitted: tally.admitted,
            dropped: tally.dropped,
            reset: tally.reset,
            answered: tally.answered,
        });
        GateFigures {
            rung: self.rung(),
            answers: self.0.answers(),
            answered: count(Count::Answered),
            time_wait: count(Count::TimeWait),
            first: vec![
                ("of_class", count(Count::Made)),
                ("unjudged", count(Count::MadeUnjudged)),
                ("no_socket", count(Count::MadePublic)),
                ("failed", count(Count::NotMade)),
                ("full_dropped", count(Count::FullDropped)),
                ("full_reset", count(Count::FullReset)),
                ("paced", count(Count::Paced)),
                ("of_other_server", count(Count::MadeOther)),
                ("turned_away", count(Count::TurnedAway)),
            ],
            classes: Vec::new(),
            judges_requests: self.judges_requests(),
            requests: vec![
                ("passed", first(FirstCount::Passed)),
                ("charged", first(FirstCount::Charged)),
                ("dropped", first(FirstCount::Dropped)),
                ("reset", first(FirstCount::Reset)),
                ("answered", first(FirstCount::Answered)),
                ("left_to_server", first(FirstCount::Left)),
                ("left_contended", first(FirstCount::Contended)),
            ],
            behind: vec![
                ("answered_again", first(FirstCount::Repeated)),
                ("acknowledged", first(FirstCount::Acked)),
                ("silent", first(FirstCount::Held)),
                ("reset", first(FirstCount::Cut)),
            ],
            answers_requests: self.answers_requests(),
            served: self.served(),
            behind_served: self.behind_served(),
            damaged: first(FirstCount::Damaged),
            by_rank: self.first_requests(ranks),
            held: vec![("bare", count(Count::Bare)), ("early", count(Count::Later))],
            interfaces: self.0.interfaces().len() as u64,
            syns: vec![
                ("passed", count(Count::Passed)),
                ("repeated", count(Count::Repeated)),
                ("dropped", count(Count::Dropped)),
                ("reset", count(Count::Reset)),
                ("ignored", count(Count::Ignored)),
                ("left_to_server", count(Count::LeftUser)),
                ("left_contended", count(Count::LeftRace)),
            ],
            handshakes: vec![
                ("charged", count(Count::Completed)),
                ("dropped", count(Count::LateDropped)),
                ("reset", count(Count::LateReset)),
            ],
            unread: vec![
                ("options", count(Count::LeftOptions)),
                ("fragment", count(Count::LeftFragment)),
                ("short", count(Count::LeftShort)),
            ],
            rules: rules.collect(),
        }
    }
}

/// The gate that was handed over; `None` if descriptors are missing.
fn handed(text: HandedKernel, descriptors: Vec<OwnedFd>) -> Option<HandedGate> {
    let HandedKernel { layout, steers, slots, maps, links, filters } = text;
    let mut descriptors = descriptors.into_iter();
    let maps: Vec<_> = maps.into_iter().zip(&mut descriptors).collect();
    let links = links.into_iter().zip(&mut descriptors).collect();
    let filters = filters.map(|(number, guard)| {
        let (line, named) = (descriptors.next()?, descriptors.next()?);
        Some(HandedFilters { number, guard, line, named })
    });
    let filters = match filters {
        Some(filters) => Some(filters?),
        None => None,
    };
    Some(HandedGate { layout, steers, slots, maps, links, filters })
}

fn load(charge: Charge, steers: bool) -> Result<Gate, GateError> {
    if steers { Gate::load_steering(charge) } else { Gate::load(charge) }
}
