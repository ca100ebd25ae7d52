//! Remembered outcomes of verifications: a password is hashed once, not for each request.
//!
//! Credentials are kept as a keyed hash only. A loop looks in its own table first, which needs no
//! lock, and then in the table of all loops, which helpers fill.

use blake2::Blake2sMac256;
use blake2::digest::{FixedOutput, KeyInit, Update};
use quick_cache::sync::Cache;
use subtle::ConstantTimeEq;

/// The time for which credentials pass without being verified again. A change of the users ends it
/// at once.
const PASS_MS: u64 = 300_000;
/// The time for which credentials fail without being verified again.
const FAIL_MS: u64 = 10_000;
/// The number of verdicts kept for all loops.
const MOST_SHARED: usize = 8192;
/// Sets of a loop's own table; a power of two.
const SETS: usize = 64;
/// Places in each set.
const WAYS: usize = 4;

/// Credentials as they are remembered: a hash of them and of their realm, by a key that only this
/// process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag([u8; 32]);

impl Tag {
    /// The set in which this tag is kept. A client cannot choose the set, as it does not know the
    /// key.
    fn set(&self) -> usize {
        usize::from(self.0[0]) % SETS
    }

    /// Whether the tags are equal, in constant time.
    #[inline]
    fn is(&self, other: &Tag) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Makes [`Tag`]s.
#[derive(Clone)]
pub(crate) struct Tagger(Blake2sMac256);

impl Tagger {
    /// A tagger with a new random key.
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub(crate) fn new() -> Result<Tagger, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Tagger(Blake2sMac256::new(&key.into())))
    }

    #[inline]
    pub(crate) fn tag(&self, realm: u32, credentials: &[u8]) -> Tag {
        let mut mac = self.0.clone();
        mac.update(&realm.to_le_bytes());
        mac.update(credentials);
        Tag(mac.finalize_fixed().into())
    }
}

impl std::fmt::Debug for Tagger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tagger")
    }
}

/// The outcome of verifying credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CredentialVerdict {
    pub(crate) passes: bool,
    /// The generation of the realm's users against which the credentials were verified.
    pub(crate) generation: u64,
    /// The end of the verdict's life, in the loops' milliseconds.
    until_ms: u64,
}

impl CredentialVerdict {
    pub(crate) fn new(passes: bool, generation: u64, now_ms: u64) -> CredentialVerdict {
        let lasts_ms = if passes { PASS_MS } else { FAIL_MS };
        CredentialVerdict { passes, generation, until_ms: now_ms.saturating_add(lasts_ms) }
    }

    #[inline]
    fn holds(&self, generation: u64, now_ms: u64) -> bool {
        self.generation == generation && now_ms < self.until_ms
    }
}

/// The table of all loops.
pub(crate) struct SharedVerdicts(Cache<Tag, CredentialVerdict>);

impl SharedVerdicts {
    pub(crate) fn new() -> SharedVerdicts {
        SharedVerdicts(Cache::new(MOST_SHARED))
    }

    pub(crate) fn get(&self, tag: &Tag, generation: u64, now_ms: u64) -> Option<CredentialVerdict> {
        self.0.get(tag).filter(|verdict| verdict.holds(generation, now_ms))
    }

    pub(crate) fn put(&self, tag: Tag, verdict: CredentialVerdict) {
        self.0.insert(tag, verdict);
    }
}

/// One loop's own table of verdicts.
#[derive(Default)]
pub(crate) struct Own {
    /// Takes no memory before its first use.
    places: Vec<Option<(Tag, CredentialVerdict)>>,
    /// Whether the credentials of the request that is being answered have passed every realm that
    /// asked for them, and at least one has asked.
    pub(crate) has_passed: bool,
}

impl Own {
    #[inline]
    pub(crate) fn get(&self, tag: &Tag, generation: u64, now_ms: u64) -> Option<CredentialVerdict> {
        let set = self.places.get(tag.set() * WAYS..)?.get(..WAYS)?;
        let (_, verdict) = set.iter().flatten().find(|(held, _)| held.is(tag))?;
        verdict.holds(generation, now_ms).then_some(*verdict)
    }

    pub(crate) fn put(&mut self, tag: Tag, verdict: CredentialVerdict) {
        if self.places.is_empty() {
            self.places.resize(SETS * WAYS, None);
        }
        let first = tag.set() * WAYS;
        let Some(set) = self.places.get_mut(first..first + WAYS) else { return };
        let is_it =
            |slot: &Option<(Tag, CredentialVerdict)>| slot.is_some_and(|(held, _)| held.is(&tag));
        // what fails or ends first is removed
        let worth =
            |slot: &Option<(Tag, CredentialVerdict)>| slot.map(|(_, at)| (at.passes, at.until_ms));
        let at = set.iter().position(is_it);
        let at = at.or_else(|| (0..WAYS).min_by_key(|&at| worth(&set[at])));
        if let Some(slot) = at.and_then(|at| set.get_mut(at)) {
            *slot = Some((tag, verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tag_tells_realms_and_credentials_apart() {
        let (tagger, other) = (Tagger::new().unwrap(), Tagger::new().unwrap());
        let tag = tagger.tag(1, b"YTpi");
        assert!(tag.is(&tagger.tag(1, b"YTpi")));
        for another in [tagger.tag(2, b"YTpi"), tagger.tag(1, b"YTpj"), other.tag(1, b"YTpi")] {
            assert!(!tag.is(&another));
        }
    }

    #[test]
    fn a_verdict_holds_for_a_while_and_for_one_generation() {
        let tag = Tagger::new().unwrap().tag(0, b"x");
        let (mut own, shared) = (Own::default(), SharedVerdicts::new());
        assert_eq!(own.get(&tag, 0, 0), None);
        for (passes, lasts_ms) in [(true, PASS_MS), (false, FAIL_MS)] {
            let verdict = CredentialVerdict::new(passes, 4, 1000);
            own.put(tag, verdict);
            shared.put(tag, verdict);
            let last_ms = 1000 + lasts_ms - 1;
            for get in [&|g, ms| own.get(&tag, g, ms), &|g, ms| shared.get(&tag, g, ms)]
                as [&dyn Fn(u64, u64) -> Option<CredentialVerdict>; 2]
            {
                assert_eq!(get(4, last_ms), Some(verdict));
                assert_eq!(get(4, last_ms + 1), None);
                assert_eq!(get(6, 1000), None);
            }
        }
    }

    #[test]
    fn failures_make_room_before_those_who_pass() {
        let tagger = Tagger::new().unwrap();
        let mut own = Own::default();
        let passing: Vec<_> = (0..20u8).map(|n| tagger.tag(0, &[n])).collect();
        passing.iter().for_each(|tag| own.put(*tag, CredentialVerdict::new(true, 0, 0)));
        let kept = |own: &Own| passing.iter().filter(|tag| own.get(tag, 0, 0).is_some()).count();
        let before = kept(&own);
        for n in 0..50_000u32 {
            let tag = tagger.tag(1, &n.to_le_bytes());
            own.put(tag, CredentialVerdict::new(false, 0, 0));
        }
        assert!(before >= 15, "{before}");
        assert!(kept(&own) >= before.saturating_sub(1), "{}", kept(&own));
        assert_eq!(own.places.len(), SETS * WAYS);
    }

    proptest! {
        #[test]
        fn never_the_verdict_of_another(names in prop::collection::vec(any::<u8>(), 1..300)) {
            let tagger = Tagger::new().unwrap();
            let mut own = Own::default();
            for name in &names {
                own.put(tagger.tag(0, &[*name]), CredentialVerdict::new(name % 2 == 0, u64::from(*name), 0));
            }
            for name in 0..=255u8 {
                if let Some(verdict) = own.get(&tagger.tag(0, &[name]), u64::from(name), 0) {
                    prop_assert!(names.contains(&name));
                    prop_assert_eq!(verdict.passes, name % 2 == 0);
                }
            }
        }
    }
}
