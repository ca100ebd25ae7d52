//! The graph that finds the cached answers a change in a watched directory concerns.
//!
//! Directories are nodes. An answer is registered in the directory where its file lies, under the
//! file's name, and wherever a symbolic link led on the way. A directory knows under which names
//! its watched subdirectories lie, so a change of one name also reaches everything below it.

use crate::bodies::forms::{self, ExpectedForms, Forms};
use crate::cache::entry::Entry;
use forebay_sys::watch::WatchId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// The stand-in for an answer before its files are looked at. The job that makes the answer
/// registers it under a name first and looks then, so that no change falls between.
///
/// Both fields are written under the lock of the [`Graph`] only.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    is_void: Arc<AtomicBool>,
    entry: OnceLock<Weak<Entry>>,
}

impl Registration {
    /// Whether something changed since the registration was made.
    pub(crate) fn is_void(&self) -> bool {
        self.is_void.load(Relaxed)
    }

    /// Makes the registration void, as no request waits for it any more.
    pub(crate) fn give_up(&self) {
        self.is_void.store(true, Relaxed);
    }

    /// Whether the registration stands for an answer that is finished.
    pub(crate) fn is_settled(&self) -> bool {
        self.entry.get().is_some()
    }

    /// Makes changes concern `entry` from now on.
    pub(crate) fn stand_for(&self, entry: &Arc<Entry>) {
        // Set once: a ticket is used for one answer.
        if self.entry.set(Arc::downgrade(entry)).is_ok() {
            entry.is_registered_by(&self.is_void);
        }
    }

    /// Whether the registration may go: it is void, or its answer is gone.
    fn is_spent(&self) -> bool {
        let is_gone = |entry: &Weak<Entry>| entry.upgrade().is_none_or(|entry| entry.is_dead());
        self.is_void() || self.entry.get().is_some_and(is_gone)
    }
}

/// All watched directories, and what is registered in them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<WatchId, Node>,
    /// The roots of sites, by the root's number.
    roots: HashMap<u64, WatchId>,
    /// Names outside of the roots that decide where a root's path leads.
    signposts: Signposts,
    /// Registrations since the last sweep, and how many were left then.
    registered: usize,
    left: usize,
}

/// Names by the directory they are in.
pub(crate) type Signposts = HashMap<WatchId, Vec<Vec<u8>>>;

#[derive(Debug, Default)]
struct Node {
    names: HashMap<Box<[u8]>, WatchedName>,
    forms: Forms,
}

#[derive(Debug, Default)]
struct WatchedName {
    tickets: Vec<Arc<Registration>>,
    child: Option<WatchId>,
}

/// The effects of an event.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    /// Answers that may be wrong now.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Whether a root's path may lead elsewhere now.
    pub(crate) roots: bool,
}

impl Graph {
    /// Watched directories.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a watched directory; a known one stays as it is.
    pub(crate) fn add(&mut self, directory: WatchId) {
        self.nodes.entry(directory).or_default();
    }

    pub(crate) fn root(&self, number: u64) -> Option<WatchId> {
        self.roots.get(&number).copied()
    }

    pub(crate) fn set_root(&mut self, number: u64, directory: WatchId) {
        self.add(directory);
        self.roots.insert(number, directory);
    }

    /// Forgets the root with this number, which is no longer served.
    pub(crate) fn forget_root(&mut self, number: u64, struck: &mut Struck) {
        if let Some(directory) = self.roots.remove(&number) {
            self.strike_below(directory, struck);
        }
    }

    /// Adds names that decide where the roots' paths lead, until they are
    /// [replaced](Graph::set_signposts).
    pub(crate) fn add_signposts(
        &mut self,
        directory: WatchId,
        names: impl Iterator<Item = Vec<u8>>,
    ) {
        self.add(directory);
        self.signposts.entry(directory).or_default().extend(names);
    }

    /// Replaces the names that decide where the roots' paths lead.
    pub(crate) fn set_signposts(&mut self, signposts: Signposts) {
        signposts.keys().for_each(|directory| self.add(*directory));
        self.signposts = signposts;
    }

    /// The watched subdirectory `name` of `directory`.
    pub(crate) fn child(&self, directory: WatchId, name: &[u8]) -> Option<WatchId> {
        self.nodes.get(&directory)?.names.get(name)?.child
    }

    /// Registers the ticket: whatever happens to `name` in `directory` voids it from now on.
    /// Returns `false` if the directory is not watched any more.
    pub(crate) fn register(
        &mut self,
        directory: WatchId,
        name: &[u8],
        ticket: &Arc<Registration>,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(&directory) else { return false };
        self.registered += 1;
        match node.names.get_mut(name) {
            Some(at) => at.tickets.push(Arc::clone(ticket)),
            None => {
                let at = WatchedName { tickets: vec![Arc::clone(ticket)], child: None };
                node.names.insert(name.into(), at);
            }
        }
        true
    }

    /// The precompressed forms of `name` that may be in `directory`, besides. From now on a change
    /// of one of them also voids the registrations of its original.
    pub(crate) fn expected(&mut self, directory: WatchId, name: &[u8]) -> ExpectedForms {
        let node = self.nodes.get_mut(&directory);
        node.map_or(ExpectedForms::Any, |node| node.forms.expected(name))
    }

    /// Takes the names in `directory`, read after [`ExpectedForms::ReadFirst`]; `None` if that has
    /// failed.
    pub(crate) fn learn(&mut self, directory: WatchId, names: Option<Vec<Vec<u8>>>) {
        if let Some(node) = self.nodes.get_mut(&directory) {
            node.forms.learn(names);
        }
    }

    pub(crate) fn contains(&self, directory: WatchId) -> bool {
        self.nodes.contains_key(&directory)
    }

    /// Notes that `name` in `directory` is the watched subdirectory `child`: from now on a change
    /// of the name reaches what is below.
    pub(crate) fn descend(&mut self, directory: WatchId, name: &[u8], child: WatchId) {
        self.add(child);
        let names = self.nodes.get_mut(&directory).map(|node| &mut node.names);
        if let Some(at) = names.and_then(|names| names.get_mut(name)) {
            at.child = Some(child);
        }
    }

    /// Removes the ticket from `name`: changes of it reach the answer through the subdirectory now.
    pub(crate) fn release(&mut self, directory: WatchId, name: &[u8], ticket: &Arc<Registration>) {
        let names = self.nodes.get_mut(&directory).map(|node| &mut node.names);
        let Some(at) = names.and_then(|names| names.get_mut(name)) else { return };
        if let Some(last) = at.tickets.iter().rposition(|held| Arc::ptr_eq(held, ticket)) {
            at.tickets.swap_remove(last);
        }
    }

    /// Voids what depends on `name` in `directory`, as something happened to it.
    pub(crate) fn strike_name(&mut self, directory: WatchId, name: &[u8], struck: &mut Struck) {
        let signposts = self.signposts.get(&directory);
        struck.roots |= signposts.is_some_and(|names| names.iter().any(|at| at == name));
        let Some(node) = self.nodes.get_mut(&directory) else { return };
        if let Some(original) = forms::original(name) {
            node.forms.may_be_there(name);
            if let Some(at) = node.names.get_mut(original) {
                void(&std::mem::take(&mut at.tickets), struck);
            }
        }
        let Some(at) = node.names.remove(name) else { return };
        void(&at.tickets, struck);
        if let Some(child) = at.child {
            self.strike_below(child, struck);
        }
    }

    /// Voids what depends on `directory` itself, as something happened to it.
    pub(crate) fn strike_directory(&mut self, directory: WatchId, struck: &mut Struck) {
        struck.roots |= self.roots.values().any(|root| *root == directory);
        struck.roots |= self.signposts.contains_key(&directory);
        self.strike_below(directory, struck);
    }

    /// Forgets `directory`, which is not watched any more, and voids what depends on it.
    pub(crate) fn strike_forgotten(&mut self, directory: WatchId, struck: &mut Struck) {
        self.strike_directory(directory, struck);
        self.nodes.remove(&directory);
        self.roots.retain(|_, root| *root != directory);
        self.signposts.remove(&directory);
    }

    /// Voids everything, as anything may have happened. Returns the directories that were watched.
    pub(crate) fn strike_all(&mut self, struck: &mut Struck) -> Vec<WatchId> {
        struck.roots = true;
        for at in self.nodes.values().flat_map(|node| node.names.values()) {
            void(&at.tickets, struck);
        }
        let watched = self.nodes.keys().copied().collect();
        *self = Graph::default();
        watched
    }

    fn strike_below(&mut self, directory: WatchId, struck: &mut Struck) {
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            let Some(node) = self.nodes.get_mut(&directory) else { continue };
            // Taking the names out also ends any circle.
            for at in std::mem::take(&mut node.names).into_values() {
                void(&at.tickets, struck);
                open.extend(at.child);
            }
        }
    }

    /// The number of registrations that the last sweep has left.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Whether enough registrations came for a sweep to be worth its time.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.registered > self.left.max(4096)
    }

    /// Forgets registrations of answers that are gone. Returns directories that need not be
    /// watched any more; they are forgotten too.
    pub(crate) fn sweep(&mut self) -> Vec<WatchId> {
        let mut unused = Vec::new();
        loop {
            let empty = self.sweep_once();
            if empty.is_empty() {
                break;
            }
            empty.iter().for_each(|directory| drop(self.nodes.remove(directory)));
            unused.extend(empty);
        }
        let names = self.nodes.values().flat_map(|node| node.names.values());
        self.left = names.map(|at| at.tickets.len()).sum();
        self.registered = 0;
        unused
    }

    /// One pass; an emptied directory is noticed by its parent in the next.
    fn sweep_once(&mut self) -> Vec<WatchId> {
        let known: HashSet<WatchId> = self.nodes.keys().copied().collect();
        for node in self.nodes.values_mut() {
            node.names.retain(|_, at| {
                at.tickets.retain(|ticket| !ticket.is_spent());
                at.child = at.child.filter(|child| known.contains(child));
                at.child.is_some() || !at.tickets.is_empty()
            });
        }
        let is_root = |at: &WatchId| self.roots.values().any(|root| root == at);
        let is_kept = |at: &WatchId| self.signposts.contains_key(at) || is_root(at);
        let empty = self.nodes.iter().filter(|(_, node)| node.names.is_empty());
        empty.map(|(at, _)| *at).filter(|at| !is_kept(at)).collect()
    }
}

fn void(tickets: &[Arc<Registration>], struck: &mut Struck) {
    for ticket in tickets {
        ticket.is_void.store(true, Relaxed);
        struck.entries.extend(ticket.entry.get().and_then(Weak::upgrade));
    }
}
