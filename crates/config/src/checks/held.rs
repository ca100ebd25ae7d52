//! Remarks on threads that slow clients or waiting requests hold.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::{AutoCount, Fuse, Listen, ListenerConfig, OverChoice};
use forebay_engine::Engine;
use forebay_policy::rule::MOST_QUEUED;
use std::fmt;
use std::time::Duration;

/// What holds threads.
#[derive(Debug)]
enum HeldThreads {
    /// An engine whose threads slow clients hold, where any client may be slow.
    SlowClients,
    /// A thread of the send phase waits for a slow client for a long time.
    SlowReaders,
    /// Each request that waits keeps a thread.
    WaitingRequests {
        /// The engine.
        engine: &'static str,
        /// The number of requests that may wait.
        requests: u64,
        /// The setting that gives this number.
        key: &'static str,
    },
}

impl Finding for HeldThreads {}

impl fmt::Display for HeldThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldThreads::SlowClients => write!(
                f,
                "as many clients as there are workers, who send or read slowly, keep all others \
                 waiting; before strangers use event, fibers or pipeline"
            ),
            HeldThreads::SlowReaders => write!(
                f,
                "each client that takes nothing holds a thread of send for so long; as many as \
                 pipeline.threads allows keep all others waiting"
            ),
            HeldThreads::WaitingRequests { engine, requests, key } => write!(
                f,
                "with engine = \"{engine}\" each request that waits keeps a thread, of which {requests} and \
                 those under way may take all there are; the engine event keeps none, and a smaller {key} \
                 leaves some for others"
            ),
        }
    }
}

/// Waits for a slow client that are longer than this are remarked: the thread is missed meanwhile.
const LONG_SEND_WAIT: Duration = Duration::from_millis(100);

impl ConfigDraft {
    /// Remarks on threads that are held by slow clients, or by requests that wait for others of their rule.
    pub(crate) fn remark_held(&self, remarks: &mut Remarks) {
        let listeners = self.all_listeners();
        let is_local = |listen: &Listen| match listen {
            Listen::All(_) => false,
            Listen::At(address) => address.ip().is_loopback(),
            Listen::Unix(_) => true,
        };
        for (path, listener) in &listeners {
            if matches!(listener.engine, Engine::Pool | Engine::Threads)
                && listener.listen.iter().any(|endpoint| !is_local(&endpoint.listen))
            {
                remarks.push((path.child("engine"), Wrong::said(HeldThreads::SlowClients)));
            }
        }
        let pipeline = &self.process.pipeline;
        if pipeline.fuse == Fuse::Never
            && pipeline.send_wait > LONG_SEND_WAIT
            && listeners.iter().any(|(_, listener)| listener.engine == Engine::Pipeline)
        {
            let at = At::default().child("pipeline.send_wait");
            remarks.push((at, Wrong::said(HeldThreads::SlowReaders)));
        }
        for (at, rule) in numbered("rule", &self.rules) {
            let limit = &rule.in_flight;
            let (Some(most), Some(OverChoice::Queue)) = (limit.most.0, limit.over.0) else {
                continue;
            };
            let requests = limit.queue.0.unwrap_or(MOST_QUEUED.into());
            let may_take_all = |listener: &ListenerConfig| {
                let takes_all = match listener.workers {
                    AutoCount::Auto => true,
                    AutoCount::Fixed(workers) => workers <= most.saturating_add(requests),
                };
                listener.engine.has_thread_each() && takes_all
            };
            if let Some((_, listener)) = listeners.iter().find(|(_, it)| may_take_all(it)) {
                let (engine, key) = (listener.engine.name(), "in_flight.queue");
                let wrong = Wrong::said(HeldThreads::WaitingRequests { engine, requests, key });
                remarks.push((at.child("in_flight.over"), wrong));
            }
        }
    }
}
