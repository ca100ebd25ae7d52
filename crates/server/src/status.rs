//! What the running server can tell about itself: counters, gauges, and what it runs.

use crate::config::choice::Word;
use crate::engines::Common;
use crate::plan::Plan;
use forebay_metrics::{Gauge, Snapshot};
use forebay_sys::clock;
use std::sync::{Arc, Mutex, PoisonError};

/// Everything that can be reported, as of now.
pub struct Status {
    started_ms: u64,
    state: Mutex<State>,
}

struct State {
    common: Common,
    engines: String,
    workers: String,
}

impl State {
    fn new(common: &Common, plan: &Plan) -> State {
        let list = |of: &dyn Fn(usize) -> String| {
            (0..plan.groups.len()).map(of).collect::<Vec<_>>().join(" ")
        };
        State {
            common: common.clone(),
            engines: list(&|at| plan.groups[at].engine.word().to_owned()),
            workers: list(&|at| plan.groups[at].workers.to_string()),
        }
    }
}

impl Status {
    /// Of a server that begins now.
    pub fn new(common: &Common, plan: &Plan) -> Arc<Status> {
        let state = Mutex::new(State::new(common, plan));
        Arc::new(Status { started_ms: clock::coarse_ms(), state })
    }

    /// The server runs something else from now on.
    pub fn set(&self, common: &Common, plan: &Plan) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::new(common, plan);
    }

    /// Everything, at this moment. Cheap, and blocks nobody for long.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { common, engines, workers } = &*state;
        let arrangement = common.live.current();
        let content = arrangement.content.figures();
        let mut gauges = vec![
            (Gauge::Connections, common.admission.open() as u64),
            (Gauge::CacheBytes, content.bytes),
            (Gauge::CacheEntries, content.entries),
            (Gauge::CacheEvictions, content.evictions),
            (Gauge::CacheInvalidations, content.invalidations),
            (Gauge::WatchedDirectories, content.watched_directories),
            (Gauge::Helpers, common.helpers.threads() as u64),
            (Gauge::LogDropped, arrangement.logs.dropped()),
            (Gauge::UptimeSeconds, (clock::coarse_ms() - self.started_ms) / 1000),
        ];
        gauges.extend(common.boards.gauges());
        let totals = common.register.totals();
        Snapshot {
            sites: arrangement.logs.sites(&totals),
            logs: arrangement.logs.dropped_by_log(),
            totals,
            gauges,
            info: vec![
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("engine", engines.clone()),
                ("workers", workers.clone()),
            ],
        }
    }
}
