//! What a test and the handlers of its engine share, and a running engine with them.

use super::client::Client;
use super::handler::{Mode, ToyHandler};
use crate::harness::{Core, Setup, side_by_side, start_core, variants};
use forebay_conn::Settled;
use forebay_engine::control::Ended;
use std::collections::{BTreeMap, HashSet};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

/// What has become of requests.
#[derive(Default)]
pub(super) struct Kit {
    issued: AtomicU32,
    settled: Mutex<BTreeMap<u32, Vec<Settled>>>,
    /// The paths of answers, in the order in which they were written.
    pub(super) answered: Mutex<Vec<String>>,
    /// The number of log lines that were begun, and of those that were ended.
    pub(super) begun: AtomicU32,
    pub(super) logged: AtomicU32,
    /// The most bytes that a protocol has held for an upstream, or left for its client.
    pub(super) most_held: AtomicU32,
    barriers: Mutex<Barriers>,
    changed: Condvar,
}

/// The barriers at which jobs hang, each at its own.
#[derive(Default)]
struct Barriers {
    open: HashSet<String>,
    all_open: bool,
    came: Vec<String>,
}

impl Kit {
    /// Issues a number for a ticket.
    pub(super) fn issue(&self) -> u32 {
        self.issued.fetch_add(1, Relaxed) + 1
    }

    pub(super) fn settle(&self, ticket: u32, end: Settled) {
        self.settled.lock().unwrap().entry(ticket).or_default().push(end);
        self.changed.notify_all();
    }

    /// The number of requests that were judged.
    pub(super) fn issued(&self) -> usize {
        self.issued.load(Relaxed) as usize
    }

    /// Waits until this many requests ended like this.
    pub(super) fn wait_settled(&self, wanted: Settled, count: usize) {
        loop {
            let settled = self.settled.lock().unwrap();
            if settled.values().flatten().filter(|end| **end == wanted).count() >= count {
                return;
            }
            drop(settled);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Waits at this barrier.
    pub(super) fn pass(&self, name: &str) {
        let mut barriers = self.barriers.lock().unwrap();
        barriers.came.push(name.to_owned());
        self.changed.notify_all();
        let shut = |barriers: &mut Barriers| !barriers.all_open && !barriers.open.contains(name);
        drop(self.changed.wait_while(barriers, shut).unwrap());
    }

    pub(super) fn open(&self, name: &str) {
        self.barriers.lock().unwrap().open.insert(name.to_owned());
        self.changed.notify_all();
    }

    pub(super) fn open_all(&self) {
        self.barriers.lock().unwrap().all_open = true;
        self.changed.notify_all();
    }

    /// Waits until this many have come to barriers.
    pub(super) fn wait_came(&self, count: usize) {
        let barriers = self.barriers.lock().unwrap();
        drop(self.changed.wait_while(barriers, |barriers| barriers.came.len() < count).unwrap());
    }

    pub(super) fn came(&self) -> Vec<String> {
        self.barriers.lock().unwrap().came.clone()
    }

    /// Notes how many bytes are held in one place.
    pub(super) fn holds(&self, bytes: usize) {
        self.most_held.fetch_max(bytes as u32, Relaxed);
    }

    /// Checks that each request that was judged was settled once, and each log line that was begun
    /// was ended.
    fn check(&self) {
        let settled = self.settled.lock().unwrap();
        let twice: Vec<_> = settled.iter().filter(|(_, ends)| ends.len() != 1).collect();
        assert!(twice.is_empty(), "settled more than once: {twice:?}");
        let issued = self.issued.load(Relaxed);
        let lost: Vec<_> = (1..=issued).filter(|ticket| !settled.contains_key(ticket)).collect();
        assert!(lost.is_empty() && settled.len() == issued as usize, "never settled: {lost:?}");
        assert_eq!(self.begun.load(Relaxed), self.logged.load(Relaxed), "log lines");
    }
}

/// A running engine.
pub(super) struct Server {
    core: Core,
    pub(super) kit: Arc<Kit>,
}

impl Deref for Server {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Server {
    pub(super) fn start<M: Mode>(engine: &str, setup: Setup) -> Server {
        let kit = Arc::<Kit>::default();
        let (shared, trusts) = (Arc::clone(&kit), setup.trusts);
        let core = start_core(engine, setup, move || ToyHandler::<M> {
            kit: Arc::clone(&shared),
            trusts,
            mode: PhantomData,
        });
        Server { core, kit }
    }

    /// A new connection, veiled or not.
    pub(super) fn client(&self, veiled: bool) -> Client {
        Client::new(self.connect(), veiled)
    }

    /// Drains the engine, and checks what it has counted.
    pub(super) fn stop(self) -> Ended {
        let ended = self.core.stop();
        self.kit.check();
        ended
    }
}

/// Runs a test on every engine, plain and veiled.
pub(super) fn on_each(test: impl Fn(&str, bool) + Sync) {
    let ways = variants().flat_map(|engine| [(engine.clone(), false), (engine, true)]);
    side_by_side(ways, |(engine, veiled)| test(&engine, veiled));
}

/// Runs a test on all of them at once, for a test that only waits.
pub(super) fn at_once_on_each(test: impl Fn(&str, bool) + Sync) {
    std::thread::scope(|scope| {
        for (engine, veiled) in variants().flat_map(|it| [(it.clone(), false), (it, true)]) {
            let test = &test;
            scope.spawn(move || test(&engine, veiled));
        }
    });
}

/// Starts an engine that speaks the toy protocol.
pub(super) fn start(engine: &str, veiled: bool, change: impl FnOnce(&mut Setup)) -> Server {
    let mut setup = Setup::default();
    change(&mut setup);
    match veiled {
        true => Server::start::<super::handler::VeiledToy>(engine, setup),
        false => Server::start::<super::handler::PlainToy>(engine, setup),
    }
}

/// Whether jobs of one connection run beside one another on this engine.
pub(super) fn has_helpers(engine: &str) -> bool {
    !["threads", "pool"].iter().any(|name| engine.starts_with(name))
}
