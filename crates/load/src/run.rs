//! The run of a plan: threads are started together, and their counts are added up as they come in.

use crate::ledger::{Ledger, RunProgress};
use crate::plan::{ClientGroup, LoadPlan, PlanError, StatedVersion};
use crate::report::Report;
use crate::worker::{Finished, Interval, LoadWorker, RunState};
use forebay_sys::{clock, process};
use forebay_tls::{KeptSessions, Roots, TlsClient, TlsClientSettings, Trust};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, channel};
use std::{fmt, io, thread};

/// Why a run failed.
#[derive(Debug)]
pub enum LoadError {
    /// The plan cannot be run.
    Plan(PlanError),
    /// The clients of a group cannot speak TLS: its name, and the reason.
    Tls(String, String),
    /// A thread could not be started, bound to its core, or watch its sockets.
    Thread(io::Error),
    /// A thread of the generator has panicked, which is a bug of Forebay.
    Panicked,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Plan(error) => error.fmt(f),
            LoadError::Tls(group, why) => write!(f, "{group}: {why}"),
            LoadError::Thread(error) => write!(f, "the generator could not run: {error}"),
            LoadError::Panicked => write!(f, "a thread of the generator has panicked"),
        }
    }
}

impl From<PlanError> for LoadError {
    fn from(error: PlanError) -> LoadError {
        LoadError::Plan(error)
    }
}

/// The number of descriptors reserved for other things than connections: epoll sets, standard
/// streams, files.
const OTHER_DESCRIPTORS: u64 = 64;

/// The time until all threads are ready, in ns; where TLS is spoken, they collect entropy first.
const LEAD_NS: u64 = 10_000_000;
const TLS_LEAD_NS: u64 = 100_000_000;

/// Runs a plan to its end and reports. The call blocks; `observe` is called on this thread after
/// every interval. When `stop` becomes true the run ends within a tenth of a second, with a report
/// on the time so far.
///
/// # Errors
/// The plan cannot be run, or a thread fails. Failed requests are not an error, but part of the
/// report.
pub fn run(
    plan: &LoadPlan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&RunProgress),
) -> Result<Report, LoadError> {
    plan.check()?;
    check_descriptors(plan)?;
    check_sources(plan)?;
    check_cores(plan)?;
    let tls = tls_clients(plan)?;
    let timeline = timeline(plan);
    let has_tls = tls.iter().any(Option::is_some);
    let start_ns = clock::monotonic_ns() + if has_tls { TLS_LEAD_NS } else { LEAD_NS };
    let shared = RunState {
        plan,
        tls: &tls,
        start_ns,
        timeline: &timeline,
        stop,
        at_work: AtomicUsize::new(plan.threads),
        done_ns: AtomicU64::new(u64::MAX),
    };
    let (sender, receiver) = channel();
    let mut ledger = Ledger::new(plan, &timeline);
    let finished = thread::scope(|scope| {
        let mut threads = Vec::with_capacity(plan.threads);
        for index in 0..plan.threads {
            let (shared, sender) = (&shared, sender.clone());
            let body = move || LoadWorker::new(shared, index, sender)?.run();
            let builder = thread::Builder::new().name(format!("load-{index}"));
            threads.push(builder.spawn_scoped(scope, body).map_err(LoadError::Thread)?);
        }
        drop(sender);
        collect(&receiver, &mut ledger, observe);
        let join = |thread: thread::ScopedJoinHandle<'_, io::Result<Finished>>| {
            thread.join().map_err(|_| LoadError::Panicked)?.map_err(LoadError::Thread)
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, LoadError>>()
    })?;
    Ok(Report::new(plan, &ledger, &finished))
}

/// The TLS client of each group that speaks TLS.
fn tls_clients(plan: &LoadPlan) -> Result<Vec<Option<TlsClient>>, LoadError> {
    let client = |group: &ClientGroup| {
        let failed = |why: String| LoadError::Tls(group.name.clone(), why);
        let own = || Roots::of_certificates(rustls_native_certs::load_native_certs().certs);
        let trust = match &group.tls.roots {
            _ if group.tls.insecure => Some(Trust::Anybody),
            Some(text) => Roots::of_pem(text).map(Trust::Roots),
            None => own().map(Trust::Roots),
        };
        let trust = trust.ok_or_else(|| failed(NO_ROOTS.to_owned()))?;
        let terms = TlsClientSettings {
            trust,
            versions: group.tls.versions,
            is_for_http2: group.version == StatedVersion::Http2,
            sessions: match group.tls.resume {
                true => KeptSessions::Last,
                false => KeptSessions::None,
            },
            shows: None,
            is_post_quantum: group.tls.post_quantum,
        };
        let name = group.server_name();
        TlsClient::new(&terms, name).map_err(|error| failed(format!("{name}: {error}")))
    };
    let clients = plan.groups.iter().map(|group| match group.target.is_tls {
        true => client(group).map(Some),
        false => Ok(None),
    });
    clients.collect()
}

/// The message for a machine that has no trusted authorities.
const NO_ROOTS: &str = "this machine has no certificates of trusted authorities; name some with \
    `ca`, or take any certificate with `insecure`";

/// Receives intervals until all threads have ended.
fn collect(from: &Receiver<Interval>, to: &mut Ledger<'_>, observe: &mut dyn FnMut(&RunProgress)) {
    for interval in from {
        if let Some(progress) = to.take(interval) {
            observe(&progress);
        }
    }
    to.close_open();
}

fn check_descriptors(plan: &LoadPlan) -> Result<(), LoadError> {
    let limit = process::raise_descriptor_limit().map_err(LoadError::Thread)?;
    // The connections of an open loop are a limit that it may never reach; it reports when it does.
    let closed = plan.groups.iter().filter(|group| !group.is_open());
    let needed = closed.map(|group| u64::from(group.connections())).sum::<u64>();
    if needed + OTHER_DESCRIPTORS > limit {
        return Err(PlanError::Descriptors { needed, limit }.into());
    }
    Ok(())
}

/// Checks that connections can come from the configured addresses.
fn check_sources(plan: &LoadPlan) -> Result<(), PlanError> {
    for group in &plan.groups {
        let target = group.target.address;
        for &address in &group.source.addresses {
            let wrong = |why| PlanError::Source { group: group.name.clone(), address, why };
            if address.is_ipv4() != target.is_ipv4() {
                return Err(wrong(format!("{} is of another family", target.ip())));
            }
            TcpListener::bind((address, 0)).map_err(|error| wrong(error.to_string()))?;
        }
    }
    Ok(())
}

fn check_cores(plan: &LoadPlan) -> Result<(), LoadError> {
    let allowed = process::allowed_cores().map_err(LoadError::Thread)?;
    match plan.cores.iter().find(|core| !allowed.contains(core)) {
        Some(&core) => Err(PlanError::Core { core, allowed }.into()),
        None => Ok(()),
    }
}

/// The ends of all intervals, in ns after the start.
fn timeline(plan: &LoadPlan) -> Vec<u64> {
    let step = plan.interval_length().as_nanos() as u64;
    let (warmup, end) =
        (plan.warmup.as_nanos() as u64, (plan.warmup + plan.duration).as_nanos() as u64);
    let mut ends: Vec<u64> = (1..).map(|n| n * step).take_while(|at| *at < warmup).collect();
    if warmup > 0 {
        ends.push(warmup);
    }
    ends.extend((1..).map(|n| warmup + n * step).take_while(|at| *at < end));
    ends.push(end);
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_timeline_has_the_warmup_and_the_end() {
        let ms = |ms| Duration::from_millis(ms);
        let plan = LoadPlan {
            warmup: ms(250),
            duration: ms(310),
            interval: Some(ms(100)),
            ..LoadPlan::default()
        };
        let ends: Vec<_> = timeline(&plan).iter().map(|ns| ns / 1_000_000).collect();
        assert_eq!(ends, [100, 200, 250, 350, 450, 550, 560]);
        let hour = LoadPlan { duration: Duration::from_secs(3600), ..LoadPlan::default() };
        assert_eq!(timeline(&hour).len(), 120);
    }
}
