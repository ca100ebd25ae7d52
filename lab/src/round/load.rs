//! Measurements of kind `load`: servers are started, clients connect, and both are measured.

use super::points::{SweepPoint, is_skipped, points};
use super::{RoundOptions, wording};
use crate::cage::CageLimits;
use crate::catalogue::folder;
use crate::content::body;
use crate::experiment::{Experiment, GroupText, LoadTask, SweepAxis};
use crate::load::{self, LoadResult, client};
use crate::network::{self, NetworkPair};
use crate::options::Options;
use crate::rows::recorded::RowFile;
use crate::rows::{NOISY, RawRow};
use crate::run::Run;
use crate::servers::{FormEntry, KnownServers, ServerEntry};
use crate::serving::{self, Forebay, PeerProcess, Serving};
use crate::{Error, measure, peers, running};
use forebay_load::{ClientGroup, GroupDraft, LoadPlan, LoadTarget, fileset};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use wording::PointWords;

/// The time for which a capacity is measured.
const CAPACITY: Duration = Duration::from_secs(2);
/// The share of the generator's time that other programs may have; above it a row is noisy.
const NOISE: f64 = 0.05;

/// The state of a run of an experiment of kind `load`, for all its rounds.
pub struct LoadRun {
    run: Run,
    known: KnownServers,
    /// Capacities by server and name.
    capacities: Vec<(String, String, f64)>,
    /// The limits of servers while they are measured.
    limits: CageLimits,
    is_calibrated: bool,
}

/// A server in a form, which takes a turn.
#[derive(Clone, Copy, Debug)]
struct ServerTurn<'t> {
    server: &'t ServerEntry,
    form: Option<&'t FormEntry>,
}

impl LoadRun {
    /// Enters the place. Where that is a network of its own this program is started again within
    /// it, so this must be called before anything else is done.
    ///
    /// # Errors
    /// Without the right to make the place, or where `servers.toml` is wrong.
    pub fn enter(task: &LoadTask, options: &RoundOptions) -> Result<LoadRun, Error> {
        let (server_core, client_core) = match task.place.setting("cores") {
            "one" => (0, 0),
            _ => (0, 1),
        };
        let send_buffer = forebay_load::units::size(task.place.setting("send_buffer"));
        let send_buffer = send_buffer.ok().and_then(|bytes| usize::try_from(bytes).ok());
        let pair = match task.place.network.as_str() {
            "pair" => Some(NetworkPair::enter(server_core, client_core)?),
            "own" => {
                network::enter()?;
                send_buffer.map_or(Ok(()), |_| network::send_as_a_network())?;
                None
            }
            _ => None,
        };
        send_buffer.map_or(Ok(()), network::bound_send_buffers)?;
        let known = KnownServers::read(&folder().join("servers.toml")).map_err(Error::Client)?;
        running::pin(server_core)?;
        running::pin(client_core)?;
        let asked = Options {
            rounds: 1,
            measured: task.measured,
            servers: Vec::new(),
            sweep: Vec::new(),
            server_core,
            client_core,
            program: options.built.join("forebay"),
            before: None,
            set: String::new(),
            quick: options.quick,
            out: None,
            list: false,
            settings: Vec::new(),
        };
        let mut run = Run::new(asked, PathBuf::new(), true)?;
        run.pair = pair;
        for (name, bytes) in &task.content {
            let path = run.root.join(name);
            let body = body(usize::try_from(*bytes).unwrap_or_default());
            fs::write(&path, body).map_err(Error::io("cannot write", &path))?;
        }
        if let Some(connections) = task.fileset {
            let mix = fileset::specweb99_mix("/", fileset::specweb99_directories(connections));
            fileset::write(&mix, &run.root).map_err(Error::io("cannot write", &run.root))?;
        }
        let limits = CageLimits { memory_bytes: task.place.memory_bytes, cpu: None };
        Ok(LoadRun { run, known, capacities: Vec::new(), limits, is_calibrated: false })
    }

    /// Lines of a header: the capacities that were found.
    pub fn header(&self) -> Vec<(String, String)> {
        let line = |(server, name, per_s): &(String, String, f64)| {
            ("capacity".to_owned(), format!("{server} {name} {per_s:.1}"))
        };
        self.capacities.iter().map(line).collect()
    }

    /// The rows of one round.
    ///
    /// # Errors
    /// When a server does not come up, or the load cannot be made.
    pub fn measure(
        &mut self,
        experiment: &Experiment,
        task: &LoadTask,
        round: u32,
        options: &RoundOptions,
    ) -> Result<RowFile, Error> {
        let known = self.known.clone();
        self.calibrate(experiment, task, &known)?;
        let turns = turns(experiment, task, &known, options)?;
        let own = experiment.keys().into_iter().map(str::to_owned).collect();
        let axes = experiment.sweep.iter().map(|axis| format!("{}_at", axis.name));
        let figures = axes.chain(task.measures.iter().cloned()).collect();
        let mut file = RowFile { words: own, figures, ..RowFile::default() };
        for (at, point) in points(experiment, options.quick, &options.set, round).iter().enumerate()
        {
            for place in 0..turns.len() {
                // the server that came first at the last point, or in the last round, comes later
                // now
                let turn = turns[(place + at + round as usize - 1) % turns.len()];
                let who = [
                    ("server".to_owned(), turn.server.name.clone()),
                    ("form".to_owned(), turn.form.map_or_else(String::new, |f| f.name.clone())),
                ];
                if is_skipped(experiment, &[point.as_slice(), &who].concat()) {
                    continue;
                }
                self.run.go_on()?;
                let before = RawRow::new(round, place + 1);
                let before =
                    who.iter().fold(before, |row, (key, word)| row.word(key, word.clone()));
                let rows = self.one(experiment, task, turn, (point, &before), options)?;
                for row in &rows {
                    eprint!("{}", file.line(row));
                }
                file.rows.extend(rows);
            }
        }
        Ok(file)
    }

    /// One server at one point: a row for each group, and one for all.
    fn one(
        &mut self,
        experiment: &Experiment,
        task: &LoadTask,
        turn: ServerTurn<'_>,
        (point, before): (&SweepPoint, &RawRow),
        options: &RoundOptions,
    ) -> Result<Vec<RawRow>, Error> {
        for capacity in &task.capacities {
            self.capacity(task, turn.server, capacity)?;
        }
        let mut words = PointWords::new(self.of_server(&turn.server.name));
        words.add_all(&turn.server.words);
        words.add_all(&task.cast.words);
        if let Some(form) = turn.form {
            words.add_all(&form.words);
            words.tags(&form.tags);
        }
        words.tags(&task.cast.tags);
        words.add_all(point);
        let lines = words.lines(&task.cast.lines);
        let quick = experiment.quick.as_ref().filter(|_| options.quick);
        let warmup = quick.and_then(|quick| quick.warmup).unwrap_or(task.warmup);
        let measured = quick.and_then(|quick| quick.measured).unwrap_or(task.measured);
        let seen = self.load(
            (turn.server, &words, &format!("{lines}\n{}", task.cast.base)),
            &task.groups,
            (warmup, measured, u64::from(before.round)),
            self.limits,
        )?;
        let mut row = before.clone();
        for (axis, word) in point {
            row = row.word(axis, word.clone());
            if let Some(number) = words.number(axis) {
                row = row.figure(&format!("{axis}_at"), number);
            }
        }
        let row = row.flag(NOISY, seen.report.generator.starved > NOISE);
        let of_group = |group: &forebay_load::report::GroupReport| {
            let row = row.clone().word("group", group.name.clone());
            task.measures.iter().fold(row, |row, name| {
                row.figure(name, measure::of(name, group, &seen).unwrap_or(f64::NAN))
            })
        };
        let mut rows: Vec<RawRow> = seen.report.groups.iter().map(of_group).collect();
        let all = row.clone().word("group", "all");
        rows.push(task.measures.iter().fold(all, |row, name| {
            row.figure(name, measure::of_all(name, &seen).unwrap_or(f64::NAN))
        }));
        Ok(rows)
    }

    /// The capacities of a server, by their names.
    fn of_server(&self, server: &str) -> Vec<(String, f64)> {
        let own = self.capacities.iter().filter(|(known, ..)| known == server);
        own.map(|(_, name, per_s)| (name.clone(), *per_s)).collect()
    }

    /// Finds the part of a core that servers get, by the cost of an answer of the named server at
    /// the last point of the sweep; then slows the cable down. Capacities are those of whole cores,
    /// and of a cable that carries all.
    fn calibrate(
        &mut self,
        experiment: &Experiment,
        task: &LoadTask,
        known: &KnownServers,
    ) -> Result<(), Error> {
        if self.is_calibrated {
            return Ok(());
        }
        self.is_calibrated = true;
        if let Some(share) = &task.place.cpu {
            let server =
                known.server(&share.server).ok_or_else(|| lacking("server", &share.server))?;
            let mut words = PointWords::new(Vec::new());
            words.add_all(&server.words);
            words.add_all(&task.cast.words);
            let last = |axis: &SweepAxis| Some((axis.name.clone(), axis.values.last()?.clone()));
            words.add_all(&experiment.sweep.iter().filter_map(last).collect::<Vec<_>>());
            let window = (task.warmup, task.measured, 1);
            let seen =
                self.load((server, &words, &task.cast.base), &task.groups, window, self.limits)?;
            let per_s = measure::of_all("rate_per_s", &seen).unwrap_or(0.0);
            if per_s <= 0.0 {
                return Err(Error::Client(format!("{} answers nothing", server.name)));
            }
            let part = share.per_s * seen.server_cores / per_s;
            self.limits.cpu = Some(part.min(1.0));
            eprintln!("{}: {per_s:.0}/s; every server gets {part:.3} of a core", server.name);
        }
        match (&self.run.pair, task.place.line.as_str()) {
            (Some(pair), line) if !line.is_empty() => pair.slow_down(line),
            _ => Ok(()),
        }
    }

    /// Measures the capacity of a server without a policy, once.
    fn capacity(
        &mut self,
        task: &LoadTask,
        server: &ServerEntry,
        group: &GroupText,
    ) -> Result<(), Error> {
        let is_known =
            |(known, name, _): &(String, String, f64)| *known == server.name && *name == group.name;
        if self.capacities.iter().any(is_known) {
            return Ok(());
        }
        let mut words = PointWords::new(Vec::new());
        words.add_all(&server.words);
        words.add_all(&task.cast.words);
        let window = (Duration::from_millis(500), CAPACITY, 1);
        let groups = std::slice::from_ref(group);
        let whole = CageLimits::default();
        let seen = self.load((server, &words, &task.cast.base), groups, window, whole)?;
        let per_s = seen.report.groups.first().map_or(0.0, |group| group.good_rate);
        if per_s <= 0.0 {
            return Err(Error::Client(format!(
                "{} answers nothing of {}",
                server.name, group.name
            )));
        }
        eprintln!("{}: capacity for {}: {per_s:.1}/s", server.name, group.name);
        self.capacities.push((server.name.clone(), group.name.clone(), per_s));
        Ok(())
    }

    /// Starts a server, has clients connect, stops it.
    fn load(
        &self,
        (server, words, lines): (&ServerEntry, &PointWords, &str),
        groups: &[GroupText],
        (warmup, measured, seed): (Duration, Duration, u64),
        limits: CageLimits,
    ) -> Result<LoadResult, Error> {
        let run = &self.run;
        let serving = self.start(server, words, lines, limits)?;
        let host = run.pair.as_ref().map_or(Ipv4Addr::LOCALHOST, |_| NetworkPair::SERVER);
        let base = LoadTarget::parse(&format!("http://{host}:{}/", serving.port()));
        let base = base.map_err(client)?;
        let groups = groups.iter().filter_map(|group| draft(group, words, &base).transpose());
        let plan = LoadPlan {
            duration: measured,
            warmup,
            // an answer after the end is no answer of the measured time
            drain: Duration::ZERO,
            interval: Some(Duration::from_millis(measure::POINT_MS)),
            cores: vec![run.options.client_core],
            seed,
            groups: groups.collect::<Result<_, _>>()?,
            ..LoadPlan::default()
        };
        let come =
            |plan: &LoadPlan| load::run_from(run.pair.as_ref(), run, &serving, plan, &mut |_| {});
        if limits.memory_bytes.is_some() {
            serving.read_once(&run.root)?;
        }
        if limits.cpu.is_some() {
            // work that a process does once, for its first request, must not count for a small part
            // of a core
            come(&LoadPlan { duration: warmup, warmup: Duration::ZERO, ..plan.clone() })?;
            serving.throttle()?;
        }
        come(&plan)
    }

    fn start(
        &self,
        server: &ServerEntry,
        words: &PointWords,
        lines: &str,
        limits: CageLimits,
    ) -> Result<Serving, Error> {
        let run = &self.run;
        let cage = (limits != CageLimits::default()).then_some(limits);
        if server.peers.is_empty() {
            let outside = match run.pair {
                Some(_) => format!("[[listener]]\nlisten = [\"{}:@PORT@\"]\n", NetworkPair::SERVER),
                None => String::new(),
            };
            let root = run.root.display().to_string();
            let lines = format!("root = {root:?}\n{}{lines}\n{outside}", server.lines);
            let inside = run.options.program.with_file_name(&server.program);
            let program = (!server.program.is_empty()).then_some(inside.as_path());
            return Serving::forebay(run, &Forebay { cage, program, ..Forebay::new(&lines) });
        }
        let host = run.pair.as_ref().map_or(Ipv4Addr::LOCALHOST, |_| Ipv4Addr::UNSPECIFIED);
        let mut serving = Serving::empty(&run.folder()?, run.port()?);
        let mut port = serving.port();
        peers::write("overload/work.php", &serving.folder().join("work.php"), &[], &[])?;
        for peer in &server.peers {
            let behind = run.port()?;
            let own = [("HOST", host.to_string()), ("BEHIND", behind.to_string())];
            // defaults for words that an experiment does not set for a peer
            let usual = [
                ("THREADS", "2"),
                ("QUEUE_MS", "5000"),
                ("IN_FLIGHT", "1000"),
                ("GOLD", "127.0.2.1"),
                ("SENDFILE", "on"),
            ];
            let usual = usual.map(|(name, value)| (name, value.to_owned()));
            let said = words.all();
            let said = said.iter().map(|(name, value)| (name.as_str(), value.clone()));
            let words: Vec<_> = [("PORT", port.to_string())].into_iter().chain(said).collect();
            let words = [words.as_slice(), &own, &usual].concat();
            let is_policed = self.is_policed(&words);
            let tags = [
                ("limit", false),
                ("http", false),
                ("fastcgi", true),
                ("policed", is_policed),
                ("plain", true),
                ("log", false),
                ("nolog", true),
                ("tls", false),
                ("tls1", false),
                ("tls2", false),
            ];
            let part = PeerProcess { tags: &tags, words: &words, cage, ..PeerProcess::new(peer) };
            serving.add(run, &part)?;
            // the next peer stands behind this one, so clients connect to the first
            port = behind;
        }
        let is_ready = |serving: &Serving| match server.ready.as_str() {
            "" => serving::listens(serving),
            file => match serving.get(file)?.status {
                200 => Ok(()),
                status => Err(io::Error::other(format!("status {status}"))),
            },
        };
        serving.until(run, &server.name, is_ready)?;
        Ok(serving)
    }

    /// Whether peers must limit a client: where one is named.
    fn is_policed(&self, words: &[(&str, String)]) -> bool {
        words.iter().any(|(name, value)| *name == "CLIENT" && !value.is_empty())
    }
}

/// All that take turns: ours in each form, and the peers.
fn turns<'k>(
    experiment: &Experiment,
    task: &LoadTask,
    known: &'k KnownServers,
    options: &RoundOptions,
) -> Result<Vec<ServerTurn<'k>>, Error> {
    let few = experiment.quick.as_ref().filter(|_| options.quick);
    let few = few.map(|few| few.servers.as_slice()).unwrap_or_default();
    let few = if options.servers.is_empty() { few } else { &options.servers };
    let is_wanted = |name: &&String| few.is_empty() || few.contains(name);
    let server = |name: &String| known.server(name).ok_or_else(|| lacking("server", name));
    let mut turns = Vec::new();
    for name in task.cast.ours.iter().filter(is_wanted) {
        let server = server(name)?;
        if task.cast.forms.is_empty() {
            turns.push(ServerTurn { server, form: None });
        }
        for form in &task.cast.forms {
            let form = known.form(form).ok_or_else(|| lacking("form", form))?;
            turns.push(ServerTurn { server, form: Some(form) });
        }
    }
    for name in task.cast.peers.iter().filter(is_wanted) {
        turns.push(ServerTurn { server: server(name)?, form: None });
    }
    Ok(turns)
}

fn lacking(what: &str, name: &str) -> Error {
    Error::Client(format!("{name}: servers.toml has no such {what}"))
}

/// A group with its words; `None` if it has no clients.
fn draft(
    group: &GroupText,
    words: &PointWords,
    base: &LoadTarget,
) -> Result<Option<ClientGroup>, Error> {
    let mut draft = GroupDraft::new(&group.name, Some(base));
    for (key, value) in &group.settings {
        let value = words.value(value);
        let is_none = value.parse::<f64>().is_ok_and(|number| number <= 0.0);
        if is_none && matches!(key.as_str(), "rate" | "connections") {
            return Ok(None);
        }
        draft.set(key, &value);
    }
    draft.finish().map(Some).map_err(client)
}
