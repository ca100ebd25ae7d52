//! Work for helper threads, counted in the window of its request's class.

use crate::policy::Pass;
use forebay_conn::Kind;
use forebay_metrics::{Local, Stopwatch};

/// Work of the site, with its request's place among the unfinished work of its class.
pub struct Job {
    work: forebay_site::Job,
    /// `None` if no window counts it.
    pass: Option<Pass>,
}

impl Job {
    /// Work that no window counts.
    pub(crate) fn uncounted(work: forebay_site::Job) -> Job {
        Job { work, pass: None }
    }

    /// Work that is finished when it was done, or dropped.
    pub(crate) fn counted(work: forebay_site::Job, pass: Option<Pass>) -> Job {
        Job { work, pass }
    }
}

impl forebay_conn::Job for Job {
    type Done = forebay_site::Done;

    fn run(self, metrics: &Local, watch: &mut dyn Stopwatch) -> forebay_site::Done {
        let Job { work, pass } = self;
        match pass {
            None => work.run(metrics, watch),
            Some(pass) => pass.run(|| work.run(metrics, watch)),
        }
    }

    fn lane(&self) -> u64 {
        self.work.lane()
    }

    fn kind(&self) -> Kind {
        self.work.kind()
    }
}
