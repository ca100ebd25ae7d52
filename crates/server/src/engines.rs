//! Groups of workers, from start to end. Each runs the engine of a plan on its listeners.
//!
//! Each loop or thread gets a handler and counters of its own. Settings of engines, shares and
//! ledgers of classes reach a group while it runs. The rest of a group never changes: a reload that
//! wants another engine, other listeners, another number of workers or of classes starts a new
//! group on the same sockets and lets the old one retire.

use crate::agent::{self, AgentLoop};
use crate::counters::{PipelineGaugesPool, Register};
use crate::firewall::Firewall;
use crate::listen::AcceptSocket;
use crate::plan::{GroupPlan, Plan};
use forebay_conn::Handler;
use forebay_engine::Engine;
use forebay_engine::admission::ConnectionAdmission;
use forebay_engine::control::{Ended, EngineControl, LoopOrder};
use forebay_engine::event::{self, EventLoop};
use forebay_engine::fibers::FiberLoop;
use forebay_engine::helpers::{HelperThreads, Helpers};
use forebay_engine::pipeline::{self, Fuse, Pipeline};
use forebay_engine::ranks::Ranks;
use forebay_engine::settings::{self, EngineSettings};
use forebay_engine::{pool, stock, threads, worker};
use forebay_handler::RequestHandler;
use forebay_handler::applications::Pools;
use forebay_handler::job::ServerJob;
use forebay_handler::live::LiveSnapshot;
use forebay_handler::policy::WindowPoint;
use forebay_handler::upstream_sockets::UpstreamSockets;
use forebay_handler::upstream_threads::{ThreadShare, UpstreamThreads};
use forebay_metrics::Local;
use forebay_sys::process;
use forebay_upstream::pool::ConnectionPool;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The number of paths that a loop finds without asking the shared cache; below it, that of a
/// thread, of which there may be many.
const PATHS_OF_A_LOOP: usize = 4096;
const PATHS_OF_A_THREAD: usize = 128;

/// What all groups share.
#[derive(Clone)]
pub struct Common {
    /// What handlers serve from.
    pub live: Arc<LiveSnapshot>,
    /// The count of connections.
    pub admission: Arc<ConnectionAdmission>,
    /// The counters of all workers.
    pub register: Arc<Register>,
    /// The threads that run jobs.
    pub helpers: Helpers<ServerJob>,
    /// The order of service, whose shares and ledgers may change.
    pub ranks: Ranks,
    /// The gauges of the pipelines' controllers.
    pub pipeline_gauges_pool: Arc<PipelineGaugesPool>,
    /// Idle connections to applications, of threads that serve one client each.
    pub idle: Arc<Mutex<ConnectionPool>>,
    /// The limits on requests under way at applications and on idle connections to them.
    pub sockets: UpstreamSockets,
    /// The agent's thread.
    pub agent_loop: Arc<AgentLoop>,
    /// The server's own table in the machine's firewall.
    pub firewall: Option<Arc<Firewall>>,
}

/// How an engine's thread has ended: its figures, or the error.
pub type ThreadEnd = Result<Ended, String>;

/// A thread that is ready to run. It has all descriptors it needs: once the first thread runs,
/// clients come and would take them.
pub struct ReadyThread {
    name: String,
    run: Box<dyn FnOnce() -> io::Result<Ended> + Send>,
}

impl ReadyThread {
    /// Makes a thread that runs `run` and then waits until no connection of its engine lingers.
    fn new(
        name: impl Into<String>,
        control: &Arc<EngineControl>,
        run: impl FnOnce() -> io::Result<Ended> + Send + 'static,
    ) -> ReadyThread {
        let control = Arc::clone(control);
        let run = move || run().inspect(|_| control.wait_for_lingering());
        ReadyThread { name: name.into(), run: Box::new(run) }
    }

    /// Runs the work on a thread of its own, which reports to `tell` how it has ended.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn spawn(self, tell: impl Fn(ThreadEnd) + Send + 'static) -> io::Result<JoinHandle<()>> {
        let ReadyThread { name, run } = self;
        let run = move || {
            tell(match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(ended)) => Ok(ended),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("it panicked".to_owned()),
            });
        };
        std::thread::Builder::new().name(name).spawn(run)
    }
}

/// A group that is ready to run.
pub struct Prepared {
    plan: GroupPlan,
    control: Arc<EngineControl>,
    settings: Arc<settings::LiveSettings>,
    tasks: Vec<ReadyThread>,
}

/// A running group.
pub struct WorkerGroup {
    /// The plan of the group.
    pub plan: GroupPlan,
    control: Arc<EngineControl>,
    settings: Arc<settings::LiveSettings>,
    threads: Vec<JoinHandle<()>>,
    /// The number of threads that have not reported their end.
    running: usize,
}

impl Common {
    /// Prepares the workers of a group; `by_loop` holds the sockets of each loop or thread that
    /// accepts.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn prepare(
        &self,
        plan: GroupPlan,
        by_loop: Vec<Vec<AcceptSocket>>,
    ) -> io::Result<Prepared> {
        let threads = if plan.engine.keeps_threads() { plan.workers } else { 0 };
        let control = Arc::new(EngineControl::new(by_loop.len())?.with_threads(threads));
        // engines with a thread for each connection have no loops whose lateness says something
        // about what waits
        if !plan.engine.has_thread_each() {
            self.agent_loop.watch(&control);
        }
        let settings = Arc::new(settings::LiveSettings::new(plan.settings.clone()));
        let (proxy_protocol, is_for_stages) = (plan.proxy_protocol, plan.is_for_stages);
        let as_planned = |socket| AcceptSocket { proxy_protocol, is_for_stages, ..socket };
        let mut by_loop = by_loop
            .into_iter()
            .map(|of_loop| of_loop.into_iter().map(as_planned).collect::<Vec<AcceptSocket>>());
        let tasks = match plan.engine {
            Engine::Event | Engine::Isolated => loops(by_loop, |index, listeners| {
                let event_loop =
                    EventLoop::new(self.loop_of(index, listeners, &settings, &control))?;
                Ok(ReadyThread::new(format!("event-{index}"), &control, move || event_loop.run()))
            })?,
            Engine::Fibers => loops(by_loop, |index, listeners| {
                let fiber_loop =
                    FiberLoop::new(self.loop_of(index, listeners, &settings, &control))?;
                Ok(ReadyThread::new(format!("fibers-{index}"), &control, move || fiber_loop.run()))
            })?,
            Engine::Pipeline => {
                let parts = self.pipeline(&plan, by_loop.collect(), &settings, &control);
                let pipeline = Pipeline::new(parts)?;
                vec![ReadyThread::new("pipeline", &control, || pipeline.run())]
            }
            Engine::Threads => {
                let parts = self.blocking(&plan, by_loop.next(), &settings, &control);
                let threads = threads::Threads::new(parts)?;
                vec![ReadyThread::new("threads", &control, || threads.run())]
            }
            Engine::Pool => {
                let parts = self.blocking(&plan, by_loop.next(), &settings, &control);
                let pool = pool::Pool::new(parts)?;
                let thread = |number| {
                    let pool = Arc::clone(&pool);
                    ReadyThread::new(format!("pool-{number}"), &control, move || {
                        Ok(pool.work(number))
                    })
                };
                (0..plan.workers.max(1)).map(thread).collect()
            }
        };
        Ok(Prepared { plan, control, settings, tasks })
    }

    /// The parts that loop `index` is made of.
    fn loop_of(
        &self,
        index: usize,
        listeners: Vec<AcceptSocket>,
        settings: &Arc<settings::LiveSettings>,
        control: &Arc<EngineControl>,
    ) -> event::LoopParts<RequestHandler, Helpers<ServerJob>> {
        let metrics = self.register.worker();
        event::LoopParts {
            listeners,
            handler: self.handler(Arc::clone(&metrics), PATHS_OF_A_LOOP, WindowPoint::Job),
            settings: Arc::clone(settings),
            admission: Arc::clone(&self.admission),
            helpers: self.helpers.clone(),
            ranks: self.ranks.clone(),
            control: Arc::clone(control),
            index,
            metrics,
        }
    }

    fn blocking(
        &self,
        plan: &GroupPlan,
        of_loop: Option<Vec<AcceptSocket>>,
        settings: &Arc<settings::LiveSettings>,
        control: &Arc<EngineControl>,
    ) -> stock::StockParts<RequestHandler> {
        let common = self.clone();
        let (all, tunnels) = plan.upstream_threads;
        let threads = Arc::new(UpstreamThreads::new(all, tunnels));
        // threads ask for a permit before they look at a request
        let window_point =
            if self.ranks.is_ordered() { WindowPoint::Queue } else { WindowPoint::Job };
        let make = move || {
            let metrics = common.register.worker();
            let handler = common.handler(Arc::clone(&metrics), PATHS_OF_A_THREAD, window_point);
            (handler.with_thread(ThreadShare::new(Arc::clone(&threads))), metrics)
        };
        stock::StockParts {
            listeners: of_loop.unwrap_or_default(),
            make: Box::new(make),
            settings: Arc::clone(settings),
            admission: Arc::clone(&self.admission),
            ranks: self.ranks.clone(),
            control: Arc::clone(control),
            threads: plan.workers,
            jobs: self.helpers.settings().blocking,
            answering: plan.answering,
            ahead: plan.accept_ahead,
        }
    }

    fn pipeline(
        &self,
        plan: &GroupPlan,
        listener_sets: Vec<Vec<AcceptSocket>>,
        settings: &Arc<settings::LiveSettings>,
        control: &Arc<EngineControl>,
    ) -> pipeline::PipelineParts<RequestHandler> {
        let common = self.clone();
        let (paths, window_point) = match plan.pipeline.fuse {
            Fuse::Auto => (PATHS_OF_A_LOOP, WindowPoint::Job),
            Fuse::Never => (PATHS_OF_A_THREAD, WindowPoint::Queue),
        };
        let make = move || {
            let metrics = common.register.worker();
            (common.handler(Arc::clone(&metrics), paths, window_point), metrics)
        };
        let register = Arc::clone(&self.register);
        pipeline::PipelineParts {
            listener_sets,
            make: Box::new(make),
            count: Box::new(move || register.worker()),
            settings: Arc::clone(settings),
            admission: Arc::clone(&self.admission),
            helpers: self.helpers.clone(),
            ranks: self.ranks.clone(),
            control: Arc::clone(control),
            pipeline: plan.pipeline.clone(),
            pipeline_gauges: self.pipeline_gauges_pool.take(),
        }
    }

    /// Starts helper threads for the order of service, as many as `plan` says.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn take_helpers(&mut self, plan: &Plan, sample: u32) -> io::Result<()> {
        self.ranks = Ranks::new(&plan.ranks);
        let locals = self.register.helpers(plan.helpers.most(&self.ranks));
        self.helpers = Helpers::new(locals, plan.helpers, &self.ranks, sample)?;
        Ok(())
    }

    /// Starts the agent's thread, if the policy in force wants one and none runs.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn keep_agent_loop(&self) -> io::Result<()> {
        let register = Arc::clone(&self.register);
        self.agent_loop.keep_up(&agent::AgentParts {
            live: Arc::clone(&self.live),
            totals: Arc::new(move || register.totals()),
            cores: process::usable_cores().try_into().unwrap_or(u32::MAX),
        })
    }

    /// A handler that no client reaches, with counters of its own.
    pub(crate) fn handler_apart(&self) -> RequestHandler {
        self.handler(self.register.worker(), 1, WindowPoint::Queue)
    }

    fn handler(
        &self,
        metrics: Arc<Local>,
        paths: usize,
        window_point: WindowPoint,
    ) -> RequestHandler {
        // a loop's epoll reports its sockets to that loop alone, so its connections cannot be
        // shared
        let pools = match paths {
            PATHS_OF_A_LOOP => Pools::Own(self.sockets.pool().watched()),
            _ => Pools::Shared(Arc::clone(&self.idle)),
        };
        let (sockets, now) = (self.sockets.clone(), worker::read_clocks());
        RequestHandler::new(&self.live, metrics, paths, window_point, pools, sockets, now)
    }
}

/// Makes a task for each loop.
fn loops(
    by_loop: impl Iterator<Item = Vec<AcceptSocket>>,
    task: impl Fn(usize, Vec<AcceptSocket>) -> io::Result<ReadyThread>,
) -> io::Result<Vec<ReadyThread>> {
    by_loop.enumerate().map(|(index, listeners)| task(index, listeners)).collect()
}

impl Prepared {
    /// Starts all threads; each reports to `tell` how it has ended. If a thread cannot be started,
    /// those that run already retire.
    ///
    /// # Errors
    /// Lack of threads.
    pub fn start(
        self,
        tell: impl Fn(ThreadEnd) + Clone + Send + 'static,
    ) -> io::Result<WorkerGroup> {
        let Prepared { plan, control, settings, tasks } = self;
        let mut threads = Vec::with_capacity(tasks.len());
        for task in tasks {
            match task.spawn(tell.clone()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    control.give(LoopOrder::Retire);
                    return Err(error);
                }
            }
        }
        Ok(WorkerGroup { plan, control, settings, running: threads.len(), threads })
    }
}

impl WorkerGroup {
    /// Retires the group, because another group has the listeners and other rules: the next answer
    /// on each connection is its last.
    pub fn answer_once_more(&mut self) {
        let mut settings = self.plan.settings.clone();
        settings.limits.requests = 1;
        self.set(settings);
        self.give(LoopOrder::Retire);
    }

    /// Gives all workers of the group an order.
    pub fn give(&self, order: LoopOrder) {
        self.control.give(order);
    }

    /// The orders of the group's loops, and whether they have [left](EngineControl::is_leaving).
    pub fn control(&self) -> Arc<EngineControl> {
        Arc::clone(&self.control)
    }

    /// Whether all threads of the group have had a turn: see [`EngineControl::heartbeats_since`].
    pub fn turns_since(&self, since_ms: u64) -> bool {
        self.control.heartbeats_since(since_ms)
    }

    /// Sets the timeouts and bounds from now on.
    pub fn set(&mut self, settings: EngineSettings) {
        self.plan.settings = settings.clone();
        self.settings.replace(settings);
    }

    /// Counts a thread that has reported its end. Returns whether it was the last.
    pub fn thread_ended(&mut self) -> bool {
        self.running = self.running.saturating_sub(1);
        self.running == 0
    }

    /// Joins the threads, which have reported their end.
    pub fn join(self) {
        for thread in self.threads {
            // the thread has reported a panic itself
            let _ = thread.join();
        }
    }
}

/// The resources of a loop that is in no group.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// The largest number of connections at once.
    pub connections: usize,
    /// The largest number of refused connections that linger.
    pub lingering: usize,
    /// The number of threads for jobs that compute. The loop has none for other jobs.
    pub computing: usize,
}

/// Prepares one loop, apart from all groups, to serve a handler of its own: the admin listener.
///
/// # Errors
/// Lack of descriptors or threads.
pub fn prepare_apart<H>(
    name: &str,
    listeners: Vec<AcceptSocket>,
    handler: H,
    control: Arc<EngineControl>,
    Apart { connections, lingering, computing }: Apart,
) -> io::Result<ReadyThread>
where
    H: Handler + Send + 'static,
    H::Body: Send,
    H::Protocol: Send,
{
    let (threads, ranks) = (HelperThreads { blocking: 0, computing }, Ranks::default());
    let counters = (0..threads.most(&ranks)).map(|_| Local::default()).collect();
    let of_thread = Arc::clone(&control);
    let event_loop = EventLoop::new(event::LoopParts {
        handler,
        listeners,
        settings: Arc::new(settings::LiveSettings::new(EngineSettings {
            sample: 0,
            lingering,
            ..EngineSettings::default()
        })),
        admission: ConnectionAdmission::new(connections, connections),
        helpers: Helpers::new(counters, threads, &ranks, 0)?,
        ranks,
        control,
        index: 0,
        metrics: Arc::default(),
    })?;
    Ok(ReadyThread::new(name, &of_thread, move || event_loop.run()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_a_small_descriptor() {
        assert!(pipeline::descriptor_bytes::<RequestHandler>() <= 1024);
    }
}
