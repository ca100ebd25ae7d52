//! The loop of one thread: it sends what is due, reads what arrives, and counts everything.
//!
//! All times are nanoseconds after the start of the run. The clock is read once per turn and once per piece
//! of input, so that after a long batch of events later answers do not look early.
//!
//! | file | what it holds |
//! |---|---|
//! | `request.rs` | a request under way |
//! | `client.rs` | a client's state |
//! | `group.rs` | this thread's share of a group |
//! | `connect.rs` | connections: how they begin, fail and are closed |
//! | `send.rs` | which request goes out next |
//! | `receive.rs` | input, and the judgement of answers |
//! | `http2.rs` | connections of HTTP/2 |
//! | `spoken.rs` | recognising a server that speaks another protocol |
//! | `line.rs` | clients that receive at a limited rate |

mod client;
mod connect;
mod group;
mod http2;
mod line;
mod receive;
mod request;
mod send;
mod spoken;

use crate::failure::RequestFailure;
use crate::plan::{LoadModel, LoadPlan};
use crate::tally::{ClientTotals, GroupTally, TimeHistogram};
use client::{ClientPhase, LoadClient};
use forebay_http2::DecodedFields;
use forebay_sys::epoll::{Epoll, Events};
use forebay_sys::{clock, process};
use group::{GroupShare, LoopKind};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The size of the input buffer, in bytes; longer answers are read in pieces.
const INPUT_BYTES: usize = 64 * 1024;
const EVENTS: usize = 512;
/// The shortest time between two checks of all clients for timeouts, in ns. The time grows with the number of
/// clients, so that checks take less than a thousandth of the time.
const SCAN_NS: u64 = 20_000_000;
const SCAN_PER_CLIENT_NS: u64 = 10_000;
/// How late clients' timers may fire, in ns, so that many of them share a wake-up. Schedules of arrivals are
/// kept exactly.
const TIMER_SLACK_NS: u64 = 500_000;
/// The longest time of an empty poll of the sockets, in ns.
const LONGEST_SPIN_NS: u64 = 5_000;
/// The time of an empty poll above which another thread must have had the core in between, in ns.
const PREEMPTED_NS: u64 = 200_000;
/// How long a core is assumed to be shared after that, in ns.
const SHARED_CORE_NS: u64 = 500_000_000;
/// How much longer than they should sleeps before the start may last, in ns.
const OVERSLEPT_NS: u64 = 2_000_000;
/// The longest wait, in ns, so that a request to stop is noticed.
const LONGEST_WAIT_NS: u64 = 100_000_000;

/// The counts of a thread in one interval.
pub(crate) struct Interval {
    /// The index in the timeline; one past the end for the drain.
    pub(crate) index: usize,
    /// When the interval ended, after the start: before the time in the timeline if the run ended early.
    pub(crate) end_ns: u64,
    /// The counts of each group.
    pub(crate) tallies: Vec<GroupTally>,
    /// How late this thread did what it had planned for a certain time.
    pub(crate) lateness: TimeHistogram,
}

/// The final figures of a thread.
pub(crate) struct Finished {
    /// CPU time used in the measured time.
    pub(crate) cpu_ns: u64,
    /// Time in which the thread could run but had no core, in the measured time.
    pub(crate) starved_ns: u64,
    /// CPU time spent spinning until the next arrival, in the measured time.
    pub(crate) spun_ns: u64,
    /// The length of the measured time as this thread saw it.
    pub(crate) measured_ns: u64,
    /// The totals of each client of each group (closed loops only).
    pub(crate) clients: Vec<Vec<ClientTotals>>,
}

/// The state that all threads share.
pub(crate) struct RunState<'p> {
    pub(crate) plan: &'p LoadPlan,
    /// The TLS client of each group that speaks TLS.
    pub(crate) tls: &'p [Option<forebay_tls::TlsClient>],
    /// The start, on the monotonic clock.
    pub(crate) start_ns: u64,
    /// Ends of the intervals, ascending; the last one is the end of the run.
    pub(crate) timeline: &'p [u64],
    /// Set when the run must end early.
    pub(crate) stop: &'p AtomicBool,
    /// The number of threads that still have requests to make or answers to await.
    pub(crate) at_work: AtomicUsize,
    /// When the last of these threads was done, after the start; `u64::MAX`: not yet.
    pub(crate) done_ns: AtomicU64,
}

/// CPU time and starvation of a thread at one moment.
#[derive(Clone, Copy, Default)]
struct Usage {
    at_ns: u64,
    cpu_ns: u64,
    starved_ns: u64,
    spun_ns: u64,
}

pub(crate) struct LoadWorker<'p> {
    shared: &'p RunState<'p>,
    index: usize,
    epoll: Epoll,
    clients: Vec<LoadClient>,
    groups: Vec<GroupShare<'p>>,
    timers: crate::timers::Timers,
    /// The input of a socket; empty while it is processed.
    input: Box<[u8]>,
    /// The input decrypted by TLS; empty while it is processed, and where no group speaks TLS.
    plain: Box<[u8]>,
    output: Vec<u8>,
    /// The output encrypted by TLS.
    sealed: Vec<u8>,
    /// The fields of an answer of HTTP/2.
    fields: DecodedFields,
    now_ns: u64,
    /// The time up to which all arrived input has been processed.
    looked_ns: u64,
    /// The index of the current interval.
    interval: usize,
    lateness: TimeHistogram,
    next_scan_ns: u64,
    warmup_ns: u64,
    end_ns: u64,
    /// Whether this thread has made its part of a number of requests, and seen each of them end.
    is_done: bool,
    /// The wait for the next arrival below which the thread spins, in ns.
    spin_ns: u64,
    spun_ns: u64,
    /// The time until which the core is known to be shared, and the thread does not spin.
    sleep_until_ns: u64,
    usage: [Usage; 2],
    results: Sender<Interval>,
}

impl<'p> LoadWorker<'p> {
    pub(crate) fn new(
        shared: &'p RunState<'p>,
        index: usize,
        results: Sender<Interval>,
    ) -> io::Result<LoadWorker<'p>> {
        let plan = shared.plan;
        if let Some(client) = shared.tls.iter().flatten().next() {
            // the first TLS output of a thread takes some 20 ms, because its random numbers are seeded; it is
            // not sent
            client.connect().map_err(io::Error::other)?;
        }
        let groups = plan.groups.iter().enumerate();
        let mut worker = LoadWorker {
            shared,
            index,
            epoll: Epoll::new()?,
            clients: Vec::new(),
            groups: groups.map(|(place, g)| GroupShare::new(plan, g, place, index)).collect(),
            timers: crate::timers::Timers::default(),
            input: vec![0; INPUT_BYTES].into(),
            plain: vec![
                0;
                if plan.groups.iter().any(|g| g.target.is_tls) { INPUT_BYTES } else { 0 }
            ]
            .into(),
            output: Vec::with_capacity(16 * 1024),
            sealed: Vec::new(),
            fields: DecodedFields::default(),
            now_ns: 0,
            looked_ns: 0,
            interval: 0,
            lateness: TimeHistogram::new(),
            next_scan_ns: SCAN_NS,
            warmup_ns: plan.warmup.as_nanos() as u64,
            end_ns: (plan.warmup + plan.duration).as_nanos() as u64,
            is_done: false,
            spin_ns: plan.spin.as_nanos() as u64,
            spun_ns: 0,
            sleep_until_ns: 0,
            usage: [Usage::default(); 2],
            results,
        };
        for group in 0..worker.groups.len() {
            worker.plan_closed_clients(group);
        }
        Ok(worker)
    }

    /// Plans the start of a closed loop's clients, which exist from the start and begin when their timers
    /// fire.
    fn plan_closed_clients(&mut self, place: usize) {
        let LoadModel::Closed { connections, ramp, .. } = &self.groups[place].plan.load else {
            return;
        };
        let ramp_ns = ramp.as_nanos() as f64 / f64::from(*connections);
        for _ in 0..self.groups[place].clients_limit {
            let slot = self.new_client(place);
            let begin_ns = ramp_ns * f64::from(self.clients[slot].number);
            let at_ns = self.groups[place].from_ns + begin_ns as u64;
            self.wake_at(slot, ClientPhase::Waiting, at_ns);
        }
    }

    fn new_client(&mut self, place: usize) -> usize {
        let threads = self.shared.plan.threads;
        let group = &mut self.groups[place];
        let number = group.clients * threads as u32 + self.index as u32;
        group.clients += 1;
        let tls = self.shared.tls[place].as_ref().map(forebay_tls::TlsClient::another);
        self.clients.push(LoadClient::new(place, number, group.wants_crc32(), tls));
        self.clients.len() - 1
    }

    /// Runs the loop to the end of the drain.
    pub(crate) fn run(mut self) -> io::Result<Finished> {
        let plan = self.shared.plan;
        if let Some(core) = plan.cores.get(self.index % plan.cores.len().max(1)) {
            process::pin_to_core(*core)?;
        }
        process::wake_sharply()?;
        let mut events = Events::with_capacity(EVENTS);
        let lead_ns = self.shared.start_ns.saturating_sub(clock::monotonic_ns());
        std::thread::sleep(Duration::from_nanos(lead_ns.saturating_sub(OVERSLEPT_NS)));
        while clock::monotonic_ns() < self.shared.start_ns {
            std::thread::yield_now();
        }
        if self.warmup_ns == 0 {
            self.usage[0] = self.usage_now();
        }
        loop {
            self.now_ns = self.clock();
            if self.keep_time() {
                break;
            }
            self.ring_timers();
            self.take_arrivals();
            let wait_ns = self.wait_ns();
            let spin = wait_ns > 0 && self.arrival_is_near();
            self.epoll.wait_ns(&mut events, if spin { 0 } else { wait_ns })?;
            let now_ns = self.clock();
            if spin && events.is_empty() {
                self.note_spin(now_ns);
            }
            self.now_ns = now_ns;
            if !events.is_full() {
                self.looked_ns = now_ns;
            }
            for event in events.iter() {
                self.on_event(event);
            }
        }
        self.report();
        Ok(self.finish())
    }

    #[inline]
    fn clock(&self) -> u64 {
        clock::monotonic_ns() - self.shared.start_ns
    }

    /// The time until the next action.
    #[inline]
    fn wait_ns(&self) -> u64 {
        let boundary = self.shared.timeline.get(self.interval).copied().unwrap_or(u64::MAX);
        let timer = self.timers.next_ns().map_or(u64::MAX, |at| at + TIMER_SLACK_NS);
        let next = self.next_scan_ns.min(boundary).min(timer).min(self.next_arrival_ns());
        next.saturating_sub(self.now_ns).min(LONGEST_WAIT_NS)
    }

    #[inline]
    fn next_arrival_ns(&self) -> u64 {
        let arrivals = self.groups.iter().filter_map(|group| group.next_arrival);
        arrivals.map(|arrival| arrival.at_ns).min().unwrap_or(u64::MAX)
    }

    /// Whether to spin, because a sleep and the wake-up would take longer than is left, or nearly.
    #[inline]
    fn arrival_is_near(&self) -> bool {
        self.now_ns >= self.sleep_until_ns
            && self.next_arrival_ns().saturating_sub(self.now_ns) < self.spin_ns
    }

    /// Records an empty poll of the sockets that took until `now_ns`. If it was long, another thread had the
    /// core. On a shared core a thread that spins loses its turn when it needs it, while one that sleeps gets
    /// it at once. So the thread sleeps for a while.
    #[inline]
    fn note_spin(&mut self, now_ns: u64) {
        let took_ns = now_ns - self.now_ns;
        self.spun_ns += took_ns.min(LONGEST_SPIN_NS);
        if took_ns > PREEMPTED_NS {
            self.sleep_until_ns = now_ns + SHARED_CORE_NS;
        }
    }

    #[inline]
    fn interval_is_over(&self) -> bool {
        self.shared.timeline.get(self.interval).is_some_and(|end| *end <= self.now_ns)
    }

    /// Closes intervals that have ended and gives up what takes too long. Returns true when the run is over.
    fn keep_time(&mut self) -> bool {
        // a thread that did not get its core until after the end still offers what was due before it
        if self.interval_is_over() {
            self.take_arrivals();
        }
        if self.shared.plan.is_counted() {
            self.look_whether_done();
        }
        while self.interval_is_over() {
            let ended_ns = self.shared.timeline[self.interval];
            self.report();
            if ended_ns == self.warmup_ns {
                self.usage[0] = self.usage_now();
            }
        }
        if self.now_ns < self.next_scan_ns {
            return false;
        }
        self.next_scan_ns = self.now_ns + SCAN_NS + SCAN_PER_CLIENT_NS * self.clients.len() as u64;
        let stopped = self.shared.stop.load(Ordering::Relaxed);
        if stopped && self.now_ns < self.end_ns {
            self.stop_now();
        }
        self.expire();
        if self.now_ns < self.end_ns {
            return false;
        }
        if self.usage[1].at_ns == 0 {
            self.usage[1] = self.usage_now();
        }
        if stopped || self.now_ns >= self.end_ns + self.shared.plan.drain.as_nanos() as u64 {
            self.give_up();
            return true;
        }
        self.is_drained()
    }

    /// Checks whether a run of a number of requests is over, that is whether the last thread has seen its
    /// last request end.
    fn look_whether_done(&mut self) {
        if !self.is_done {
            let is_over = self.groups.iter().all(|group| self.now_ns >= group.until_ns);
            self.is_done = is_over && self.is_drained();
            if self.is_done && self.shared.at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.shared.done_ns.store(self.now_ns, Ordering::Release);
            }
        }
        let done_ns = self.shared.done_ns.load(Ordering::Acquire);
        if done_ns < self.end_ns {
            self.end_ns = done_ns;
            self.usage[1] = Usage { at_ns: done_ns, ..self.usage_now() };
            self.next_scan_ns = self.now_ns;
        }
    }

    /// Sends the counts since the last boundary.
    fn report(&mut self) {
        let fresh =
            |group: &mut GroupShare<'_>| std::mem::replace(&mut group.tally, GroupTally::new());
        let tallies = self.groups.iter_mut().map(fresh).collect();
        let lateness = std::mem::replace(&mut self.lateness, TimeHistogram::new());
        // the channel has no receiver only if the run was abandoned
        let boundary_ns = self.shared.timeline.get(self.interval).copied().unwrap_or(u64::MAX);
        let end_ns = boundary_ns.min(self.now_ns.min(self.end_ns));
        let _ = self.results.send(Interval { index: self.interval, end_ns, tallies, lateness });
        self.interval += 1;
    }

    /// Ends the run at once: no arrivals, no new requests, no drain.
    fn stop_now(&mut self) {
        self.end_ns = self.now_ns;
        for group in &mut self.groups {
            group.until_ns = group.until_ns.min(self.now_ns);
            group.next_arrival = None;
            group.waiting.clear();
        }
    }

    /// Fails every request and connection whose time is up. Input that arrived in time, but was not processed
    /// because this thread stood still, is not late.
    fn expire(&mut self) {
        for slot in 0..self.clients.len() {
            if self.clients[slot].deadline_ns <= self.looked_ns {
                let client = &self.clients[slot];
                match client.phase {
                    ClientPhase::Connecting => {
                        self.connect_failed(slot, RequestFailure::ConnectTimeout)
                    }
                    ClientPhase::Busy if client.pending.is_empty() => self.never_asked(slot),
                    _ if client.http2.is_some() => self.cancel_late(slot),
                    _ => self.fail_all(slot, RequestFailure::Timeout, RequestFailure::Timeout),
                }
            }
        }
        for group in &mut self.groups {
            let oldest = self.now_ns.saturating_sub(group.timeout_ns);
            while group.waiting.front().is_some_and(|arrival| arrival.at_ns < oldest) {
                group.waiting.pop_front();
                group.tally.fail(RequestFailure::Unsent);
            }
        }
    }

    fn is_drained(&self) -> bool {
        let idle = |client: &LoadClient| {
            let connects = client.phase == ClientPhase::Connecting;
            client.pending.is_empty() && (!connects || self.groups[client.group].has_made_all())
        };
        self.groups.iter().all(|group| group.waiting.is_empty()) && self.clients.iter().all(idle)
    }

    /// Ends what is still under way when the drain is over.
    fn give_up(&mut self) {
        for slot in 0..self.clients.len() {
            match self.clients[slot].phase {
                ClientPhase::Connecting => self.connect_failed(slot, RequestFailure::Unfinished),
                ClientPhase::Busy
                    if self.groups[self.clients[slot].group].kind == LoopKind::Closed =>
                {
                    self.cut_off(slot);
                }
                ClientPhase::Busy => {
                    self.fail_all(slot, RequestFailure::Unfinished, RequestFailure::Unfinished)
                }
                _ => {}
            }
        }
        for group in &mut self.groups {
            group.waiting.drain(..).for_each(|_| group.tally.fail(RequestFailure::Unsent));
        }
    }

    /// Ends the connection of a closed-loop client in the middle of its requests, as every closed loop ends.
    /// The requests do not count as failed, but have taken at least the time until now.
    fn cut_off(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let tally = &mut self.groups[client.group].tally;
        for request in client.pending.drain(..) {
            tally.counts.cut += 1;
            tally.actual.record(self.now_ns - request.started_ns);
        }
        self.close(slot);
    }

    fn finish(self) -> Finished {
        let mut clients = vec![Vec::new(); self.groups.len()];
        for client in &self.clients {
            if self.groups[client.group].kind == LoopKind::Closed {
                clients[client.group].push(client.totals);
            }
        }
        let [begin, end] = self.usage;
        Finished {
            cpu_ns: end.cpu_ns.saturating_sub(begin.cpu_ns),
            starved_ns: end.starved_ns.saturating_sub(begin.starved_ns),
            spun_ns: end.spun_ns.saturating_sub(begin.spun_ns),
            measured_ns: end.at_ns.saturating_sub(begin.at_ns),
            clients,
        }
    }

    /// Sets a client's state and the time of its timer.
    fn wake_at(&mut self, slot: usize, phase: ClientPhase, at_ns: u64) {
        let client = &mut self.clients[slot];
        client.phase = phase;
        client.timer_ns = at_ns;
        self.timers.add(at_ns, slot as u32);
    }

    /// Runs the clients' timers that are due.
    fn ring_timers(&mut self) {
        while let Some((at_ns, slot)) = self.timers.pop_due(self.now_ns) {
            let slot = slot as usize;
            let client = &mut self.clients[slot];
            if client.timer_ns != at_ns {
                continue;
            }
            client.timer_ns = u64::MAX;
            let over = self.now_ns >= self.groups[client.group].until_ns;
            match client.phase {
                ClientPhase::Waiting | ClientPhase::Thinking if over => self.close(slot),
                ClientPhase::Waiting => self.connect(slot),
                ClientPhase::Thinking if client.socket.is_none() => self.connect(slot),
                ClientPhase::Thinking => self.send_requests(slot),
                ClientPhase::Holding => self.end_connection(slot, false),
                ClientPhase::Busy => self.line_is_free(slot),
                ClientPhase::Free | ClientPhase::Connecting | ClientPhase::Idle => {}
            }
        }
    }

    /// Takes the arrivals that are due, and finds connections for the waiting ones.
    fn take_arrivals(&mut self) {
        for place in 0..self.groups.len() {
            let group = &mut self.groups[place];
            if group.kind == LoopKind::Closed {
                continue;
            }
            let all_taken = group.all_taken();
            while let Some(arrival) = group.pop_arrival(self.now_ns) {
                self.lateness.record(self.now_ns - arrival.at_ns);
                group.tally.counts.offered += 1;
                group.tally.counts.waited += u64::from(all_taken);
                group.waiting.push_back(arrival);
            }
            if !group.waiting.is_empty() {
                self.serve_waiting(place);
            }
        }
    }

    /// CPU time, starvation and spinning of this thread up to now.
    fn usage_now(&self) -> Usage {
        Usage {
            at_ns: self.now_ns,
            cpu_ns: clock::thread_cpu_ns(),
            starved_ns: starved_ns(),
            spun_ns: self.spun_ns,
        }
    }
}

/// How long this thread could have run but had no core, in ns; the kernel's line is `run-time wait-time
/// slices` (proc(5), schedstat).
fn starved_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
