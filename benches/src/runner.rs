//! The runner: rounds, points and servers in turn, a row for each measurement, and what the rows come to.
//!
//! In go an experiment and options; out come `rows.csv`, written as it is measured, and `README.md`, which is
//! made of those rows and can be made again (`forebay-bench show`).

use crate::content::Scratch;
use crate::error::Missing;
use crate::experiment::{Experiment, Network};
use crate::options::{self, Kind, Options};
use crate::record::{self, Recorded, Row};
use crate::{Error, machine, network, peers, results, running};
use clap::{Arg, ArgMatches, Command, value_parser};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Everything that is the same for all measurements of a run.
#[derive(Debug)]
pub struct Run {
    /// What was asked for.
    pub options: Options,
    /// What is served; empty at first.
    pub root: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// Turns true when a signal asks to end.
    pub stop: Arc<AtomicBool>,
    /// The core of servers, if they have one of their own.
    pub core: Option<usize>,
    scratch: Scratch,
    port: Cell<u16>,
}

impl Run {
    fn new(options: Options, out: PathBuf, pinned: bool) -> Result<Run, Error> {
        let stop = stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
        let scratch = Scratch::new()?;
        let root = scratch.path().join("site");
        fs::create_dir(&root).map_err(Error::io("cannot make the folder", &root))?;
        // runs at the same time meet each other less
        let port = Cell::new(20_000 + (std::process::id() % 8000) as u16);
        let core = pinned.then_some(options.server_core);
        Ok(Run { options, root, out, stop, core, scratch, port })
    }

    /// A folder for what lasts as long as the run.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// An empty folder, for one server.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn folder(&self) -> Result<PathBuf, Error> {
        let folder = self.scratch().join("server");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).map_err(Error::io("cannot make the folder", &folder))?;
        Ok(folder)
    }

    /// A port of its own for each server, so that none meets its predecessor's connections.
    ///
    /// # Errors
    /// When all are taken.
    pub fn port(&self) -> Result<u16, Error> {
        let found = running::free_port(self.port.get() + 1).or_else(|| running::free_port(20_000));
        let port =
            found.ok_or_else(|| Error::Client("no free port between 20000 and 32000".into()))?;
        self.port.set(port);
        Ok(port)
    }

    /// Whether it was asked to end.
    ///
    /// # Errors
    /// If so.
    pub fn go_on(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// One value of each axis of the sweep.
pub type Point = Vec<(&'static str, String)>;

/// One server's turn at a point.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'t> {
    /// The run.
    pub run: &'t Run,
    /// From 1 on.
    pub round: u32,
    /// Who is measured.
    pub server: &'t str,
    point: &'t Point,
}

impl Trial<'_> {
    /// The point's value of an axis.
    pub fn at(&self, key: &str) -> &str {
        self.point.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value)
    }

    /// The same, where it is a number.
    pub fn number(&self, key: &str) -> f64 {
        self.at(key).parse().unwrap_or_default()
    }
}

/// Sets a flag when SIGINT, SIGTERM or SIGHUP arrives.
///
/// # Errors
/// When they cannot be watched for.
pub fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Runs the program: one of these experiments, or `show`.
pub fn main(experiments: &'static [&'static Experiment]) -> ExitCode {
    let folders = Arg::new("folders").required(true).num_args(1..);
    let folders = folders.value_parser(value_parser!(PathBuf)).help("Folders with rows.csv");
    let show = Command::new("show").about("What recorded rows come to: claims and tables again");
    let program = Command::new("forebay-bench")
        .about("Measures Forebay beside others, and beside itself")
        .subcommand_required(true)
        .subcommands(experiments.iter().map(|experiment| options::command(experiment)))
        .subcommand(show.arg(folders));
    let given = program.get_matches();
    let ended = match given.subcommand() {
        Some(("show", given)) => {
            let folders = given.get_many::<PathBuf>("folders").unwrap_or_default();
            folders.into_iter().try_for_each(|folder| {
                println!("{}", shown(experiments, folder)?);
                Ok(())
            })
        }
        Some((name, given)) => {
            let found = experiments.iter().find(|experiment| experiment.name == name);
            found.map_or(Ok(()), |experiment| run(experiment, given))
        }
        None => Ok(()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(experiment: &'static Experiment, given: &ArgMatches) -> Result<(), Error> {
    let options = Options::of(experiment, given)?;
    if options.list {
        print!("{}", list(experiment, &options));
        return Ok(());
    }
    if let Network::Own(send_buffer) = experiment.network {
        network::enter(send_buffer)?;
    }
    let needed = options.servers.iter().flat_map(|server| experiment.peers_of(server));
    let mut missing: Vec<_> = needed.filter_map(|peer| peers::missing(peer)).collect();
    let clients = experiment.clients.iter();
    missing.extend(
        clients
            .filter(|client| peers::locate(client.program).is_none())
            .map(|client| Missing { program: client.program, package: client.package }),
    );
    if !missing.is_empty() {
        return Err(Error::NotInstalled(missing));
    }
    let (server, client) = (options.server_core, options.client_core);
    if server == client {
        return Err(Error::Core(client));
    }
    let out = options.out.clone().unwrap_or_else(|| new_folder(experiment.name));
    let header = header(experiment, &options);
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    running::adopt();
    if experiment.pinned {
        // nothing of ours runs beside the servers
        running::pin(server)?;
        running::pin(client)?;
    }
    let run = Run::new(options, out, experiment.pinned)?;
    let mut rows = Vec::new();
    let ended = measure(experiment, &run, &header, &mut rows);
    // what was measured before an error or a signal gets its summary, too
    let unfinished = if ended.is_err() { "\nThis run did not finish.\n" } else { "" };
    let text = page(experiment, &header, unfinished, &rows);
    let file = run.out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    eprintln!("results in {}", run.out.display());
    ended
}

/// All rounds. Each row is written at once.
fn measure(
    experiment: &Experiment,
    run: &Run,
    header: &str,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let path = run.out.join("rows.csv");
    let mut file = File::create(&path).map_err(Error::io("cannot write", &path))?;
    let mut write = |line: &str| writeln!(file, "{line}").map_err(Error::io("cannot write", &path));
    for line in header.lines() {
        write(&format!("# {line}"))?;
    }
    write(&record::head(experiment.columns))?;
    let mut measured = (experiment.prepare)(run)?;
    let points = points(experiment, &run.options);
    let servers = &run.options.servers;
    for round in 1..=run.options.rounds {
        for at in 0..points.len() {
            let point = &points[(at + round as usize - 1) % points.len()];
            for place in 0..servers.len() {
                // whoever came first at the last point, or in the last round, comes later now
                let server = &servers[(place + at + round as usize - 1) % servers.len()];
                run.go_on()?;
                for mut row in measured.measure(&Trial { run, round, server, point })? {
                    (row.round, row.place) = (round, place + 1);
                    let row = named(row, experiment, point, server);
                    let line = row.csv(experiment.columns);
                    println!("{line}");
                    write(&line)?;
                    rows.push(row);
                }
            }
        }
    }
    measured.leave(run)
}

/// A row with the words of its point and its server.
fn named(row: Row, experiment: &Experiment, point: &Point, server: &str) -> Row {
    let is_column = |name: &str| experiment.columns.iter().any(|column| column.name == name);
    let words = point.iter().map(|(key, value)| (*key, value.as_str()));
    let words = words.chain([(experiment.servers.key, server)]);
    words.filter(|(key, _)| is_column(key)).fold(row, |row, (key, value)| row.key(key, value))
}

/// Every combination of the values of the axes, the last one varied first.
fn points(experiment: &Experiment, options: &Options) -> Vec<Point> {
    let mut all = vec![Point::new()];
    for (axis, values) in experiment.sweep.iter().zip(&options.sweep) {
        let with = |point: &Point| {
            let point = point.clone();
            values.iter().map(move |value| [&point[..], &[(axis.key, value.clone())]].concat())
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// What was run, and on what: lines of a list.
fn header(experiment: &Experiment, options: &Options) -> String {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let Options { rounds, measured, server_core, client_core, .. } = options;
    let cores = match experiment.pinned {
        true => format!("servers on core {server_core}, load on core {client_core}"),
        false => "servers and load on all cores".to_owned(),
    };
    let mut text = format!(
        "- command: `forebay-bench {}`, {}\n{}- rounds: {rounds}, of {} s each; {cores}\n",
        command.join(" "),
        machine::date("+%Y-%m-%d %H:%M UTC"),
        machine::describe(),
        measured.as_secs_f64(),
    );
    let settings = experiment.settings.iter().filter(|setting| setting.kind != Kind::Flag);
    let settings: Vec<_> = settings
        .map(|setting| format!("{} {}", setting.name, options.text(setting.name)))
        .collect();
    if !settings.is_empty() {
        // writing to a string does not fail
        let _ = writeln!(text, "- settings: {}", settings.join(", "));
    }
    let mut versions: Vec<String> = Vec::new();
    for peer in options.servers.iter().flat_map(|server| experiment.peers_of(server)) {
        versions.extend(peers::version(peer).filter(|said| !versions.contains(said)));
    }
    let version = |program: &Path, argument: &str| {
        machine::first_line(std::process::Command::new(program).arg(argument))
    };
    let clients = experiment.clients.iter();
    versions.extend(clients.map(|client| version(&client.located(), client.version)));
    versions.push(version(&options.program, "version"));
    versions.extend(options.before.iter().map(|before| version(before, "version") + " (before)"));
    let _ = writeln!(text, "- versions: {}", versions.join("; "));
    text
}

fn page(experiment: &Experiment, header: &str, note: &str, rows: &[Row]) -> String {
    let about = format!("# {}\n\n{}\n\n", experiment.title, experiment.about);
    let noisy =
        rows.iter().filter(|row| row.flags().iter().any(|flag| flag == record::NOISY)).count();
    let noisy = match noisy {
        0 => String::new(),
        noisy => format!("- {noisy} of {} rows are noisy\n", rows.len()),
    };
    format!("{about}{header}{noisy}{note}{}", results::results(experiment, rows))
}

/// `lab/runs/DATE-NAME`, or with a number behind it: an earlier run is never overwritten.
fn new_folder(name: &str) -> PathBuf {
    let name = format!("lab/runs/{}-{name}", machine::date("+%Y-%m-%d"));
    let numbered = (2..).map(|number| PathBuf::from(format!("{name}-{number}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| PathBuf::from(name))
}

/// What an experiment would do.
fn list(experiment: &Experiment, options: &Options) -> String {
    let mut text = format!("{}\n\n", experiment.about);
    let points = points(experiment, options);
    let named = experiment.sweep.iter().zip(&options.sweep);
    let named = named.chain([(&experiment.servers, &options.servers)]);
    // writing to a string does not fail
    for (axis, values) in named {
        let _ = writeln!(text, "--{} {}: {}", axis.option, values.join(","), axis.help);
    }
    for setting in experiment.settings {
        let _ =
            writeln!(text, "--{} {}: {}", setting.name, options.text(setting.name), setting.help);
    }
    let count = points.len() * options.servers.len();
    let rows = count as f64 * f64::from(options.rounds) * options.measured.as_secs_f64();
    let _ = writeln!(
        text,
        "\n{} points × {} servers × {} rounds of {} s: at least {:.0} s, and what starting and warming up takes",
        points.len(),
        options.servers.len(),
        options.rounds,
        options.measured.as_secs_f64(),
        rows,
    );
    let columns: Vec<_> = experiment.columns.iter().map(|column| column.name).collect();
    let _ = writeln!(text, "rows: {}", columns.join(", "));
    for claim in experiment.claims {
        let _ = writeln!(text, "claim: {} ({})", claim.what, claim.figure);
    }
    text
}

/// The experiment that a file of rows is of: the one with the most of its columns.
pub fn experiment_of(
    experiments: &[&'static Experiment],
    recorded: &Recorded,
) -> Option<&'static Experiment> {
    let has = |name: &str| recorded.names.iter().any(|known| known == name);
    let known = |experiment: &Experiment| {
        experiment.columns.iter().filter(|column| has(column.name)).count()
    };
    let found = experiments.iter().copied().max_by_key(|experiment| known(experiment));
    found.filter(|experiment| 2 * known(experiment) >= recorded.names.len())
}

/// What the rows in a folder come to.
///
/// # Errors
/// When they cannot be read, or are of no experiment.
pub fn shown(experiments: &[&'static Experiment], folder: &Path) -> Result<String, Error> {
    let path = folder.join("rows.csv");
    let text = fs::read_to_string(&path).map_err(Error::io("cannot read", &path))?;
    let recorded = Recorded::read(&text);
    let experiment = experiment_of(experiments, &recorded)
        .ok_or_else(|| Error::Client(format!("{} has rows of no experiment", path.display())))?;
    Ok(page(experiment, &recorded.header, "", &recorded.rows(experiment.columns)))
}

/// Half of a length, at most so long: what is done before it is measured.
pub fn warmup(measured: Duration, most: Duration) -> Duration {
    (measured / 2).min(most)
}
