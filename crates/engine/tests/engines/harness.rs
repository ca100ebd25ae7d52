//! An engine on a thread of its own, set up as the test wants, and its clients.

use crate::handler::{Away, Books, Gate, Paths};
use forebay_conn::{Handler, Job};
use forebay_control::allocation::{self, Law};
use forebay_engine::accept::Listener;
use forebay_engine::admission::ConnectionAdmission;
use forebay_engine::control::{Ended, EngineControl, LoopOrder};
use forebay_engine::event::{self, EventLoop};
use forebay_engine::fibers::FiberLoop;
use forebay_engine::helpers::{HelperThreads, Helpers};
use forebay_engine::pipeline::{self, Fuse, Pipeline, PipelineGauges};
use forebay_engine::ranks::{self, Ranks};
use forebay_engine::settings::{EngineSettings, LiveSettings};
use forebay_engine::{pool, stock, threads};
use forebay_metrics::Gauge;
use forebay_metrics::{Activity, ClassSlot, Counter, Local, Totals};
use forebay_sys::process::usable_cores;
use forebay_sys::socket::{ListenOptions, listen, local_address};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait of a test for something that should happen at once; it is only used up when the
/// test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The pipeline in which every boundary is a list.
pub(crate) const NEVER_FUSED: &str = "pipeline, never fused";

/// The same pipeline with threads by queue delay.
pub(crate) const BY_DELAY: &str = "pipeline, never fused, by delay";

/// All engines and modes.
pub(crate) const ENGINES: &[&str] =
    &["threads", "pool", "event", "fibers", "pipeline", NEVER_FUSED];

/// The engines among `engines` that [`ENGINES`] has.
pub(crate) fn on<'e>(engines: impl IntoIterator<Item = &'e str>) -> impl Iterator<Item = &'e str> {
    engines.into_iter().filter(|engine| ENGINES.contains(engine))
}

/// The suffix to the name of an engine that has classes, and answers requests in their order.
pub(crate) const BY_RANK: &str = ", by rank";

/// An engine's name without that suffix, and its order of service.
fn apart(engine: &str) -> (&str, Ranks) {
    match engine.strip_suffix(BY_RANK) {
        Some(name) => (name, three_ranks()),
        None => (engine, Ranks::default()),
    }
}

/// A first rank, and two with a guaranteed share.
fn three_ranks() -> Ranks {
    Ranks::new(&ranks::OrderSettings {
        shares: Arc::new([0.0, 0.2, 0.05]),
        slots: Arc::new([0, 1, 2].map(ClassSlot)),
        ..ranks::OrderSettings::default()
    })
}

/// Two helper threads, and the reserves of these ranks.
pub(crate) fn helpers<J: Job>(ranks: &Ranks) -> Helpers<J> {
    let threads = HelperThreads { blocking: 2, computing: 1 };
    let metrics = (0..threads.most(ranks)).map(|_| Local::default()).collect();
    Helpers::new(metrics, threads, ranks, 0).unwrap()
}

/// The settings of an engine under test.
pub(crate) struct Setup {
    /// The listening socket; `None` for a new one.
    pub(crate) listener: Option<Listener>,
    /// Further listening sockets.
    pub(crate) more: Vec<Listener>,
    /// Timeouts and bounds.
    pub(crate) settings: EngineSettings,
    /// Whether clients are trusted proxies.
    pub(crate) trusts: bool,
    /// Connections that may be open in all.
    pub(crate) most: usize,
    /// Connections a client may have.
    pub(crate) per_client: usize,
    /// Threads of `pool`.
    pub(crate) pool: usize,
    /// The largest number of threads of `threads`.
    pub(crate) threads: usize,
    /// Threads of both that may answer at once if there are ranks.
    pub(crate) answering: usize,
    /// Connections they accept ahead of threads then.
    pub(crate) ahead: usize,
    /// The order of service; `None` for that of the engine's name.
    pub(crate) ranks: Option<Ranks>,
    /// Whether a pipeline keeps the threads it begins with.
    pub(crate) fixed: bool,
    /// The time for which a thread of send stays with a client that takes nothing.
    pub(crate) send_wait_ms: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        let settings = EngineSettings::default();
        Setup {
            listener: None,
            more: Vec::new(),
            settings,
            trusts: false,
            most: 100,
            per_client: 100,
            pool: 120,
            threads: 200,
            answering: usable_cores(),
            ahead: 64,
            ranks: None,
            fixed: false,
            send_wait_ms: 1,
        }
    }
}

/// A running engine.
pub(crate) struct Core {
    pub(crate) address: SocketAddr,
    pub(crate) control: Arc<EngineControl>,
    pub(crate) settings: Arc<LiveSettings>,
    pub(crate) ranks: Ranks,
    /// The listening socket, which stays open when the engine has left it.
    pub(crate) keeper: OwnedFd,
    locals: Arc<Mutex<Vec<Arc<Local>>>>,
    admission: Arc<ConnectionAdmission>,
    thread: JoinHandle<Ended>,
    /// The controller's figures, if there is one.
    pipeline_gauges: Arc<PipelineGauges>,
}

/// The variable in the environment of a process that runs one test.
const APART: &str = "FOREBAY_TEST_APART";

/// Runs this test in a process of its own, where its threads are the only ones: see [`Core::calm`].
/// Returns whether it did; in that process it returns `false`, and the test goes on.
#[must_use]
#[track_caller]
pub(crate) fn ran_apart() -> bool {
    if is_apart() {
        return false;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(APART, test)
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success() && said[0].contains("1 passed"), "{}", said.concat());
    true
}

/// Whether no other test runs in this process: it runs this one only, or one test after the other.
fn is_apart() -> bool {
    std::env::var_os(APART).is_some() || std::thread::current().name() == Some("main")
}

/// A running engine whose handler answers by path.
pub(crate) struct Running {
    pub(crate) core: Core,
    pub(crate) away: Away,
    pub(crate) gate: Arc<Gate>,
    pub(crate) lines: Receiver<(u16, u64)>,
    pub(crate) books: Arc<Books>,
}

impl Deref for Running {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// A listener on a free port of this machine.
pub(crate) fn listener() -> Listener {
    let options = ListenOptions { backlog: 64, reuse_port: false, owner: None };
    let socket = listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let address = local_address(&socket).unwrap();
    Listener::new(socket, address)
}

/// Starts an engine with these settings.
pub(crate) fn start(engine: &str, change: impl FnOnce(&mut EngineSettings)) -> Running {
    let mut setup = Setup::default();
    change(&mut setup.settings);
    start_with(engine, setup)
}

/// Starts an engine.
pub(crate) fn start_with(engine: &str, setup: Setup) -> Running {
    let (sender, lines) = channel();
    let (away, gate) = (Away::default(), Arc::<Gate>::default());
    let books = Arc::<Books>::default();
    let trusts = setup.trusts;
    let core = {
        let (away, gate, books) = (Arc::clone(&away), Arc::clone(&gate), Arc::clone(&books));
        start_core(engine, setup, move || {
            let (away, gate, lines) = (Arc::clone(&away), Arc::clone(&gate), sender.clone());
            Paths { away, lines, trusts, gate, now_ms: 0, books: Arc::clone(&books) }
        })
    };
    Running { core, away, gate, lines, books }
}

/// Starts an engine with handlers made by `make`.
pub(crate) fn start_core<H: Handler + Send + 'static>(
    engine: &str,
    setup: Setup,
    make: impl Fn() -> H + Send + Sync + 'static,
) -> Core
where
    H::Body: Send,
    H::Line: Send,
    H::Protocol: Send,
{
    let listener = setup.listener.unwrap_or_else(listener);
    let address = listener.local;
    let keeper = listener.socket.try_clone().unwrap();
    let settings = Arc::new(LiveSettings::new(setup.settings));
    let (engine, ranks) = apart(engine);
    let threads = if engine == "pool" { setup.pool } else { 0 };
    let control = Arc::new(EngineControl::new(1).unwrap().with_threads(threads));
    let locals = Arc::<Mutex<Vec<_>>>::default();
    let admission = ConnectionAdmission::new(setup.most, setup.per_client);
    let make = {
        let locals = Arc::clone(&locals);
        move || {
            let local = Arc::new(Local::default());
            locals.lock().unwrap().push(Arc::clone(&local));
            (make(), local)
        }
    };
    let pipeline_gauges = Arc::<PipelineGauges>::default();
    let ranks = setup.ranks.unwrap_or(ranks);
    let parts = Parts {
        listeners: [listener].into_iter().chain(setup.more).collect(),
        make: Box::new(make),
        settings: Arc::clone(&settings),
        admission: Arc::clone(&admission),
        control: Arc::clone(&control),
        pipeline_gauges: Arc::clone(&pipeline_gauges),
        ranks: ranks.clone(),
        pool: setup.pool,
        threads: setup.threads,
        answering: setup.answering,
        ahead: setup.ahead,
        fixed: setup.fixed,
        send_wait_ms: setup.send_wait_ms,
    };
    let thread = parts.start(engine);
    Core { address, control, settings, ranks, keeper, locals, admission, thread, pipeline_gauges }
}

/// Makes a handler, and counters for its thread.
type Make<H> = Box<dyn Fn() -> (H, Arc<Local>) + Send + Sync>;

/// The parts of every engine.
struct Parts<H> {
    listeners: Vec<Listener>,
    make: Make<H>,
    settings: Arc<LiveSettings>,
    admission: Arc<ConnectionAdmission>,
    control: Arc<EngineControl>,
    pipeline_gauges: Arc<PipelineGauges>,
    ranks: Ranks,
    pool: usize,
    threads: usize,
    answering: usize,
    ahead: usize,
    fixed: bool,
    send_wait_ms: u64,
}

impl<H: Handler + Send + 'static> Parts<H>
where
    H::Body: Send,
    H::Line: Send,
    H::Protocol: Send,
{
    fn start(self, engine: &str) -> JoinHandle<Ended> {
        let spawn = std::thread::spawn::<Box<dyn FnOnce() -> Ended + Send>, _>;
        match engine {
            "event" => {
                let event_loop = EventLoop::new(self.of_loop()).unwrap();
                spawn(Box::new(move || event_loop.run().unwrap()))
            }
            "fibers" => {
                let fiber_loop = FiberLoop::new(self.of_loop()).unwrap();
                spawn(Box::new(move || fiber_loop.run().unwrap()))
            }
            "threads" => {
                let threads = self.threads;
                let parts = self.of_threads(threads);
                let threads = threads::Threads::new(parts).unwrap();
                spawn(Box::new(move || threads.run().unwrap()))
            }
            "pool" => {
                let threads = self.pool;
                let parts = self.of_threads(threads);
                let pool = pool::Pool::new(parts).unwrap();
                let thread = move |number| {
                    let pool = Arc::clone(&pool);
                    std::thread::spawn(move || pool.work(number))
                };
                let all: Vec<_> = (0..threads).map(thread).collect();
                let join = |thread: JoinHandle<Ended>| thread.join().unwrap();
                spawn(Box::new(move || {
                    all.into_iter().map(join).fold(Ended::default(), |sum, ended| sum + ended)
                }))
            }
            "pipeline" | NEVER_FUSED | BY_DELAY => {
                let pipeline = Pipeline::new(self.of_pipeline(engine)).unwrap();
                spawn(Box::new(move || pipeline.run().unwrap()))
            }
            other => panic!("no engine is called {other}"),
        }
    }

    fn of_loop(self) -> event::LoopParts<H, Helpers<H::Job>> {
        let (handler, metrics) = (self.make)();
        event::LoopParts {
            listeners: self.listeners,
            handler,
            settings: self.settings,
            admission: self.admission,
            helpers: helpers(&self.ranks),
            ranks: self.ranks,
            control: self.control,
            index: 0,
            metrics,
        }
    }

    fn of_threads(self, threads: usize) -> stock::StockParts<H> {
        stock::StockParts {
            listeners: self.listeners,
            make: self.make,
            settings: self.settings,
            admission: self.admission,
            ranks: self.ranks,
            control: self.control,
            threads,
            jobs: 2,
            answering: self.answering,
            ahead: self.ahead,
        }
    }

    fn of_pipeline(self, engine: &str) -> pipeline::PipelineParts<H> {
        pipeline::PipelineParts {
            listener_sets: vec![self.listeners],
            make: self.make,
            count: Box::new(Arc::default),
            settings: self.settings,
            admission: self.admission,
            helpers: helpers(&self.ranks),
            ranks: self.ranks,
            control: self.control,
            pipeline: pipeline::PipelineSettings {
                fuse: if engine == "pipeline" { Fuse::Auto } else { Fuse::Never },
                is_fixed: self.fixed,
                allocation: allocation::AllocationSettings {
                    period_ms: 10,
                    law: if engine == BY_DELAY { Law::Delay } else { Law::Queue },
                    ..allocation::AllocationSettings::for_cores(2)
                },
                connections: 100,
                send_wait_ms: self.send_wait_ms,
            },
            pipeline_gauges: self.pipeline_gauges,
        }
    }
}

/// Runs a test on every engine, in the order in which requests come and by rank.
pub(crate) fn on_each(test: impl Fn(&str) + Sync) {
    side_by_side(variants(), |engine| test(&engine));
}

/// Every engine, in the order in which requests come and by rank.
pub(crate) fn variants() -> impl Iterator<Item = String> {
    let orders = ["", BY_RANK];
    ENGINES.iter().flat_map(move |engine| orders.map(|order| format!("{engine}{order}")))
}

/// Runs a test in several ways, a few at a time, as most of it is waiting; or one after another
/// where the test [ran apart](ran_apart).
pub(crate) fn side_by_side<W: Debug + Send>(
    ways: impl Iterator<Item = W> + Send,
    test: impl Fn(W) + Sync,
) {
    const AT_A_TIME: usize = 4;
    let threads = if is_apart() { 1 } else { AT_A_TIME };
    let ways = Mutex::new(ways);
    let work = || {
        loop {
            let way = ways.lock().unwrap().next();
            let Some(way) = way else { return };
            let name = format!("{way:?}");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(way))) {
                eprintln!("failed: {name}");
                resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| _ = scope.spawn(work));
        work();
    });
}

impl Running {
    /// Drains the engine, and checks what it has counted.
    pub(crate) fn stop(self) -> Ended {
        self.core.stop()
    }
}

impl Core {
    /// A new connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and returns what arrives until the end.
    pub(crate) fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        // both fail if the server was quicker and has closed or reset
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// The number of connections that have a place.
    pub(crate) fn open(&self) -> usize {
        self.admission.open()
    }

    /// The value of a counter.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.locals.lock().unwrap().iter().map(|local| local.get(counter)).sum()
    }

    /// The number of times that an activity was timed.
    pub(crate) fn timed(&self, activity: Activity) -> u64 {
        let locals = self.locals.lock().unwrap();
        Totals::of(locals.iter().map(Arc::as_ref)).activity(activity).0
    }

    /// Waits until a counter has this value: a client may know of an event before it is counted.
    #[track_caller]
    pub(crate) fn expect(&self, counter: Counter, value: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.get(counter) < value && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.get(counter), value, "{counter:?}");
    }

    /// Waits until everything that can go on has done so: what clients have sent is
    /// [delivered](Core::delivered), and every thread of the server sleeps. For a test that [ran
    /// apart](ran_apart).
    #[track_caller]
    pub(crate) fn calm(&self) {
        calm(self.address.port());
    }

    /// Waits until the kernel has delivered to the server's end all that clients have sent, and
    /// that they have left. A busy kernel delivers packets after the call that sent them has
    /// returned, and not in the order of the calls.
    #[track_caller]
    pub(crate) fn delivered(&self) {
        delivered(self.address.port());
    }

    /// Whether all that was written for the client at this address is at its end (proc_net_tcp(5)).
    pub(crate) fn has_sent_all_to(&self, client: SocketAddr) -> bool {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let port = |address: SocketAddr| format!(":{:04X}", address.port());
        let (own, other) = (port(self.address), port(client));
        table.lines().filter(|line| line.contains(&own)).any(|line| {
            let row: Vec<&str> = line.split_whitespace().collect();
            row[1].ends_with(&own) && row[2].ends_with(&other) && row[4].starts_with("00000000:")
        })
    }

    /// The value of a gauge of the controller.
    pub(crate) fn gauge(&self, wanted: Gauge) -> u64 {
        let gauges = self.pipeline_gauges.gauges();
        gauges.iter().find(|(gauge, _)| *gauge == wanted).map(|(_, value)| *value).unwrap()
    }

    /// Drains the engine, and checks what it has counted.
    pub(crate) fn stop(self) -> Ended {
        self.control.give(LoopOrder::Drain);
        let ended = self.thread.join().unwrap();
        assert_eq!(self.admission.open(), 0, "a place was not given back");
        let sum = |counter| -> u64 {
            self.locals.lock().unwrap().iter().map(|local| local.get(counter)).sum()
        };
        let (accepted, closed) = (sum(Counter::Accepted), sum(Counter::Closed));
        assert_eq!(accepted, closed, "a connection was not counted at its end");
        ended
    }
}

/// Does the work of [`Core::calm`]; `port` is the server's.
///
/// A thread for which something has come does not sleep before it has done what it can. It may have
/// woken another one by then, so each thread has to sleep once in each of several rounds.
#[track_caller]
pub(crate) fn calm(port: u16) {
    assert!(is_apart(), "threads of others may run");
    // more threads than any request passes through
    const HANDS: u32 = 6;
    delivered(port);
    for _ in 0..HANDS {
        let mut slept = BTreeSet::new();
        until(&mut || have_slept(&mut slept), "a thread of the server never sleeps");
    }
}

/// Does the work of [`Core::delivered`]; `port` is the server's.
#[track_caller]
pub(crate) fn delivered(port: u16) {
    until(&mut || is_delivered(port), "what was sent does not arrive");
}

#[track_caller]
fn until(is_so: &mut dyn FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether each other thread of this process has slept in this round: those that sleep now are added
/// (proc_pid_stat(5)). A thread that waits for a core does not sleep.
fn have_slept(slept: &mut BTreeSet<OsString>) -> bool {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let mut have_all = true;
    for thread in fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap) {
        let name = thread.file_name();
        if own.ends_with(&name) || slept.contains(&name) {
            continue;
        }
        match fs::read_to_string(thread.path().join("stat")) {
            Ok(stat) if !stat.contains(") S ") => have_all = false,
            // a thread that has ended does nothing either
            _ => _ = slept.insert(name),
        }
    }
    have_all
}

/// Whether all that the clients of the server at `port` have sent is at its end, and the end of
/// those that have left, too (proc_net_tcp(5)): no client has bytes or an end that are not
/// acknowledged, and no connection of the server lacks its client.
fn is_delivered(port: u16) -> bool {
    /// States of a connection: see `tcp_states.h`.
    const ESTABLISHED: &str = "01";
    const UNDER_WAY: [&str; 4] = ["02", "04", "09", "0B"];
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    // the table may have tens of thousands of other rows
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.contains(&port))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let (mut clients, mut served) = (BTreeSet::new(), Vec::new());
    for row in &rows {
        let (local, remote, state, queues) = (row[1], row[2], row[3], row[4]);
        if remote.ends_with(&port) {
            if UNDER_WAY.contains(&state) || !queues.starts_with("00000000:") {
                return false;
            }
            clients.insert((local, remote));
        } else if local.ends_with(&port) && state == ESTABLISHED {
            served.push((remote, local));
        }
    }
    served.iter().all(|pair| clients.contains(pair))
}

/// A request.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}
