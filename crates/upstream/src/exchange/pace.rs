//! The pace of a request's body, as far as the client decides it.

use std::time::Duration;

/// How many bytes give a body one second more.
const BYTES_PER_SECOND: u64 = 500;

/// The pace of a body since an upstream was asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UploadPace {
    /// Since when the client is to blame for the pace.
    since_ms: u64,
    /// The number of bytes that have come.
    bytes: u64,
    /// Why the client is not to blame now.
    excuse: Option<UploadExcuse>,
}

/// Why a client is not to blame if nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadExcuse {
    /// The client waits for `100 Continue`.
    Unasked,
    /// The upstream does not take what has come.
    Untaken,
}

impl UploadPace {
    /// The pace of a body of which nothing has come. `is_unasked` says that the client waits for
    /// `100 Continue`.
    pub(super) fn new(is_unasked: bool) -> UploadPace {
        let excuse = is_unasked.then_some(UploadExcuse::Unasked);
        UploadPace { excuse, ..UploadPace::default() }
    }

    /// Starts anew for an attempt at an upstream.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
        // only the upstream before did not take it
        self.excuse = self.excuse.filter(|excuse| *excuse == UploadExcuse::Unasked);
    }

    /// Notes that more of the body has come.
    pub(super) fn came(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.excuse == Some(UploadExcuse::Unasked) {
            // a client need not wait for `100 Continue`
            self.excuse = Some(UploadExcuse::Untaken);
        }
    }

    /// Notes that the upstream has asked for the body.
    pub(super) fn asked(&mut self, now_ms: u64) {
        self.end(UploadExcuse::Unasked, now_ms);
    }

    /// Notes that the upstream takes no more for now.
    pub(super) fn blocked(&mut self) {
        self.excuse = self.excuse.or(Some(UploadExcuse::Untaken));
    }

    /// Notes that the upstream has taken some.
    pub(super) fn taken(&mut self, now_ms: u64) {
        self.end(UploadExcuse::Untaken, now_ms);
    }

    fn end(&mut self, excuse: UploadExcuse, now_ms: u64) {
        if self.excuse == Some(excuse) {
            (self.since_ms, self.excuse) = (now_ms, None);
        }
    }

    /// Whether the client is to blame if nothing comes.
    pub(super) fn is_up_to_client(&self) -> bool {
        self.excuse.is_none()
    }

    /// The deadline of the body, which has `time`, and more for each byte that has come.
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

    /// Whether the client is to blame from now on, and when it is late.
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
        // a client that does not wait for `100 Continue`
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
