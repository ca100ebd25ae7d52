//! The runner: rounds, points and servers in turn, a row for each measurement, and the results.
//!
//! An experiment and options go in; `rows.csv`, written as it is measured, and `README.md` come
//! out. The latter is made of those rows and can be made again (`forebay-bench show`).

use crate::benchmark::{Benchmark, BenchmarkNetwork};
use crate::columns;
use crate::error::MissingProgram;
use crate::options::{Kind, Options};
use crate::rows::recorded::{RowFile, WHOLE};
use crate::rows::{NOISY, RawRow};
use crate::run::{Point, Run, Trial};
use crate::{Error, arguments, machine, network, peers, results, running};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the program: one of these experiments, or `show`.
pub fn main(experiments: &'static [&'static Benchmark]) -> ExitCode {
    let folders = Arg::new("folders").required(true).num_args(1..);
    let folders = folders.value_parser(value_parser!(PathBuf)).help("Folders with rows.csv");
    let show = Command::new("show").about("What recorded rows come to: claims and tables again");
    let program = Command::new("forebay-bench")
        .about("Measures Forebay beside others, and beside itself")
        .subcommand_required(true)
        .subcommands(experiments.iter().map(|experiment| arguments::command(experiment)))
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

fn run(experiment: &'static Benchmark, given: &ArgMatches) -> Result<(), Error> {
    let options = arguments::options(experiment, given)?;
    if options.list {
        print!("{}", list(experiment, &options));
        return Ok(());
    }
    let out = options.out.clone().unwrap_or_else(|| new_folder(experiment.name));
    let header = header(experiment, &options);
    let run = prepared(experiment, options, out)?;
    fs::create_dir_all(&run.out).map_err(Error::io("cannot make the folder", &run.out))?;
    let path = run.out.join("rows.csv");
    let mut file = File::create(&path).map_err(Error::io("cannot write", &path))?;
    let mut write = |text: &str| {
        print!("{text}");
        file.write_all(text.as_bytes()).map_err(Error::io("cannot write", &path))
    };
    let form = RowFile { header: pairs(&header), ..columns::file(experiment.columns) };
    write(&form.head())?;
    let mut rows = Vec::new();
    let ended = measure(experiment, &run, 0, &mut |row| {
        write(&form.line(&row))?;
        rows.push(row);
        Ok(())
    });
    if ended.is_ok() {
        write(&format!("{WHOLE}\n"))?;
    }
    // rows that were measured before an error or a signal get their summary, too
    let unfinished = if ended.is_err() { "\nThis run did not finish.\n" } else { "" };
    let text = page(experiment, &header, unfinished, &rows);
    let file = run.out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    eprintln!("results in {}", run.out.display());
    ended
}

/// The rows of an experiment, of which `before` rounds were measured already; nothing is written.
///
/// # Errors
/// As a run.
pub fn rows(
    experiment: &'static Benchmark,
    options: Options,
    before: u32,
) -> Result<Vec<RawRow>, Error> {
    let mut run = prepared(experiment, options, PathBuf::new())?;
    run.out = run.scratch().to_owned();
    let (form, mut rows) = (columns::file(experiment.columns), Vec::new());
    measure(experiment, &run, before, &mut |row| {
        eprint!("{}", form.line(&row));
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// A run in its place, once everything that it needs was found.
fn prepared(experiment: &'static Benchmark, options: Options, out: PathBuf) -> Result<Run, Error> {
    let pair = match experiment.network {
        BenchmarkNetwork::Own(send_buffer) => {
            network::enter()?;
            send_buffer.map_or(Ok(()), network::bound_send_buffers)?;
            None
        }
        BenchmarkNetwork::Pair(is_asked) if is_asked(&options) => {
            Some(network::NetworkPair::enter(options.server_core, options.client_core)?)
        }
        BenchmarkNetwork::Pair(_) | BenchmarkNetwork::Shared => None,
    };
    let needed = options.servers.iter().flat_map(|server| experiment.peers_of(server));
    let mut missing: Vec<_> = needed.filter_map(|peer| peers::missing(peer)).collect();
    let clients = experiment.clients.iter();
    missing.extend(
        clients
            .filter(|client| peers::locate(client.program).is_none())
            .map(|client| MissingProgram { program: client.program, package: client.package }),
    );
    if !missing.is_empty() {
        return Err(Error::NotInstalled(missing));
    }
    let (server, client) = (options.server_core, options.client_core);
    if server == client {
        return Err(Error::Core(client));
    }
    running::adopt();
    if experiment.pinned {
        // nothing of ours runs beside the servers
        running::pin(server)?;
        running::pin(client)?;
    }
    let mut run = Run::new(options, out, experiment.pinned)?;
    run.pair = pair;
    Ok(run)
}

/// Measures all rounds, of which `before` were measured already. Each row is kept at once.
fn measure(
    experiment: &Benchmark,
    run: &Run,
    before: u32,
    keep: &mut dyn FnMut(RawRow) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut measured = (experiment.prepare)(run)?;
    let points = points(experiment, &run.options);
    let servers = &run.options.servers;
    for round in 1..=run.options.rounds {
        for at in 0..points.len() {
            let point = &points[(at + (before + round) as usize - 1) % points.len()];
            for place in 0..servers.len() {
                // the server that came first at the last point, or in the last round, comes later
                // now
                let server = &servers[(place + at + (before + round) as usize - 1) % servers.len()];
                run.go_on()?;
                let ended = measured.measure(&Trial { run, round, server, point });
                let (these, ended) = match ended {
                    Ok(these) => (these, Ok(())),
                    Err(error) => (measured.unfinished(), Err(error)),
                };
                for mut row in these {
                    row.place = place + 1;
                    // an experiment may repeat its measurement in a round, and count that
                    if row.round == 0 {
                        row.round = round;
                    }
                    let row = named(row, experiment, point, server);
                    keep(row)?;
                }
                ended?;
            }
        }
    }
    measured.leave(run)
}

/// A row with the words of its point and its server.
fn named(row: RawRow, experiment: &Benchmark, point: &Point, server: &str) -> RawRow {
    let is_column = |name: &str| experiment.columns.iter().any(|column| column.name == name);
    let words = point.iter().map(|(key, value)| (*key, value.as_str()));
    let words = words.chain([(experiment.servers.key, server)]);
    words.filter(|(key, _)| is_column(key)).fold(row, |row, (key, value)| row.word(key, value))
}

/// Every combination of the values of the axes, the last one varied first.
fn points(experiment: &Benchmark, options: &Options) -> Vec<Point> {
    if let Some(points) = experiment.points {
        return points(options);
    }
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

/// The command and the machine: lines of a list.
fn header(experiment: &Benchmark, options: &Options) -> String {
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

/// The same for the head of a file of rows.
fn pairs(header: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (key, value) = line.trim_start_matches(['-', ' ']).split_once(": ")?;
        Some((key.to_owned(), value.to_owned()))
    };
    header.lines().filter_map(pair).collect()
}

fn page(experiment: &Benchmark, header: &str, note: &str, rows: &[RawRow]) -> String {
    let about = format!("# {}\n\n{}\n\n", experiment.title, experiment.about);
    let noisy = rows.iter().filter(|row| row.flags().iter().any(|flag| flag == NOISY)).count();
    let noisy = match noisy {
        0 => String::new(),
        noisy => format!("- {noisy} of {} rows are noisy\n", rows.len()),
    };
    format!("{about}{header}{noisy}{note}{}", results::results(experiment, rows))
}

/// `lab/runs/DATE-NAME`, or with a number behind it: an earlier run is never overwritten.
pub fn new_folder(name: &str) -> PathBuf {
    let name = format!("lab/runs/{}-{name}", machine::date("+%Y-%m-%d"));
    let numbered = (2..).map(|number| PathBuf::from(format!("{name}-{number}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| PathBuf::from(name))
}

/// The plan of an experiment, for `--list`.
fn list(experiment: &Benchmark, options: &Options) -> String {
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
    experiments: &[&'static Benchmark],
    file: &RowFile,
) -> Option<&'static Benchmark> {
    let names = || file.words.iter().chain(&file.figures);
    let has = |name: &str| names().any(|known| known == name);
    let known = |experiment: &Benchmark| {
        experiment.columns.iter().filter(|column| has(column.name)).count()
    };
    let found = experiments.iter().copied().max_by_key(|experiment| known(experiment));
    found.filter(|experiment| 2 * known(experiment) >= names().count())
}

/// The results of the rows in a folder.
///
/// # Errors
/// When they cannot be read, or are of no experiment.
pub fn shown(experiments: &[&'static Benchmark], folder: &Path) -> Result<String, Error> {
    let path = folder.join("rows.csv");
    let text = fs::read_to_string(&path).map_err(Error::io("cannot read", &path))?;
    let experiment = experiment_of(experiments, &RowFile::read(&text))
        .ok_or_else(|| Error::Client(format!("{} has rows of no experiment", path.display())))?;
    let words = experiment.columns.iter().filter(|column| column.is_key);
    let file = RowFile::read_as(&text, &words.map(|column| column.name).collect::<Vec<_>>());
    let header = file.header.iter().map(|(key, value)| format!("- {key}: {value}\n"));
    Ok(page(experiment, &header.collect::<String>(), "", &file.rows))
}
