//! How fast the body of a request comes, as far as that is up to its client.

use std::time::Duration;

/// So many bytes give a body one second more.
const BYTES_PER_SECOND: u64 = 500;

/// How fast a body comes since an upstream is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UploadPace {
    /// Since when its client is waited for.
    since_ms: u64,
    /// What has come of it, in bytes.
    bytes: u64,
    /// Why nothing may come.
    excuse: Option<UploadExcuse>,
}

/// Why a client is not to blame if nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadExcuse {
    /// It waits to be asked for the body.
    Unasked,
    /// The upstream does not take what has come.
    Untaken,
}

impl UploadPace {
    /// Of a body of which nothing has come. `is_unasked` if its client waits to be asked for it.
    pub(super) fn new(is_unasked: bool) -> UploadPace {
        let excuse = is_unasked.then_some(UploadExcuse::Unasked);
        UploadPace { excuse, ..UploadPace::default() }
    }

    /// An upstream is asked from now on.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
        // the one before did not take it
        self.excuse = self.excuse.filter(|excuse| *excuse == UploadExcuse::Unasked);
    }

    /// More of it has come.
    pub(super) fn came(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.excuse == Some(UploadExcuse::Unasked) {
            // a client need not wait for that
            self.excuse = Some(UploadExcuse::Untaken);
        }
    }

    /// The upstream has asked for it.
    pub(super) fn asked(&mut self, now_ms: u64) {
        self.end(UploadExcuse::Unasked, now_ms);
    }

    /// The upstream takes no more for now.
    pub(super) fn blocked(&mut self) {
        self.excuse = self.excuse.or(Some(UploadExcuse::Untaken));
    }

    /// The upstream has taken some.
    pub(super) fn taken(&mut self, now_ms: u64) {
        self.end(UploadExcuse::Untaken, now_ms);
    }

    fn end(&mut self, excuse: UploadExcuse, now_ms: u64) {
        if self.excuse == Some(excuse) {
            (self.since_ms, self.excuse) = (now_ms, None);
        }
    }

    /// Whether its client is to blame if nothing comes.
    pub(super) fn is_up_to_client(&self) -> bool {
        self.excuse.is_none()
    }

    /// Until when it is in time, which has so much and more for what has come.
    pub(super) fn until_ms(&self, time: Duration) -> u64 {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let earned_ms = self.bytes.saturating_mul(1000 / BYTES_PER_SECOND);
        self.since_ms.saturating_add(time_ms).saturating_add(earned_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(20);

    /// Whether its client is to blame from now on, and when it is late.
    fn of(pace: &UploadPace) -> (bool, u64) {
        (pace.is_up_to_client(), pace.until_ms(TIME))
    }

    #[test]
    fn what_comes_gives_more_time() {
        let mut pace = UploadPace::new(false);
        pace.begin(1000);
        assert_eq!(of(&pace), (true, 21_000));
        pace.came(500);
        pace.came(1);
        assert_eq!(of(&pace), (true, 22_002));
        pace.came(u64::MAX);
        assert_eq!(pace.until_ms(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_client_that_waits_to_be_asked_is_not_late() {
        let mut pace = UploadPace::new(true);
        pace.begin(0);
        // the head of the request
        pace.blocked();
        pace.taken(10);
        assert!(!pace.is_up_to_client());
        pace.asked(30_000);
        assert_eq!(of(&pace), (true, 50_000));
        // one that does not wait
        let mut pace = UploadPace::new(true);
        pace.begin(0);
        pace.came(500);
        assert!(!pace.is_up_to_client());
        pace.taken(30_000);
        assert_eq!(of(&pace), (true, 51_000));
        pace.asked(40_000);
        assert_eq!(of(&pace), (true, 51_000));
    }

    #[test]
    fn a_client_whose_body_is_not_taken_is_not_late() {
        let mut pace = UploadPace::new(false);
        pace.begin(0);
        pace.came(500);
        pace.blocked();
        pace.came(500);
        assert!(!pace.is_up_to_client());
        pace.taken(90_000);
        assert_eq!(of(&pace), (true, 112_000));
        pace.taken(91_000);
        assert_eq!(of(&pace), (true, 112_000));
        // another upstream is asked
        pace.blocked();
        pace.begin(100_000);
        assert_eq!(of(&pace), (true, 122_000));
    }
}
