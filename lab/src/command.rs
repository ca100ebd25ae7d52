//! The commands of `lab`.

use crate::catalogue::{Catalogue, folder};
use crate::experiment::{Experiment, ExperimentSet, PaperFigure, SweepAxis};
use crate::judge::JudgeMode;
use crate::report::{self, LabReport};
use crate::round::all::{self, RoundWanted};
use crate::round::{self, RoundOptions, verdict};
use crate::rows::formats::OldFormats;
use crate::run::stop_on_signals;
use crate::{Error, bridge, machine, runner, running};
use clap::{Parser, Subcommand, ValueEnum};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The Laboratory: experiments of Forebay beside other servers and beside itself, and what the papers claim.
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Every figure: its file, how long it takes, what it needs, and its verdict
    List {
        /// Only figures whose names begin so, such as voigt
        #[arg(long, default_value = "")]
        paper: String,
    },
    /// Whether all files of lab/experiments are whole
    Check,
    /// Measure experiments, or those that have these figures
    Run {
        /// Names of experiments or of figures
        #[arg(required = true)]
        names: Vec<String>,
        /// In its short form, for the shape only
        #[arg(long)]
        quick: bool,
        /// So many rounds
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        /// The number of the first round
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        first: u32,
        /// Only these servers, to try something: the rows are not judged
        #[arg(long, value_delimiter = ',')]
        server: Vec<String>,
        /// Other values of an axis, to try something: AXIS=VALUE,VALUE
        #[arg(long, value_parser = an_axis)]
        set: Vec<SweepAxis>,
        /// Folder for the rows; one that is there goes on [default: lab/runs/DATE-NAME]
        #[arg(long)]
        out: Option<PathBuf>,
        /// Do not say what the rows come to
        #[arg(long)]
        silent: bool,
    },
    /// Measure all of them once; a round that was interrupted goes on
    Round {
        /// Which of them
        #[arg(long, value_enum, default_value_t = AskedSet::Papers)]
        set: AskedSet,
        /// In their short forms, those of all sets; verdicts that do not hold twice fail
        #[arg(long)]
        quick: bool,
        /// Begin another round, even if one was interrupted
        #[arg(long)]
        new: bool,
        /// Folder for the rows [default: lab/runs/DATE-round-N]
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// What all kept rounds come to: target/lab/report.html
    Report {
        /// Print one table of markdown instead
        #[arg(long)]
        table: bool,
        /// The page
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// What the rows in folders of lab/runs come to; those from before the Laboratory are shown, not judged
    Show {
        /// The folders
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Print the rows of an experiment that is a value; for files of kind program
    #[command(disable_help_flag = true)]
    Measure {
        /// Its name, and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AskedSet {
    Papers,
    Peers,
    Library,
}

impl AskedSet {
    fn set(self) -> ExperimentSet {
        match self {
            AskedSet::Papers => ExperimentSet::Papers,
            AskedSet::Peers => ExperimentSet::Peers,
            AskedSet::Library => ExperimentSet::Library,
        }
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run(LabArgs::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: LabCommand) -> Result<ExitCode, Error> {
    let catalogue = Catalogue::read(&folder().join("experiments"));
    match command {
        LabCommand::List { paper } => {
            let runs = folder().join("runs");
            let of = |one: &Experiment, figure: &PaperFigure| {
                verdict::judged(one, figure, &runs, JudgeMode::Whole).verdict.text().to_owned()
            };
            say(&catalogue.list(&paper, &of));
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Check => Ok(check(&catalogue)),
        LabCommand::Run { names, quick, rounds, first, server, set, out, silent } => {
            let chosen = chosen(&catalogue, &names)?;
            // a network or a cage is entered by the whole process, and is not left again
            if chosen.len() > 1 {
                return one_by_one(&chosen);
            }
            running::adopt();
            let mut options = RoundOptions {
                quick,
                first,
                rounds,
                servers: server,
                set,
                out: PathBuf::new(),
                built: built()?,
                stop: stop()?,
            };
            for experiment in chosen {
                options.out = match &out {
                    Some(out) => std::path::absolute(out).unwrap_or_else(|_| out.clone()),
                    None if quick => short_rows(&options.built),
                    None => round::top().join(runner::new_folder(&experiment.name)),
                };
                let file = round::measure(experiment, &options)?;
                if !silent {
                    println!("rows in {}", file.display());
                    print!("{}", verdict::of_folder(experiment, &options.out, mode(quick)));
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Round { set, quick, new, out } => {
            let built = built()?;
            let out = match out {
                Some(out) => Some(std::path::absolute(&out).unwrap_or(out)),
                None => quick.then(|| short_rows(&built)),
            };
            if !catalogue.problems.is_empty() {
                return Ok(check(&catalogue));
            }
            if let (true, Some(out)) = (quick, &out) {
                // rows of short forms are never kept
                let _ = fs::remove_dir_all(out);
            }
            let set = (!quick).then(|| set.set());
            let wanted = RoundWanted { set, quick, new, out };
            all::measure(&catalogue, &wanted, &built, &*stop()?, &mut |experiment, rows| {
                print!("{}", verdict::of_folder(experiment, rows, mode(quick)));
                if quick { verdict::short_form(experiment, rows) } else { Ok(()) }
            })?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Report { table, out } => {
            let made = machine::date("+%Y-%m-%d");
            let report = LabReport::gather(&catalogue, &folder().join("runs"), made);
            if table {
                say(&report::table::markdown(&report));
                return Ok(ExitCode::SUCCESS);
            }
            let built = built()?;
            let usual = || built.parent().unwrap_or(&built).join("lab/report.html");
            let page = out.unwrap_or_else(usual);
            if let Some(folder) = page.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                fs::create_dir_all(folder).map_err(Error::io("cannot make the folder", folder))?;
            }
            fs::write(&page, report.to_html()).map_err(Error::io("cannot write", &page))?;
            println!("{}", page.display());
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Show { folders } => {
            folders.iter().try_for_each(|folder| show(&catalogue, folder))?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Measure { words } => bridge::measure(&words).map(|()| ExitCode::SUCCESS),
    }
}

/// Prints the verdicts on the rows in a folder.
fn show(catalogue: &Catalogue, rows: &Path) -> Result<(), Error> {
    let rows = std::path::absolute(rows).unwrap_or_else(|_| rows.to_owned());
    let name = rows.file_name().unwrap_or_default().to_string_lossy();
    let formats = folder().join("runs/formats.toml");
    let text = fs::read_to_string(&formats).map_err(Error::io("cannot read", &formats))?;
    let formats = OldFormats::read(&text).map_err(|error| Error::Client(error.to_string()))?;
    let old = rows.join("rows.csv");
    if let (true, Some(format)) = (old.is_file(), formats.of_folder(&name)) {
        let text = fs::read_to_string(&old).map_err(Error::io("cannot read", &old))?;
        say(&format!("# {}: {name}\n{}\n", format.title, format.tables(&format.rows(&text))));
        return Ok(());
    }
    let is_there = |one: &&Experiment| rows.join(format!("{}.csv", one.name)).is_file();
    for experiment in catalogue.experiments.iter().filter(is_there) {
        say(&verdict::of_folder(experiment, &rows, JudgeMode::Whole));
    }
    Ok(())
}

/// The same command for each experiment alone: a place is entered by a whole process.
fn one_by_one(chosen: &[&Experiment]) -> Result<ExitCode, Error> {
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let options: Vec<String> = std::env::args().skip(1).collect();
    let is_name =
        |word: &String| chosen.iter().any(|one| one.name == *word || one.figure(word).is_some());
    let mut code = ExitCode::SUCCESS;
    for experiment in chosen {
        let mut command = std::process::Command::new(&own);
        command.args(options.iter().filter(|word| !is_name(word))).arg(&experiment.name);
        let status = command.status().map_err(Error::io("cannot start", &own))?;
        if !status.success() {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Prints a text. A reader that closes the pipe early, such as `head`, is no error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// `AXIS=VALUE,VALUE`.
fn an_axis(text: &str) -> Result<SweepAxis, String> {
    let (name, values) = text.split_once('=').ok_or("expected AXIS=VALUE,VALUE")?;
    let values = values.split(',').map(str::to_owned).collect();
    Ok(SweepAxis { name: name.to_owned(), values })
}

/// The folder for rows of short forms.
fn short_rows(built: &Path) -> PathBuf {
    built.parent().unwrap_or(built).join("lab/quick")
}

fn mode(quick: bool) -> JudgeMode {
    if quick { JudgeMode::Quick } else { JudgeMode::Whole }
}

/// The experiments of these names, each once.
fn chosen<'c>(catalogue: &'c Catalogue, names: &[String]) -> Result<Vec<&'c Experiment>, Error> {
    let mut chosen: Vec<&Experiment> = Vec::new();
    for name in names {
        let found = catalogue.find(name).ok_or_else(|| {
            let wrong = catalogue.problems.iter().map(|problem| format!("\n{problem}"));
            let wrong: String = wrong.collect();
            Error::Client(format!("{name}: no experiment has this name or figure; lab list{wrong}"))
        })?;
        if !chosen.iter().any(|one| one.name == found.name) {
            chosen.push(found);
        }
    }
    Ok(chosen)
}

/// The folder of the programs that were built: that of this one.
fn built() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    Ok(own.parent().map(Path::to_owned).unwrap_or_default())
}

fn stop() -> Result<Arc<AtomicBool>, Error> {
    stop_on_signals().map_err(Error::io("cannot watch for", "signals"))
}

fn check(catalogue: &Catalogue) -> ExitCode {
    for problem in &catalogue.problems {
        eprintln!("{problem}");
    }
    let [papers, peers, library] = ExperimentSet::ALL.map(|set| catalogue.minutes(set, false));
    let short: f64 = ExperimentSet::ALL.iter().map(|set| catalogue.minutes(*set, true)).sum();
    println!(
        "{} experiments; a round takes {papers:.0} minutes of the papers', {peers:.0} of the others' and \
         {library:.0} of the library's, the short form {short:.1}",
        catalogue.experiments.len(),
    );
    match catalogue.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
