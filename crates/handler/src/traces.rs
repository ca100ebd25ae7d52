//! Tracing: which requests are recorded, and their spans on the way to the thread that sends them to a collector.
//!
//! ```text
//!  loop ── Tracer: is this one recorded? ──► OpenTrace, with the request's log line
//!                                               │ its answer was sent
//!                                               ▼
//!          bounded queue ── FinishedTrace ──► the exporter (`forebay_server::traces`) ──► collector
//! ```
//!
//! A request that is not recorded costs no allocation, no lock and no system call, except a countdown and
//! readings of the clock. A recorded request allocates its spans. No loop waits: spans that find no room
//! in the queue are dropped and counted. The exporter is not woken; it looks twice a second.
//!
//! | module | what it holds |
//! |---|---|
//! | [`span`] | one span, and the spans of a request |
//! | `open` | the spans of a request that is being answered |
//! | `attributes` | the attributes of a request's span, by the semantic conventions of OpenTelemetry |

pub(crate) mod attributes;
pub(crate) mod open;
pub mod span;

use crossbeam_channel::{Receiver, Sender, bounded};
use forebay_config::{Role, TraceParent, TracesConfig};
use forebay_http::trace_context::{RequestTrace, TraceContext};
use span::FinishedTrace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of requests whose spans may wait for the exporter.
const WAITING: usize = 4096;

/// The tracing of one configuration.
#[derive(Debug)]
pub struct Tracing {
    /// The settings: what is traced, and where spans go.
    pub config: TracesConfig,
    /// The stage that this process is.
    pub role: Option<Role>,
    /// The queue to the exporter, which stays through all configurations.
    pub queue: Arc<TraceQueue>,
}

impl Tracing {
    /// Tracing by this configuration, with the existing queue.
    pub fn new(config: &TracesConfig, role: Option<Role>, queue: &Arc<TraceQueue>) -> Arc<Tracing> {
        Arc::new(Tracing { config: config.clone(), role, queue: Arc::clone(queue) })
    }

    /// The tracer for a loop; `None` where nothing is traced.
    pub fn tracer(self: &Arc<Self>) -> Option<Tracer> {
        self.config.to.as_ref()?;
        let behind = matches!(self.role, Some(Role::Process | Role::Respond));
        let mut random = fastrand::Rng::new();
        let rate = self.config.rate.fraction();
        let until = gap(rate, &mut random);
        let follows = behind || self.config.parent == TraceParent::Follow;
        Some(Tracer { traces: Arc::clone(self), rate, behind, follows, until, random })
    }
}

/// The queue of spans to the exporter, with counts of what became of them.
#[derive(Debug)]
pub struct TraceQueue {
    put: Sender<Box<FinishedTrace>>,
    taken: Receiver<Box<FinishedTrace>>,
    dropped: AtomicU64,
    /// Spans that a collector has taken.
    pub exported: AtomicU64,
    /// Spans that no collector has taken.
    pub failed: AtomicU64,
}

impl Default for TraceQueue {
    fn default() -> TraceQueue {
        TraceQueue::holding(WAITING)
    }
}

impl TraceQueue {
    fn holding(most: usize) -> TraceQueue {
        let (put, taken) = bounded(most);
        let [dropped, exported, failed] = [(); 3].map(|()| AtomicU64::new(0));
        TraceQueue { put, taken, dropped, exported, failed }
    }

    /// Leaves the spans of a request for the exporter; if too many wait, they are dropped.
    pub(crate) fn put(&self, trace: Box<FinishedTrace>) {
        if let Err(error) = self.put.try_send(trace) {
            let spans = error.into_inner().spans.len();
            self.dropped.fetch_add(spans as u64, Relaxed);
        }
    }

    /// The next spans, if some are there.
    pub fn take(&self) -> Option<Box<FinishedTrace>> {
        self.taken.try_recv().ok()
    }

    /// The number of spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// The tracer of one loop, which decides which requests are recorded.
#[derive(Debug)]
pub struct Tracer {
    traces: Arc<Tracing>,
    /// The share of requests that are recorded.
    rate: f64,
    /// Whether another stage of this server comes before and has decided.
    pub(crate) behind: bool,
    /// Whether the decision of a trusted proxy holds.
    follows: bool,
    /// The number of requests until the next one that is recorded.
    until: u64,
    random: fastrand::Rng,
}

impl Tracer {
    /// Whether the current request is in the sample.
    #[inline]
    fn draws(&mut self) -> bool {
        self.until -= 1;
        if self.until == 0 { self.draw() } else { false }
    }

    #[cold]
    fn draw(&mut self) -> bool {
        self.until = gap(self.rate, &mut self.random);
        self.rate > 0.0
    }

    /// The place of a request in a trace: the one that a trusted proxy has given it, or the beginning of
    /// a trace whose id is `id`. `None` if another stage should have decided, and has not.
    pub(crate) fn place(
        &mut self,
        parent: Option<TraceContext>,
        id: impl FnOnce() -> u128,
    ) -> Option<RequestTrace> {
        let is_sampled = match parent {
            Some(parent) if self.follows => parent.is_sampled(),
            None if self.behind => return None,
            _ => self.draws(),
        };
        let span_id = self.random.u64(1..);
        Some(match parent {
            Some(parent) => RequestTrace {
                context: parent.next(span_id, is_sampled),
                parent_id: Some(parent.span_id),
            },
            None => RequestTrace {
                context: TraceContext::new(id(), span_id, is_sampled),
                parent_id: None,
            },
        })
    }

    /// The place of a request that is answered without other servers; `None` also if it is not recorded.
    #[inline]
    pub(crate) fn place_recorded(
        &mut self,
        parent: Option<TraceContext>,
        id: impl FnOnce() -> u128,
    ) -> Option<RequestTrace> {
        if parent.is_none() && (self.behind || !self.draws()) {
            return None;
        }
        self.placed(parent, id)
    }

    /// The place of a request that was drawn, or has a parent.
    #[cold]
    fn placed(
        &mut self,
        parent: Option<TraceContext>,
        id: impl FnOnce() -> u128,
    ) -> Option<RequestTrace> {
        match parent {
            Some(_) => self.place(parent, id).filter(|trace| trace.context.is_sampled()),
            None => {
                let context = TraceContext::new(id(), self.random.u64(1..), true);
                Some(RequestTrace { context, parent_id: None })
            }
        }
    }

    /// The queue to the exporter.
    pub(crate) fn queue(&self) -> &Arc<TraceQueue> {
        &self.traces.queue
    }
}

/// The number of requests up to the next one that is recorded, that one included: each is recorded with
/// the same probability, whatever happened to those before it.
fn gap(rate: f64, random: &mut fastrand::Rng) -> u64 {
    if rate >= 1.0 {
        return 1;
    }
    // with 0 no request is drawn: the logarithm is 0, and the quotient has no bound
    let gap = (1.0 - random.f64()).ln() / (1.0 - rate).ln();
    // a conversion saturates within the type
    if rate > 0.0 { gap.floor() as u64 + 1 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::Percent;

    fn tracer(rate: &str, parent: TraceParent, role: Option<Role>) -> Tracer {
        let to = Some("http://127.0.0.1:4318".parse().unwrap());
        let rate = rate.parse::<Percent>().unwrap();
        let config = TracesConfig { to, rate, parent, ..TracesConfig::default() };
        Tracing::new(&config, role, &Arc::default()).tracer().unwrap()
    }

    #[test]
    fn without_a_collector_nothing_is_traced() {
        let traces = Tracing::new(&TracesConfig::default(), None, &Arc::default());
        assert!(traces.tracer().is_none());
    }

    #[test]
    fn the_rate_is_kept() {
        let drawn = |rate: &str, requests: u64| {
            let mut tracer = tracer(rate, TraceParent::Follow, None);
            (0..requests).filter(|_| tracer.place_recorded(None, || 7).is_some()).count()
        };
        assert_eq!(drawn("0%", 1000), 0);
        assert_eq!(drawn("100%", 1000), 1000);
        let one_in_a_hundred = drawn("1%", 1_000_000);
        assert!((9_000..11_000).contains(&one_in_a_hundred), "{one_in_a_hundred}");
        let first = (0..1000).filter(|_| drawn("1%", 1) == 1).count();
        assert!(first < 60, "{first} of 1000 loops have recorded their first request");
    }

    #[test]
    fn who_decides() {
        let sampled = TraceContext::new(1, 2, true);
        let not = sampled.next(2, false);
        let is = |tracer: &mut Tracer, parent| {
            let placed = tracer.place(Some(parent), || 9).unwrap();
            assert_eq!((placed.context.trace_id, placed.parent_id), (1, Some(2)));
            assert_ne!(placed.context.span_id, 2);
            let recorded = tracer.place_recorded(Some(parent), || 9).is_some();
            assert_eq!(recorded, placed.context.is_sampled());
            recorded
        };
        let mut follows = tracer("0%", TraceParent::Follow, None);
        assert!(is(&mut follows, sampled) && !is(&mut follows, not));
        let mut all = tracer("100%", TraceParent::Rate, None);
        assert!(is(&mut all, not));
        let mut none = tracer("0%", TraceParent::Rate, None);
        assert!(!is(&mut none, sampled));
        // a stage follows the decision of the one before, and begins no traces
        let mut behind = tracer("100%", TraceParent::Rate, Some(Role::Process));
        assert!(is(&mut behind, sampled) && !is(&mut behind, not));
        assert!(behind.place(None, || 9).is_none() && behind.place_recorded(None, || 9).is_none());
        let begun = all.place(None, || 9).unwrap();
        assert_eq!((begun.context.trace_id, begun.parent_id), (9, None));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let queue = TraceQueue::holding(2);
        let one =
            || Box::new(FinishedTrace { spans: vec![Default::default(); 3], ..Default::default() });
        (0..5).for_each(|_| queue.put(one()));
        assert_eq!(queue.dropped(), 9);
        assert_eq!(std::iter::from_fn(|| queue.take()).count(), 2);
    }
}
