//! `forebay load`: the options of the load generator, and the output of its report.

mod find;
mod progress;

use clap::{Args, Subcommand, ValueEnum};
use find::{RateBounds, RateWanted};
use forebay_load::report::expect::Expectation;
use forebay_load::setting::SETTINGS;
use forebay_load::{ClientGroup, GroupDraft, LoadPlan, LoadTarget, Report, fileset, units};
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

/// Options of `load`.
#[derive(Debug, Args)]
#[command(after_help = settings_table(), args_conflicts_with_subcommands = true)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    command: Option<LoadCommand>,
    /// Whom to ask, and for what: `http[s]://HOST[:PORT][/PATH]`
    url: Option<String>,
    /// Closed loop: so many clients, each waits for its answer [default: 10]; with --rate the most
    /// connections at once
    #[arg(short, long, value_name = "N")]
    connections: Option<String>,
    /// Open loop: so many requests per second are due, whatever the answers do
    #[arg(short, long, value_name = "N/s")]
    rate: Option<String>,
    /// Make so many requests, and end when they are done; --duration is the longest it may take
    /// [default: 1h]
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<String>,
    /// The method [default: GET; POST with --body]
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// A line for every request; may be given several times
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// What every request carries: a text, or @ and a file
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Speak HTTP/2: agreed on in the handshake of TLS, or known before where the URL is http
    #[arg(long)]
    http2: bool,
    /// Requests under way at once on one connection of HTTP/2 [default: 1]
    #[arg(long, value_name = "N")]
    streams: Option<String>,
    /// Certificates of trusted authorities in PEM [default: those of this machine]
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// Take any certificate; the report says so
    #[arg(long)]
    insecure: bool,
    /// A setting of the group made by the options above; see the table below
    #[arg(short, long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A named group of clients, instead of the options above: NAME:KEY=VALUE,KEY=VALUE,…
    #[arg(short, long, value_name = "GROUP")]
    group: Vec<String>,
    /// Groups and run from a TOML file; options given here override its [run]
    #[arg(short = 'f', long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Measured time; steps of a rate begin with it [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Load before anything counts [default: 0]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warmup: Option<Duration>,
    /// How long answers are awaited after the end [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    drain: Option<Duration>,
    /// Length of a point of the series over time [default: about 150 points]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    interval: Option<Duration>,
    /// Threads that share the groups [default: 1]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Bind the threads to these cores in turn
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Waits for an arrival shorter than this are spent awake; 0 gives the core away [default:
    /// 100us]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    spin: Option<Duration>,
    /// Everything random follows from it [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the report as JSON; - is standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a page for browsers; - is standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say every second how things stand, also where standard error is no terminal
    #[arg(long)]
    progress: bool,
    /// Compare with an earlier run's JSON
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Exit with 3 if this does not hold: gold.p99<5ms, flood.errors<=1%, rate>1000
    #[arg(long, value_name = "CONDITION")]
    expect: Vec<Expectation>,
    /// Look for the highest rate of an open loop at which this holds, such as p99<50ms; each rate is tried for
    /// --duration. Exit with 3 if the lowest does not. Unless a condition is about errors, so must errors<=1%
    #[arg(long, value_name = "CONDITION", conflicts_with_all = ["rate", "requests", "plan", "group", "baseline", "expect"])]
    find: Vec<Expectation>,
    /// The rates that --find looks between [default: 10/s-100000/s]
    #[arg(long, value_name = "N/s-N/s", requires = "find")]
    between: Option<RateBounds>,
    /// How often --find tries each rate; it holds if it does in most of them [default: 1]
    #[arg(long, value_name = "N", requires = "find", value_parser = clap::value_parser!(u8).range(1..=9))]
    tries: Option<u8>,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Write a published set of files: `load -s set=… URL` then asks for it
    Fileset {
        /// Which set
        set: FileSet,
        /// Simultaneous connections that SPECweb99's rule makes the set for
        #[arg(long, value_name = "N", default_value_t = 100)]
        connections: u32,
        /// The directory it is written to
        dir: PathBuf,
    },
}

/// The published sets.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FileSet {
    /// 36 files of 5.1 MB in each of 25 + 0.656·N directories
    Specweb99,
    /// Five files of 500 B to 5 MB
    Webstone,
}

/// The longest duration of a run with `--requests` and without `--duration`.
const LONGEST_COUNTED: Duration = Duration::from_secs(3600);

impl LoadArgs {
    /// The options given that describe the one group of a run without named ones.
    fn of_the_one_group(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("connections", self.connections.is_some()),
            ("rate", self.rate.is_some()),
            ("requests", self.requests.is_some()),
            ("method", self.method.is_some()),
            ("header", !self.header.is_empty()),
            ("body", self.body.is_some()),
            ("http2", self.http2),
            ("streams", self.streams.is_some()),
            ("ca", self.ca.is_some()),
            ("insecure", self.insecure),
            ("set", !self.set.is_empty()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// Exit codes, the same as everywhere in `forebay`; 3 is this command's own.
const RUN_FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_MET: u8 = 3;

/// Makes the load that the options describe.
pub(crate) fn run(load: LoadArgs) -> ExitCode {
    let result = match &load.command {
        Some(LoadCommand::Fileset { set, connections, dir }) => write_set(*set, *connections, dir),
        None => make(&load),
    };
    result.unwrap_or_else(|(code, message)| {
        say(&format!("forebay load: {message}"));
        ExitCode::from(code)
    })
}

/// An exit code, and the line that explains it.
type LoadFailure = (u8, String);

fn usage(error: impl Display) -> LoadFailure {
    (USAGE, error.to_string())
}

/// The failure for a wrong option: wrong usage, except that a name without an address is a failed run.
fn wrong(error: impl Display, is_unresolved: bool) -> LoadFailure {
    (if is_unresolved { RUN_FAILED } else { USAGE }, error.to_string())
}

fn failed(file: &Path, error: impl Display) -> LoadFailure {
    (RUN_FAILED, format!("{}: {error}", file.display()))
}

fn write_set(set: FileSet, connections: u32, dir: &Path) -> Result<ExitCode, LoadFailure> {
    let mix = match set {
        FileSet::Specweb99 => {
            fileset::specweb99_mix("/", fileset::specweb99_directories(connections))
        }
        FileSet::Webstone => fileset::webstone_mix("/"),
    };
    let (files, bytes) = fileset::write(&mix, dir).map_err(|error| failed(dir, error))?;
    say(&format!("{}: {files} files, {:.1} MB", dir.display(), bytes as f64 / 1e6));
    Ok(ExitCode::SUCCESS)
}

fn make(load: &LoadArgs) -> Result<ExitCode, LoadFailure> {
    let plan = plan(load)?;
    // Read before the run: a typing error should not cost ten minutes.
    let baseline = load.baseline.as_deref().map(read_report).transpose()?;
    for expectation in &load.expect {
        expectation.check_names(&plan).map_err(usage)?;
    }
    let tries = load.tries.unwrap_or(1);
    let wanted = (!load.find.is_empty())
        .then(|| RateWanted::new(&load.find, load.between, tries, &plan))
        .transpose()?;
    let outputs = Outputs::open(load)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first signal ends the run with a report, the second one ends the process at once.
        let second = signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone());
        let first = signal_hook::flag::register(signal, stop.clone());
        second.and(first).map_err(|error| (RUN_FAILED, error.to_string()))?;
    }
    let mut live = progress::ProgressDisplay::new(load.progress);
    if let Some(wanted) = wanted {
        // the table is on standard output, unless a report is
        let is_taken = outputs.has_stdout();
        let tell = |line: &str| if is_taken { say(line) } else { print(line) };
        let (code, report) = wanted.find(&plan, &stop, &mut live, tell)?;
        let text = report.map(|report| outputs.write_files(&report, None)).transpose()?;
        text.flatten().map(|text| write_out(&text)).transpose()?;
        return Ok(code);
    }
    let report = forebay_load::run(&plan, &stop, &mut |progress| live.show(progress));
    live.end();
    let report = report.map_err(|error| (RUN_FAILED, error.to_string()))?;
    outputs.write(&report, baseline.as_ref())?;
    if stop.load(Ordering::Relaxed) {
        let (after, planned) = (report.seconds, plan.duration.as_secs_f64());
        say(&format!("forebay load: stopped by a signal after {after:.1} s of {planned:.1} s"));
    }
    let missed: Vec<_> = load.expect.iter().filter_map(|e| e.missed(&report)).collect();
    missed.iter().for_each(|line| say(line));
    if !missed.is_empty() {
        return Ok(ExitCode::from(NOT_MET));
    }
    // expectations decide what counts as success: a flood may be meant to be refused
    match report.failed_whole().filter(|_| load.expect.is_empty()) {
        Some(why) => Err((RUN_FAILED, why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn read_report(file: &Path) -> Result<Report, LoadFailure> {
    let text = fs::read_to_string(file).map_err(|error| failed(file, error))?;
    Report::from_json(&text).map_err(|error| failed(file, format!("not a report: {error}")))
}

/// The plan: the file's, with what the options say instead.
fn plan(load: &LoadArgs) -> Result<LoadPlan, LoadFailure> {
    let base = load.url.as_deref().map(LoadTarget::parse).transpose();
    let base = base.map_err(|error| wrong(&error, error.is_unresolved()))?;
    let mut plan = match &load.plan {
        Some(file) => forebay_load::file::read(file, base.as_ref())
            .map_err(|error| wrong(&error, error.is_unresolved()))?,
        None => LoadPlan::default(),
    };
    for text in &load.group {
        let draft = GroupDraft::parse(text, base.as_ref());
        let group = draft.and_then(GroupDraft::finish);
        plan.groups.push(
            group.map_err(|error| {
                wrong(format!("--group {text}: {error}"), error.is_unresolved())
            })?,
        );
    }
    if plan.groups.is_empty() {
        plan.groups.push(single(load, base.as_ref())?);
    } else if let Some(option) = load.of_the_one_group().next() {
        return Err(usage(format!(
            "--{option} is not for named groups: each says it itself, among its settings \
             (NAME:KEY=VALUE,…)"
        )));
    }
    let is_counted = load.requests.is_some();
    plan.duration =
        load.duration.unwrap_or(if is_counted { LONGEST_COUNTED } else { plan.duration });
    plan.warmup = load.warmup.unwrap_or(plan.warmup);
    plan.drain = load.drain.unwrap_or(plan.drain);
    plan.interval = load.interval.or(plan.interval);
    plan.spin = load.spin.unwrap_or(plan.spin);
    plan.threads = load.threads.map_or(plan.threads, usize::from);
    plan.seed = load.seed.unwrap_or(plan.seed);
    if !load.cores.is_empty() {
        plan.cores.clone_from(&load.cores);
    }
    plan.check().map_err(usage)?;
    Ok(plan)
}

/// The one group that the options describe.
fn single(load: &LoadArgs, base: Option<&LoadTarget>) -> Result<ClientGroup, LoadFailure> {
    let mut draft = GroupDraft::new("all", base);
    let connections = load.connections.as_deref();
    match &load.rate {
        Some(rate) => draft.set("rate", rate),
        None if !load.find.is_empty() => {
            draft.set("rate", &load.between.unwrap_or_default().low());
        }
        None if connections.is_none() => draft.set("connections", "10"),
        None => {}
    }
    if let Some(connections) = connections {
        draft.set("connections", connections);
    }
    let plain = [
        ("requests", &load.requests),
        ("method", &load.method),
        ("request_body", &load.body),
        ("streams", &load.streams),
        ("ca", &load.ca),
    ];
    for (key, value) in plain {
        if let Some(value) = value {
            draft.set(key, value);
        }
    }
    if load.http2 {
        draft.set("http", "2");
    }
    if load.insecure {
        draft.set("insecure", "true");
    }
    load.header.iter().for_each(|header| draft.set("header", header));
    for setting in &load.set {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| usage(format!("--set {setting}: expected KEY=VALUE")))?;
        // header fields add up, and "set" is the set of files; all else may be given only once
        let option = match key {
            "request_body" => "body",
            "http" => "http2",
            key => key,
        };
        let is_other = ["header", "set"].contains(&option);
        if !is_other && load.of_the_one_group().any(|given| given == option) {
            return Err(usage(format!("--set {setting}: --{option} says it already")));
        }
        draft.set(key, value);
    }
    draft.finish().map_err(|error| wrong(&error, error.is_unresolved()))
}

/// The outputs of the report. Files are opened before the run, so that a wrong path does not cost ten
/// minutes; they keep their content until there is a report.
struct Outputs<'l> {
    json: Option<Output<'l>>,
    html: Option<Output<'l>>,
}

/// The file name that means standard output.
const STDOUT: &str = "-";

enum Output<'l> {
    Stdout,
    File(&'l Path, File),
}

impl Outputs<'_> {
    fn open(load: &LoadArgs) -> Result<Outputs<'_>, LoadFailure> {
        let stdout = Some(Path::new(STDOUT));
        if load.json.as_deref() == stdout && load.html.as_deref() == stdout {
            return Err(usage("--json and --html cannot both have standard output"));
        }
        let json = load.json.as_deref().map(Output::open).transpose()?;
        let html = load.html.as_deref().map(Output::open).transpose()?;
        Ok(Outputs { json, html })
    }

    /// Whether a report goes to standard output.
    fn has_stdout(&self) -> bool {
        [&self.json, &self.html].into_iter().any(|output| matches!(output, Some(Output::Stdout)))
    }

    /// Writes the files; returns the text that standard output gets instead of the table.
    fn write_files(
        self,
        report: &Report,
        baseline: Option<&Report>,
    ) -> Result<Option<String>, LoadFailure> {
        let mut stdout = None;
        let forms = [(self.json, report.to_json()), (self.html, report.to_html(baseline))];
        for (output, text) in forms {
            match output {
                None => {}
                Some(Output::Stdout) => stdout = Some(text),
                Some(Output::File(path, file)) => {
                    replace(file, &text).map_err(|error| failed(path, error))?;
                }
            }
        }
        Ok(stdout)
    }

    fn write(self, report: &Report, baseline: Option<&Report>) -> Result<(), LoadFailure> {
        let text = self.write_files(report, baseline)?;
        let text = text.unwrap_or_else(|| match baseline {
            Some(baseline) => format!("{}\n{}", report.to_table(), report.compare(baseline)),
            None => report.to_table(),
        });
        write_out(&text)
    }
}

impl Output<'_> {
    fn open(file: &Path) -> Result<Output<'_>, LoadFailure> {
        if file == Path::new(STDOUT) {
            return Ok(Output::Stdout);
        }
        let opened = File::options().write(true).create(true).truncate(false).open(file);
        opened.map(|open| Output::File(file, open)).map_err(|error| failed(file, error))
    }
}

/// Writes a text to standard output.
fn write_out(text: &str) -> Result<(), LoadFailure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err((RUN_FAILED, format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line of the result at once.
fn print(line: &str) {
    // a reader that has closed the pipe needs no more lines
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Replaces the content of a file by a text.
fn replace(mut file: File, text: &str) -> io::Result<()> {
    // pipes and devices have no length
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text).map_err(|expected| units::not(text, expected))
}

/// The settings of a group, for `--help`.
fn settings_table() -> String {
    let lines = SETTINGS.iter().map(|(key, takes, meaning)| {
        let setting = format!("{key}={takes}");
        format!("  {setting:<42} {meaning}")
    });
    format!(
        "Settings of a group (--set, --group, [[group]]):\n{}",
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// Writes a message to standard error, where everything goes that is not a result.
fn say(text: &str) {
    // an error here cannot be reported anywhere
    let _ = writeln!(io::stderr(), "{text}");
}
