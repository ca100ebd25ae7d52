//! Work for helper threads: work of the site, counted in the window of its request's class, or a
//! handshake.

use crate::policy::Pass;
use forebay_conn::JobKind;
use forebay_metrics::{Local, Stopwatch};
use forebay_sys::clock;
use forebay_tls::{Handshake, Handshaken, Shakes};

/// Work for a helper thread.
pub struct ServerJob {
    work: Work,
    /// When the job was made, in nanoseconds of the monotonic clock; 0 if its wait is not measured.
    asked_ns: u64,
    /// The request's place among the unfinished work of its class; `None` if no window counts it.
    pass: Option<Pass>,
}

enum Work {
    Site(forebay_site::SiteJob),
    Handshake(Box<Handshake>),
}

/// The result of a job.
pub enum ServerJobDone {
    /// The result of work of the site, with its times, if they are measured.
    Site(forebay_site::SiteJobDone, JobTimes),
    /// The result of a handshake.
    Handshake(Handshaken),
}

/// The times of a job, in nanoseconds of the monotonic clock; 0 if they are not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// When the job was made.
    asked_ns: u64,
    /// When a thread took it.
    begun_ns: u64,
}

impl ServerJob {
    /// A job that no window counts.
    pub(crate) fn uncounted(work: forebay_site::SiteJob) -> ServerJob {
        ServerJob::counted(work, None)
    }

    /// A job that its window counts until it was done, or dropped.
    pub(crate) fn counted(work: forebay_site::SiteJob, pass: Option<Pass>) -> ServerJob {
        ServerJob { work: Work::Site(work), asked_ns: 0, pass }
    }

    /// Measures how long the job waits from now on.
    pub(crate) fn timed(self) -> ServerJob {
        ServerJob { asked_ns: clock::monotonic_ns(), ..self }
    }
}

impl ServerJobDone {
    /// The result, if the job was work of the site.
    pub(crate) fn of_site(self) -> Option<forebay_site::SiteJobDone> {
        match self {
            ServerJobDone::Site(done, _) => Some(done),
            ServerJobDone::Handshake(_) => None,
        }
    }

    /// When the job was made, if that was measured.
    pub(crate) fn asked_ns(&self) -> Option<u64> {
        match self {
            ServerJobDone::Site(_, times) => Some(times.asked_ns).filter(|asked_ns| *asked_ns > 0),
            ServerJobDone::Handshake(_) => None,
        }
    }

    /// How long the job has waited for a thread, in milliseconds.
    pub(crate) fn waited_ms(&self) -> u64 {
        match self {
            ServerJobDone::Site(_, times) => (times.begun_ns - times.asked_ns) / 1_000_000,
            ServerJobDone::Handshake(_) => 0,
        }
    }
}

impl forebay_conn::Job for ServerJob {
    type Done = ServerJobDone;

    fn run(self, metrics: &Local, watch: &mut dyn Stopwatch) -> ServerJobDone {
        let ServerJob { work, asked_ns, pass } = self;
        let times = match asked_ns {
            0 => JobTimes::default(),
            asked_ns => JobTimes { asked_ns, begun_ns: clock::monotonic_ns().max(asked_ns) },
        };
        let work = || match work {
            Work::Site(work) => ServerJobDone::Site(work.run(metrics, watch), times),
            Work::Handshake(handshake) => ServerJobDone::Handshake(handshake.run()),
        };
        match pass {
            None => work(),
            Some(pass) => pass.run(work),
        }
    }

    fn lane(&self) -> u64 {
        match &self.work {
            Work::Site(work) => work.lane(),
            // handshakes do not wait for one another
            Work::Handshake(handshake) => std::ptr::from_ref(&**handshake).addr() as u64,
        }
    }

    fn kind(&self) -> JobKind {
        match &self.work {
            Work::Site(work) => work.kind(),
            Work::Handshake(_) => JobKind::Computes,
        }
    }
}

impl Shakes for ServerJob {
    fn handshake(handshake: Handshake) -> ServerJob {
        ServerJob { work: Work::Handshake(Box::new(handshake)), asked_ns: 0, pass: None }
    }

    fn handshaken(done: ServerJobDone) -> Option<Handshaken> {
        match done {
            ServerJobDone::Handshake(handshaken) => Some(handshaken),
            ServerJobDone::Site(..) => None,
        }
    }
}
