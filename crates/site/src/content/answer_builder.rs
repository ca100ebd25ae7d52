//! Builders of answers for the cache, which notice what changes meanwhile.

use super::Content;
use crate::cache::entry::{DEAD, Entry};
use crate::cache::graph::Registration;
use crate::cache::watch::{PathLook, Unread, Untold};
use crate::vhost::VirtualHost;
use crate::vhost::root::Root;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An answer in the making.
pub(crate) struct AnswerBuilder<'c> {
    content: &'c Content,
    vhost: &'c VirtualHost,
    /// The present directory of each mount.
    roots: Vec<Arc<Root>>,
    ticket: Arc<Registration>,
    /// Whether every change is reported.
    is_told: bool,
}

impl Content {
    /// Begins to make an answer for a site; changes from now on are noticed.
    pub(crate) fn builder(&self, site: u32) -> Option<AnswerBuilder<'_>> {
        let vhost = self.vhosts.get(site as usize)?;
        let ticket = Arc::default();
        let roots = vhost.mounts.iter().map(|mount| mount.place.current()).collect();
        let is_kept = self.store.is_on() && !self.is_retired.load(Relaxed);
        let is_told = self.watcher.is_some() && is_kept;
        Some(AnswerBuilder { content: self, vhost, roots, ticket, is_told })
    }
}

impl AnswerBuilder<'_> {
    /// The directory that has a path of the site, and the path within it.
    pub(crate) fn locate<'p>(&'p self, path: &'p [u8]) -> Option<(&'p Root, &'p [u8])> {
        let (mount, inside) = self.vhost.locate(path)?;
        Some((&**self.roots.get(mount)?, inside))
    }

    /// Notes that the way to `path`, one of the site, matters for the answer. The findings on it
    /// hold as long as the answer. `with_forms` asks for the forms of the file, too.
    pub(crate) fn follow(&mut self, path: &[u8], with_forms: bool) -> PathLook {
        let watcher = self.content.watcher.as_ref().filter(|_| self.is_told);
        // One change that is not reported is enough to make the answer expire.
        let Some(watcher) = watcher else { return PathLook::default() };
        let Some((root, inside)) = self.locate(path) else { return PathLook::default() };
        let untold = match watcher.follow(root, inside, &self.ticket, with_forms) {
            Ok(way) => return way,
            Err(untold) => untold,
        };
        self.is_told = false;
        if let Untold::Notice(notice) = untold {
            self.content.say_once(notice);
        }
        PathLook::default()
    }

    /// Reads a directory that was seen on the way to `path`.
    pub(crate) fn read(&self, path: &[u8], unread: &Unread) {
        if let (Some(watcher), Some((root, _))) = (&self.content.watcher, self.locate(path)) {
            watcher.read(root, unread);
        }
    }

    /// Whether every change on the ways followed is reported.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Puts the answer into the cache, fresh until `until_ms`, unless something changed meanwhile
    /// or `until_ms` is [`DEAD`].
    pub(crate) fn settle(self, entry: &Arc<Entry>, until_ms: u64, is_new: bool) {
        let graph = self.content.watcher.as_ref().map(|watcher| watcher.graph());
        let mut mounts = self.roots.iter().zip(&self.vhost.mounts);
        let is_current = mounts.all(|(root, mount)| Arc::ptr_eq(root, &mount.place.current()));
        let is_right = !self.ticket.is_void() && is_current && until_ms != DEAD;
        let is_kept = self.content.store.is_on() && !self.content.is_retired.load(Relaxed);
        if !is_kept || !is_right {
            entry.kill();
            return;
        }
        self.ticket.stand_for(entry);
        entry.freshen(until_ms);
        if is_new {
            self.content.store.insert(Arc::clone(entry));
        }
        drop(graph);
    }
}

impl Drop for AnswerBuilder<'_> {
    fn drop(&mut self) {
        // A settled ticket lives on with its entry.
        if !self.ticket.is_settled() {
            self.ticket.give_up();
        }
    }
}
