//! Work for helper threads: of the site, counted in the window of its request's class, or a handshake.

use crate::policy::Pass;
use forebay_conn::JobKind;
use forebay_metrics::{Local, Stopwatch};
use forebay_sys::clock;
use forebay_tls::{Handshake, Handshaken, Shakes};

/// Work for a helper thread.
pub struct ServerJob {
    work: Work,
    /// When it was asked for, in nanoseconds of the monotonic clock; 0 if nobody wants to know how long it waits.
    asked_ns: u64,
    /// Its request's place among the unfinished work of its class; `None` if no window counts it.
    pass: Option<Pass>,
}

enum Work {
    Site(forebay_site::SiteJob),
    Handshake(Box<Handshake>),
}

/// What has come of it.
pub enum ServerJobDone {
    /// Of work of the site, and its times, if they were to be known.
    Site(forebay_site::SiteJobDone, JobTimes),
    /// Of a handshake.
    Handshake(Handshaken),
}

/// When work was done, in nanoseconds of the monotonic clock; 0 if nobody wanted to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// When it was asked for.
    asked_ns: u64,
    /// When a thread had it.
    begun_ns: u64,
}

impl ServerJob {
    /// Work that no window counts.
    pub(crate) fn uncounted(work: forebay_site::SiteJob) -> ServerJob {
        ServerJob::counted(work, None)
    }

    /// Work that is finished when it was done, or dropped.
    pub(crate) fn counted(work: forebay_site::SiteJob, pass: Option<Pass>) -> ServerJob {
        ServerJob { work: Work::Site(work), asked_ns: 0, pass }
    }

    /// It is to be known how long it waits from now on.
    pub(crate) fn timed(self) -> ServerJob {
        ServerJob { asked_ns: clock::monotonic_ns(), ..self }
    }
}

impl ServerJobDone {
    /// What has come of work of the site.
    pub(crate) fn of_site(self) -> Option<forebay_site::SiteJobDone> {
        match self {
            ServerJobDone::Site(done, _) => Some(done),
            ServerJobDone::Handshake(_) => None,
        }
    }

    /// When it was asked for, if that was to be known.
    pub(crate) fn asked_ns(&self) -> Option<u64> {
        match self {
            ServerJobDone::Site(_, times) => Some(times.asked_ns).filter(|asked_ns| *asked_ns > 0),
            ServerJobDone::Handshake(_) => None,
        }
    }

    /// How long it has waited for a thread, in milliseconds.
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
            // one waits for no other
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
