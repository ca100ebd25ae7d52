//! The last requests that were refused, or that no application has answered, for `forebay why`.
//!
//! In: the facts about a refusal, on the loop that has written it. Out: a sentence for the person who has
//! the id of an error page. The memory is bounded and made with the first refusal; a request that is
//! served never comes here.

use forebay_metrics::RefusalReason;
use forebay_policy::bans::ClientBan;
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};

/// The number of refusals that are remembered.
pub const MOST: usize = 4096;

/// The longest text that is kept of one field, in bytes.
const MOST_TEXT: usize = 128;

/// A text that is cut, and stands in the value itself without an allocation: a refusal costs little.
#[derive(Clone, Copy)]
pub struct ShortText {
    bytes: [u8; MOST_TEXT],
    len: u8,
}

impl Default for ShortText {
    fn default() -> ShortText {
        ShortText { bytes: [0; MOST_TEXT], len: 0 }
    }
}

impl ShortText {
    /// The first bytes of a text.
    pub fn of(text: impl AsRef<[u8]>) -> ShortText {
        let mut short = ShortText::default();
        short.push(text.as_ref());
        short
    }

    /// Adds the first bytes of a text, as far as there is room.
    pub fn push(&mut self, text: &[u8]) {
        let start = usize::from(self.len);
        let taken = text.len().min(MOST_TEXT - start);
        self.bytes[start..start + taken].copy_from_slice(&text[..taken]);
        self.len += taken as u8;
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Display for ShortText {
    /// Writes the text escaped, because a client may have sent any bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.as_bytes().escape_ascii();
        write!(f, "{text}")?;
        if usize::from(self.len) == MOST_TEXT { f.write_str("…") } else { Ok(()) }
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct RememberedRefusal {
    /// The id that its client got, and the id in the log, if that is another.
    pub ids: [ShortText; 2],
    /// The time, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The client; unspecified for a program that came through a Unix socket.
    pub client: IpAddr,
    /// The status of the answer.
    pub status: u16,
    /// Method, host and path.
    pub asked: ShortText,
    /// The name of the request's class; empty if there is no policy.
    pub class: ShortText,
    /// Why the policy refused the request, if it did.
    pub reason: Option<RefusalReason>,
    /// The rule that refused the request; empty if none did.
    pub rule: ShortText,
    /// The level of overload.
    pub level: &'static str,
    /// The network and reason of the ban that has refused it, if one did.
    pub ban: ShortText,
    /// The upstream that was asked; empty if none was.
    pub upstream: ShortText,
    /// The text that the client got; empty if that says no more than the status.
    pub told: &'static str,
}

impl RememberedRefusal {
    /// The network and reason of a ban, to be remembered.
    pub fn ban_text(ban: &ClientBan) -> ShortText {
        let mut text = ShortText::of(ban.record.network.to_string());
        if !ban.record.why.is_empty() {
            text.push(b": ");
            text.push(ban.record.why.as_bytes());
        }
        text
    }

    /// Whether `part` occurs in the method, host and path.
    pub fn asks_for(&self, part: &str) -> bool {
        let part = part.as_bytes();
        part.is_empty() || self.asked.as_bytes().windows(part.len()).any(|found| found == part)
    }

    fn is(&self, id: &[u8]) -> bool {
        // a longer id is compared by its beginning
        let id = &id[..id.len().min(MOST_TEXT)];
        self.ids.iter().any(|known| !known.is_empty() && known.as_bytes() == id)
    }

    /// Writes the cause of the refusal, as the end of a sentence.
    fn cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RememberedRefusal { rule, class, level, upstream, told, .. } = self;
        let Some(reason) = self.reason.filter(|_| upstream.is_empty()) else {
            if !upstream.is_empty() {
                write!(f, "the upstream {upstream} was asked: ")?;
            }
            return f.write_str(if told.is_empty() { "nothing more is known" } else { told });
        };
        match reason {
            RefusalReason::Banned if self.ban.is_empty() => f.write_str("its client was banned"),
            RefusalReason::Banned => write!(f, "its client was banned with {}", self.ban),
            RefusalReason::Action => write!(f, "the rule \"{rule}\" says so (action)"),
            RefusalReason::Requests => {
                write!(f, "it was over the limit of the rule \"{rule}\" (requests)")
            }
            RefusalReason::Connections | RefusalReason::Ignored => {
                write!(f, "its connection was over the limit of the rule \"{rule}\"")
            }
            RefusalReason::InFlight => write!(
                f,
                "the rule \"{rule}\" had as many under way as it allows (in_flight)"
            ),
            RefusalReason::Queue if !rule.is_empty() => write!(
                f,
                "the rule \"{rule}\" had it wait, and its turn would have come too late, or too many waited (queue)"
            ),
            RefusalReason::Queue => {
                f.write_str("the application had as much to do as it may, and too many waited (queue)")
            }
            RefusalReason::Agent => write!(
                f,
                "the agent keeps the class \"{class}\" to what the machine can serve (level: {level})"
            ),
            RefusalReason::Expired => f.write_str(
                "it was not done with in time (timeouts.job, queue.time), or too many waited for a worker",
            ),
        }
    }
}

impl Display for RememberedRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RememberedRefusal { unix_ms, client, status, asked, class, level, .. } = self;
        let when = forebay_http::date::rfc3339(unix_ms / 1000);
        write!(f, "{when}: {asked} of ")?;
        match client.is_unspecified() {
            true => f.write_str("a program at a Unix socket")?,
            false => write!(f, "{client}")?,
        }
        write!(f, " got {status}, because ")?;
        self.cause(f)?;
        if !class.is_empty() {
            write!(f, "; class \"{class}\"")?;
        }
        if *level != "normal" && self.reason != Some(RefusalReason::Agent) {
            write!(f, "; level {level}")?;
        }
        Ok(())
    }
}

/// The last refusals, shared by all loops.
#[derive(Default)]
pub struct RefusalMemory {
    places: OnceLock<Box<[Mutex<Option<RememberedRefusal>>]>>,
    /// The number of refusals so far.
    count: AtomicU64,
}

impl fmt::Debug for RefusalMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusalMemory({})", self.count.load(Relaxed))
    }
}

impl RefusalMemory {
    /// Remembers a refusal in place of the oldest. The call never waits: if another thread has the place
    /// locked, the refusal is left out.
    #[cold]
    pub fn remember(&self, refusal: RememberedRefusal) {
        let places = self.places.get_or_init(|| (0..MOST).map(|_| Mutex::default()).collect());
        let at = self.count.fetch_add(1, Relaxed) as usize % MOST;
        match places[at].try_lock() {
            Ok(mut place) => *place = Some(refusal),
            Err(TryLockError::Poisoned(place)) => *place.into_inner() = Some(refusal),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn all(&self) -> impl Iterator<Item = RememberedRefusal> + '_ {
        let places = self.places.get().into_iter().flatten();
        places.filter_map(|place| place.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The refusal of the request with this id, if it is remembered.
    pub fn find(&self, id: &[u8]) -> Option<RememberedRefusal> {
        self.all().find(|refusal| refusal.is(id))
    }

    /// The remembered refusals for which `is_meant` holds: the last ones, at most `most` of them, the
    /// latest first.
    pub fn last(
        &self,
        most: usize,
        is_meant: impl Fn(&RememberedRefusal) -> bool,
    ) -> Vec<RememberedRefusal> {
        let mut found: Vec<_> = self.all().filter(|refusal| is_meant(refusal)).collect();
        found.sort_by_key(|refusal| std::cmp::Reverse(refusal.unix_ms));
        found.truncate(most);
        found
    }

    /// The number of remembered refusals, and the time of the oldest, in milliseconds since 1970.
    pub fn reach(&self) -> (usize, Option<u64>) {
        let times: Vec<u64> = self.all().map(|refusal| refusal.unix_ms).collect();
        (times.len(), times.iter().min().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(id: &str, unix_ms: u64) -> RememberedRefusal {
        RememberedRefusal {
            ids: [ShortText::of(id), ShortText::default()],
            unix_ms,
            client: "203.0.113.7".parse().unwrap(),
            status: 503,
            asked: ShortText::of("GET a.example/x"),
            class: ShortText::of("gold"),
            reason: Some(RefusalReason::Requests),
            rule: ShortText::of("search"),
            level: "normal",
            ban: ShortText::default(),
            upstream: ShortText::default(),
            told: "",
        }
    }

    #[test]
    fn the_last_are_remembered_and_the_oldest_gives_way() {
        let memory = RefusalMemory::default();
        assert_eq!((memory.reach(), memory.find(b"0").is_some()), ((0, None), false));
        for number in 0..MOST + 10 {
            memory.remember(refusal(&number.to_string(), number as u64));
        }
        assert_eq!(memory.reach(), (MOST, Some(10)));
        assert!(memory.find(b"9").is_none() && memory.find(b"").is_none());
        assert_eq!(memory.find(b"10").unwrap().unix_ms, 10);
        let long = "x".repeat(MOST_TEXT + 9);
        memory.remember(refusal(&long, 1));
        assert!(memory.find(long.as_bytes()).is_some());
    }

    #[test]
    fn an_operator_reads_a_sentence() {
        let one = refusal("1", 1_000);
        let head = "1970-01-01T00:00:01Z: GET a.example/x of 203.0.113.7 got 503, because ";
        let said = |one: &RememberedRefusal| one.to_string().strip_prefix(head).unwrap().to_owned();
        assert_eq!(
            said(&one),
            "it was over the limit of the rule \"search\" (requests); class \"gold\""
        );
        let level = "header_control";
        let agent = RememberedRefusal { reason: Some(RefusalReason::Agent), level, ..one.clone() };
        assert_eq!(
            said(&agent),
            "the agent keeps the class \"gold\" to what the machine can serve (level: header_control); \
             class \"gold\""
        );
        let upstream = ShortText::of("10.0.0.1:80");
        let told = "The application cannot be reached";
        let asked = RememberedRefusal { upstream, told, reason: None, level, ..one.clone() };
        assert_eq!(
            said(&asked),
            "the upstream 10.0.0.1:80 was asked: The application cannot be reached; class \"gold\"; level \
             header_control"
        );
        let ban = ShortText::of("203.0.113.0/24: a flood");
        let banned = RememberedRefusal { reason: Some(RefusalReason::Banned), ban, ..one.clone() };
        assert!(said(&banned).starts_with("its client was banned with 203.0.113.0/24: a flood"));
        let asked = ShortText::of(b"GET \"\x1b[2J\n");
        let odd = RememberedRefusal { asked, ..one };
        assert!(odd.to_string().contains("GET \\\"\\x1b[2J\\n of"), "{odd}");
    }
}
