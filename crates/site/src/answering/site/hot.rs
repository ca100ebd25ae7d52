//! An answer of the cache that is asked for again and again, for a keeper that gives it in this server's place.
//!
//! The keeper is called before the cache drops an answer because its files have changed, for lack of
//! memory, or with the content: see [`HotAnswer::keep`]. [`HotAnswer::fresh_until_ms`] says when the
//! cache would check the files again. So an answer is never given for longer than the cache itself would
//! give it.

use super::{Site, shape};
use crate::answering::fixed::{FixedAnswer, NotFixed, fixed_answer};
use crate::answering::site_request::SiteRequest;
use crate::cache::entry::{Entry, EntryKind, LetGo};
use crate::cache::front::SlotRef;
use crate::content::Content;
use std::fmt;
use std::sync::{Arc, Weak};

/// The slots in which the answer to the last request was found.
#[derive(Clone, Copy)]
pub(crate) struct HotSlots {
    pub(crate) site: u32,
    pub(crate) asked: SlotRef,
    /// The slot to which an alias led.
    pub(crate) inner: Option<SlotRef>,
}

/// An answer that is asked for again and again.
#[derive(Clone)]
pub struct HotAnswer {
    content: Weak<Content>,
    site: u32,
    entry: Arc<Entry>,
    inner: Option<Arc<Entry>>,
}

impl fmt::Debug for HotAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotAnswer").field("key", &self.entry.key).finish_non_exhaustive()
    }
}

impl PartialEq for HotAnswer {
    /// Whether the answers are made of the same entries.
    fn eq(&self, other: &HotAnswer) -> bool {
        let inner = match (&self.inner, &other.inner) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        inner && Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl HotAnswer {
    /// The site of the answer, by its place in the settings.
    pub fn site(&self) -> u32 {
        self.site
    }

    /// The bytes of the answer. A form has at most `most_bytes` in head and body, including `added_bytes`
    /// for the fields missing in the head.
    ///
    /// # Errors
    /// Why the answer is not the same for every client: [`NotFixed`].
    pub fn fixed(&self, added_bytes: usize, most_bytes: usize) -> Result<FixedAnswer, NotFixed> {
        let content = self.content.upgrade().ok_or(NotFixed::Gone)?;
        let vhost = content.vhosts.get(self.site as usize).ok_or(NotFixed::Gone)?;
        fixed_answer(vhost, &self.entry, self.inner.as_deref(), (added_bytes, most_bytes))
    }

    /// The time until which the cache gives the answer without a check of its files, in milliseconds of
    /// the loops' clock; 0 if it does not any more.
    pub fn fresh_until_ms(&self) -> u64 {
        self.entries().map(Entry::fresh_until_ms).min().unwrap_or(0)
    }

    /// Has `let_go` called before the cache drops the answer, from now on. If the cache has done so
    /// before, or does so at this moment, [`fresh_until_ms`](HotAnswer::fresh_until_ms) is 0 afterwards.
    pub fn keep(&self, let_go: &LetGo) {
        self.entries().for_each(|entry| entry.keep_elsewhere(let_go));
    }

    /// Ends the calls of this `let_go`, because its keeper does not keep the answer any more.
    pub fn release(&self, let_go: &LetGo) {
        self.entries().for_each(|entry| entry.release(let_go));
    }

    /// Notes in the cache that the answer is in use.
    pub fn touch(&self) {
        if let Some(content) = self.content.upgrade() {
            self.entries().for_each(|entry| content.store.touch(entry.key.asked()));
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&*self.entry).chain(self.inner.as_deref())
    }
}

impl Site {
    /// Sets whether answers that are asked for again and again are noted. Default: no.
    pub fn note_hot(&mut self, is_noted: bool) {
        self.notes_hot = is_noted;
    }

    /// The answer that the last request got from this loop's own table, if it is asked for again and
    /// again. Such an answer is only returned now and then.
    #[inline]
    pub fn take_hot(&mut self) -> Option<HotAnswer> {
        let slots = self.hot.take()?;
        self.hot_answer(slots)
    }

    /// Notes an entry of the shared cache that has just answered and is asked for again and again; also
    /// where a thread keeps no table of its own from one connection to the next.
    #[cold]
    pub(super) fn note_shared(&mut self, entry: &Entry, asked: &SiteRequest<'_, '_>) {
        let SiteRequest { site, request, .. } = *asked;
        let raw = request.head.path;
        let asked = self.front.find(self.front.front_key(site, raw), site, raw, self.now_ms);
        let Some(asked) = asked.map(|hit| hit.ticket) else { return };
        let EntryKind::Alias(alias) = &entry.what else {
            self.hot = Some(HotSlots { site, asked, inner: None });
            return;
        };
        let mut path = Vec::new();
        alias.push_key(|| shape(request.head), &mut path);
        let inner = self.front.find(self.front.front_key(site, &path), site, &path, self.now_ms);
        let inner = inner.map(|hit| hit.ticket);
        self.hot = inner.map(|inner| HotSlots { site, asked, inner: Some(inner) });
    }

    #[cold]
    fn hot_answer(&self, slots: HotSlots) -> Option<HotAnswer> {
        let entry = |slot| self.front.entry(slot).cloned();
        let inner = match slots.inner {
            Some(slot) => Some(entry(slot)?),
            None => None,
        };
        let content = Arc::downgrade(&self.content);
        Some(HotAnswer { content, site: slots.site, entry: entry(slots.asked)?, inner })
    }
}
