//! The measuring: rounds, cases and servers interleaved; one row for each.

use crate::case::{Case, Mode};
use crate::client::{self, Client, Counted, Load};
use crate::content::{self, Scratch};
use crate::cpu::{self, Core, Used};
use crate::peer::{LIMIT, Peer, Setup};
use crate::probe::{self, Answer};
use crate::row::{Flag, Row};
use crate::running::{self, Process};
use crate::{Error, summary, tls};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// What is measured, and how.
#[derive(Debug)]
pub struct Plan {
    /// The workloads.
    pub cases: Vec<&'static Case>,
    /// The servers with their programs, in the order of the tables.
    pub servers: Vec<(&'static Peer, PathBuf)>,
    /// The clients that the cases need, with their programs.
    pub clients: Vec<(Client, PathBuf)>,
    /// Measurements of each server in each case.
    pub rounds: u32,
    /// Length of a measurement in seconds.
    pub seconds: u32,
    /// Length of the warm-up after each start in seconds.
    pub warmup_seconds: u32,
    /// Connections kept busy where the case does not say how many.
    pub connections: u32,
    /// The core of the servers.
    pub server_core: usize,
    /// The core of the client.
    pub client_core: usize,
}

impl Plan {
    fn connections(&self, case: &Case) -> u32 {
        case.http2.map_or(self.connections, |http2| http2.connections)
    }

    /// The results of `rows` as markdown.
    pub fn results(&self, rows: &[Row]) -> String {
        let order: Vec<_> = self.servers.iter().map(|(peer, _)| peer.name).collect();
        summary::results(rows, &self.cases, &order)
    }
}

/// A run under way.
#[derive(Debug)]
pub struct Run<'p> {
    plan: &'p Plan,
    scratch: Scratch,
    root: PathBuf,
    stop: Arc<AtomicBool>,
    /// Each start gets another port, so that none meets its predecessor's connections.
    port: u16,
    /// One answer's head for each case and server.
    heads: Vec<(&'static str, &'static str, String)>,
}

/// What the probe found out about a server's answer.
struct Probed {
    etag: String,
    bytes: usize,
    head: String,
}

impl<'p> Run<'p> {
    /// Makes the content. `stop` turns true when a signal asks to end.
    pub fn new(plan: &'p Plan, stop: Arc<AtomicBool>) -> Result<Run<'p>, Error> {
        let scratch = Scratch::new()?;
        let root = content::make(scratch.path())?;
        tls::make(&root)?;
        Ok(Run { plan, scratch, root, stop, port: 20_000, heads: Vec::new() })
    }

    /// Measures everything, and gives each row to `keep` at once.
    pub fn all(&mut self, mut keep: impl FnMut(Row) -> Result<(), Error>) -> Result<(), Error> {
        let plan = self.plan;
        for round in 1..=plan.rounds {
            for (at, case) in plan.cases.iter().enumerate() {
                let count = plan.servers.len();
                for place in 0..count {
                    // Whoever came first in the last round comes last in this one.
                    let turn = (place + at + round as usize - 1) % count;
                    let (peer, program) = &plan.servers[turn];
                    if !peer.speaks(case) {
                        continue;
                    }
                    let mut row = self.one(case, peer, program)?;
                    row.round = round;
                    row.place = place + 1;
                    keep(row)?;
                }
            }
        }
        Ok(())
    }

    /// The heads of one answer of each server in each case, as text.
    pub fn heads(&self) -> String {
        let part =
            |(case, server, head): &(_, _, String)| format!("### {case} {server}\n{head}\n\n");
        self.heads.iter().map(part).collect()
    }

    /// Starts a server, checks its answer, warms it up, measures it, stops it.
    fn one(
        &mut self,
        case: &'static Case,
        peer: &'static Peer,
        program: &Path,
    ) -> Result<Row, Error> {
        let scratch = self.scratch.path().join("server");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir(&scratch).map_err(Error::io("cannot make the folder", &scratch))?;
        self.port = running::free_port(self.port + 1)
            .or_else(|| running::free_port(20_000))
            .ok_or_else(|| Error::Client("no free port between 20000 and 32000".into()))?;
        let setup = Setup { program, root: &self.root, scratch: &scratch, port: self.port, case };
        let mut process = running::serve(peer, &setup, self.plan.server_core, &self.stop)?;
        let probed = probe_case(peer, &setup)?;
        if !self.heads.iter().any(|(c, s, _)| (*c, *s) == (case.name, peer.name)) {
            self.heads.push((case.name, peer.name, probed.head.clone()));
        }
        let (mut row, warmed) = self.load(case, peer, &process, &probed)?;
        if process.end() {
            row.flags.push(Flag::Killed);
        }
        if let Some(log) = peer.log(&setup) {
            row.log_lines = Some(lines(&log).map_err(Error::io("cannot read", &log))?);
        }
        row.judge(case, self.plan.connections(case), warmed);
        Ok(row)
    }

    /// Warms up, then measures. Returns the row and how many answers came before it.
    fn load(
        &self,
        case: &'static Case,
        peer: &'static Peer,
        process: &Process,
        probed: &Probed,
    ) -> Result<(Row, u64), Error> {
        let plan = self.plan;
        let scratch = self.scratch.path();
        let scheme = if case.tls { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}/{}", self.port, case.file);
        let program = plan.clients.iter().find(|(client, _)| *client == Client::of(case));
        let (_, program) = program.ok_or_else(|| Error::Client("not looked for".into()))?;
        let connections = plan.connections(case);
        let load = Load { program, core: plan.client_core, connections, scratch };
        let ask = |seconds| client::run(&load, case, &probed.etag, &url, seconds, &self.stop);
        let warm = ask(plan.warmup_seconds)?;

        let before = Meter::read(process, plan);
        let counted = ask(plan.seconds)?;
        let after = Meter::read(process, plan);

        let family = running::family(process);
        let pinned = cpu::are_pinned(&family, plan.server_core);
        let mut row = after.row_since(&before, case, peer, counted);
        row.answer_bytes = probed.bytes;
        if !pinned {
            row.flags.push(Flag::Unpinned);
        }
        Ok((row, warm.requests))
    }
}

/// The counters at one moment.
struct Meter {
    when: Instant,
    used: Used,
    server_core: Core,
    client_core: Core,
}

impl Meter {
    fn read(process: &Process, plan: &Plan) -> Meter {
        Meter {
            used: Used::read(&running::family(process)),
            server_core: Core::read(plan.server_core),
            client_core: Core::read(plan.client_core),
            when: Instant::now(),
        }
    }

    fn row_since(
        &self,
        before: &Meter,
        case: &'static Case,
        peer: &'static Peer,
        counted: Counted,
    ) -> Row {
        Row {
            case: case.name,
            round: 0,
            place: 0,
            server: peer.name,
            counted,
            cpu_ns: self.used.since(&before.used),
            wall_ns: self.when.duration_since(before.when).as_nanos() as u64,
            server_core: self.server_core.since(&before.server_core),
            client_core: self.client_core.since(&before.client_core),
            answer_bytes: 0,
            log_lines: None,
            flags: Vec::new(),
        }
    }
}

/// Asks once as the client will, and compares the answer with what the case expects.
fn probe_case(peer: &'static Peer, setup: &Setup<'_>) -> Result<Probed, Error> {
    let case = setup.case;
    let wrong = |what: String| Error::WrongAnswer { server: peer.name, case: case.name, what };
    let ask = |fields: &str| -> Result<Answer, Error> {
        probe::ask(setup, fields).map_err(|error| wrong(error.to_string()))
    };
    let close = if case.mode == Mode::Close { "Connection: close\r\n" } else { "" };
    let mut answer = ask(close)?;
    let etag = answer.field("etag").unwrap_or_default().to_owned();
    if case.mode == Mode::NotModified {
        answer = ask(&format!("If-None-Match: {etag}\r\n"))?;
    }
    let (status, length) =
        if case.mode == Mode::NotModified { (304, 0) } else { (200, case.body_bytes) };
    if answer.status != status {
        return Err(wrong(format!("status {} instead of {status}", answer.status)));
    }
    if answer.body.len() != length {
        return Err(wrong(format!("{} body bytes instead of {length}", answer.body.len())));
    }
    // The floor has no file.
    if peer.name != LIMIT && answer.body != content::body(length) {
        return Err(wrong("other bytes than the file's".into()));
    }
    if answer.head.starts_with("HTTP/2") != case.http2.is_some() {
        return Err(wrong("another version of HTTP".into()));
    }
    let head_bytes = if case.http2.is_some() { 0 } else { answer.head.len() + 4 };
    Ok(Probed { etag, bytes: head_bytes + length, head: answer.head })
}

/// How many lines a file has, without holding it in memory.
fn lines(path: &Path) -> std::io::Result<u64> {
    let mut file = fs::File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    let mut count = 0;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(count),
            n => count += chunk[..n].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

/// Sets the flag that [`Run::new`] takes when SIGINT, SIGTERM or SIGHUP arrives.
pub fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
