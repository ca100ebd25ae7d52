//! Counters per site, under a bounded number of names.
//!
//! A site's name gets a [`SiteSlot`] when a configuration comes into force, and keeps it as long as
//! a configuration has the site, so its counters continue through reloads. At most [`MOST_SITES`]
//! names have slots of their own; the answers of all other sites are counted together. So neither a
//! scrape nor a loop's counters grow with the configuration, and no text from a client becomes a
//! label.

use crate::cell::bump;
use crate::classes::RefusalReason;
use crate::histogram::{Bucketed, DurationRow, DurationTotals};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The largest number of names that have counters of their own.
pub const MOST_SITES: usize = 100;

/// The index of a site's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteSlot(u8);

/// The first slot that has a name.
pub(crate) const FIRST_NAMED: usize = 2;

impl SiteSlot {
    /// The slot for requests that belong to no site: malformed ones, and those for unknown hosts.
    /// Its name is `-`.
    pub const NONE: SiteSlot = SiteSlot(0);
    /// The slot for all sites without one of their own. Its name is `other`.
    pub const OTHER: SiteSlot = SiteSlot(1);

    pub(crate) const COUNT: usize = FIRST_NAMED + MOST_SITES;

    pub(crate) fn named(at: usize) -> SiteSlot {
        // MOST_SITES is far below 254
        SiteSlot((FIRST_NAMED + at) as u8)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The counts of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteTotals {
    /// Answers by status class, from 1xx to 5xx.
    pub responses: [u64; 5],
    /// Bytes of bodies that were sent.
    pub body_bytes: u64,
    /// Requests that the policy has refused, by reason.
    pub refused: [u64; RefusalReason::ALL.len()],
    /// The durations of requests, where they are counted.
    pub durations: DurationTotals,
}

impl SiteTotals {
    /// The counts since `base`.
    pub(crate) fn since(&self, base: &SiteTotals) -> SiteTotals {
        let mut news = *self;
        for (new, old) in news.responses.iter_mut().zip(base.responses) {
            *new = new.wrapping_sub(old);
        }
        news.body_bytes = news.body_bytes.wrapping_sub(base.body_bytes);
        for (new, old) in news.refused.iter_mut().zip(base.refused) {
            *new = new.wrapping_sub(old);
        }
        news.durations = news.durations.since(&base.durations);
        news
    }
}

/// The counters of one site, kept by one writer, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct SiteRow {
    responses: [AtomicU64; 5],
    pub(crate) body_bytes: AtomicU64,
    rare: OnceLock<Box<RareSiteRow>>,
}

/// The counters that most requests do not touch, allocated when the first is counted.
#[derive(Debug, Default)]
struct RareSiteRow {
    refused: [AtomicU64; RefusalReason::ALL.len()],
    durations: DurationRow,
}

impl SiteRow {
    #[inline]
    pub(crate) fn responses(&self, status: u16) -> &AtomicU64 {
        let class = usize::from(status / 100).clamp(1, 5);
        &self.responses[class - 1]
    }

    pub(crate) fn refused(&self, reason: RefusalReason) {
        bump(&self.rare.get_or_init(Box::default).refused[reason as usize], 1);
    }

    #[inline]
    pub(crate) fn took(&self, duration: Bucketed) {
        self.rare.get_or_init(Box::default).durations.took(duration);
    }
}

/// The number of rows that are allocated together when the first of them is written to: most
/// servers have few sites, and some have a thousand threads.
const GROUP: usize = 8;

/// The rows of one writer.
#[derive(Debug, Default)]
pub(crate) struct SiteRows([OnceLock<Box<[SiteRow; GROUP]>>; SiteSlot::COUNT.div_ceil(GROUP)]);

impl SiteRows {
    #[inline]
    pub(crate) fn row(&self, slot: SiteSlot) -> &SiteRow {
        let group = &self.0[slot.index() / GROUP];
        &group.get_or_init(Box::default)[slot.index() % GROUP]
    }

    pub(crate) fn add_to(&self, totals: &mut [SiteTotals]) {
        for (group, totals) in self.0.iter().zip(totals.chunks_mut(GROUP)) {
            let Some(rows) = group.get() else { continue };
            for (row, total) in rows.iter().zip(totals) {
                for (sum, cell) in total.responses.iter_mut().zip(&row.responses) {
                    *sum += cell.load(Relaxed);
                }
                total.body_bytes += row.body_bytes.load(Relaxed);
                let Some(rare) = row.rare.get() else { continue };
                for (sum, cell) in total.refused.iter_mut().zip(&rare.refused) {
                    *sum += cell.load(Relaxed);
                }
                rare.durations.add_to(&mut total.durations);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Local, SiteNames, Totals};

    fn row(names: &SiteNames, counted: &Totals, name: &str) -> Option<SiteTotals> {
        let rows = names.rows(counted);
        assert!(rows.len() <= MOST_SITES + 2);
        rows.into_iter().find(|row| row.0 == name).map(|row| row.1)
    }

    #[test]
    fn a_site_keeps_its_counters_through_reloads() {
        let (one, two) = (Local::default(), Local::default());
        let mut names = SiteNames::default();
        let before = names.assign(&["shop", "blog"], &Totals::default());
        one.answered(before[0], 200);
        one.sent(before[0], None, 10, None);
        two.answered(before[0], 404);
        two.answered(before[1], 301);
        let counted = Totals::of([&one, &two]);
        let after = names.assign(&["wiki", "shop", "other"], &counted);
        assert_eq!(after[2], SiteSlot::OTHER);
        assert_eq!(after[1], before[0]);
        assert!(!before.contains(&after[0]));
        one.answered(after[1], 999);
        let counted = Totals::of([&one, &two]);
        let shop =
            SiteTotals { responses: [0, 1, 0, 1, 1], body_bytes: 10, ..SiteTotals::default() };
        assert_eq!(row(&names, &counted, "shop"), Some(shop));
        assert_eq!(row(&names, &counted, "blog").unwrap().responses, [0, 0, 1, 0, 0]);
        assert_eq!(row(&names, &counted, "wiki"), Some(SiteTotals::default()));
    }

    #[test]
    fn the_hundred_and_first_site_is_other() {
        let local = Local::default();
        let mut names = SiteNames::default();
        let many: Vec<String> = (0..MOST_SITES + 2).map(|n| format!("site{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let slots = names.assign(&many, &Totals::default());
        assert_eq!(slots[MOST_SITES..], [SiteSlot::OTHER, SiteSlot::OTHER]);
        slots.iter().for_each(|slot| local.answered(*slot, 200));
        local.answered(SiteSlot::NONE, 400);
        let counted = Totals::of([&local]);
        assert_eq!(row(&names, &counted, "site99").unwrap().responses, [0, 1, 0, 0, 0]);
        assert_eq!(row(&names, &counted, "site100"), None);
        assert_eq!(row(&names, &counted, "other").unwrap().responses, [0, 2, 0, 0, 0]);
        assert_eq!(row(&names, &counted, "-").unwrap().responses, [0, 0, 0, 1, 0]);
    }

    #[test]
    fn a_name_takes_the_place_of_one_that_is_gone_and_begins_at_0() {
        let local = Local::default();
        let mut names = SiteNames::default();
        let many: Vec<String> = (0..MOST_SITES).map(|n| format!("site{n}")).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        let before = names.assign(&many, &Totals::default());
        local.answered(before[7], 200);
        many[7] = "new";
        let after = names.assign(&many, &Totals::of([&local]));
        assert_eq!(before, after);
        local.answered(after[7], 200);
        let counted = Totals::of([&local]);
        assert_eq!(row(&names, &counted, "new").unwrap().responses, [0, 1, 0, 0, 0]);
        assert_eq!(row(&names, &counted, "site7"), None);
    }

    #[test]
    fn rows_share_no_cache_line() {
        assert_eq!((size_of::<SiteRow>(), align_of::<SiteRow>()), (64, 64));
        assert_eq!(align_of::<Local>(), 128);
    }
}
