//! Measuring experiments: one of them over rounds, or all of them in one round. Rows are kept, and
//! a measurement that was interrupted goes on where it was.
//!
//! | module | what it holds |
//! |---|---|
//! | [`points`] | the points of a sweep, in the order of a round |
//! | [`growing`] | the file of an experiment's rows, which grows round by round |
//! | [`load`] | servers, and clients that connect to them |
//! | [`wording`] | the words of a point |
//! | [`program`] | a command that prints rows |
//! | [`needs`] | needs that the machine lacks |
//! | [`all`] | a round of all experiments |
//! | [`verdict`] | verdicts on the rows of a folder |

pub mod all;
pub mod growing;
pub mod load;
pub mod needs;
pub mod points;
pub mod program;
pub mod verdict;
pub mod wording;

use crate::experiment::{Experiment, ExperimentTask, SweepAxis};
use crate::rows::recorded::RowFile;
use crate::{Error, machine};
use growing::GrowingRows;
use load::LoadRun;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The options of a round.
#[derive(Clone, Debug)]
pub struct RoundOptions {
    /// Whether the short form is measured.
    pub quick: bool,
    /// The number of the first round.
    pub first: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// The only servers of kind `load` that are measured; all if there are none.
    pub servers: Vec<String>,
    /// Other values of axes.
    pub set: Vec<SweepAxis>,
    /// The folder for rows.
    pub out: PathBuf,
    /// The folder of the programs that were built.
    pub built: PathBuf,
    /// Turns true when a signal asks this program to end.
    pub stop: Arc<AtomicBool>,
}

/// Measures all rounds of an experiment that its file does not have yet. Returns the file.
///
/// # Errors
/// When it cannot be measured, or a signal asked to stop; rounds that were measured are kept.
pub fn measure(experiment: &Experiment, options: &RoundOptions) -> Result<PathBuf, Error> {
    let missing = needs::missing(experiment, &options.built);
    if !missing.is_empty() {
        return Err(Error::Client(format!("{} needs {}", experiment.name, missing.join(", "))));
    }
    let mut place = match &experiment.task {
        ExperimentTask::Load(task) => Some(LoadRun::enter(task, options)?),
        ExperimentTask::Program(_) => None,
    };
    let header = header(experiment, options);
    let mut kept = GrowingRows::open(&options.out, &experiment.name, &header)?;
    for round in options.first..options.first + options.rounds {
        if kept.has(round) {
            eprintln!("{}: round {round} is there", experiment.name);
            continue;
        }
        let file = match &experiment.task {
            ExperimentTask::Program(program) => {
                program::measure(experiment, program, round, options)?
            }
            ExperimentTask::Load(task) => match &mut place {
                Some(place) => place.measure(experiment, task, round, options)?,
                None => continue,
            },
        };
        let found = place.as_ref().map(LoadRun::header).unwrap_or_default();
        let header = [header.as_slice(), &found].concat();
        kept.add(round, &RowFile { header, ..file })?;
    }
    kept.end()
}

/// The head of a file of rows: the experiment, and the machine.
fn header(experiment: &Experiment, options: &RoundOptions) -> Vec<(String, String)> {
    let line = |key: &str, value: String| (key.to_owned(), value);
    let is_part = !options.servers.is_empty() || !options.set.is_empty();
    let form = match (is_part, options.quick) {
        (true, _) => "part",
        (_, true) => "short",
        _ => "whole",
    };
    // rows of a part that was tried by hand are not judged
    let edition = if is_part { 0 } else { experiment.edition };
    let mut header = vec![
        line("experiment", experiment.name.clone()),
        line("edition", edition.to_string()),
        line("form", form.to_owned()),
        line("command", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
        line("date", machine::date("+%Y-%m-%d %H:%M UTC")),
        line("commit", commit()),
        line("machine", machine::name()),
    ];
    let described = machine::describe();
    let lines = described.lines().filter_map(|said| said.trim_start_matches("- ").split_once(": "));
    header.extend(lines.map(|(key, value)| line(key, value.to_owned())));
    let server = options.built.join("forebay");
    let version = machine::first_line(Command::new(&server).arg("version"));
    header.push(line("versions", version));
    header
}

/// The commit that was built; with a plus if the working copy has changes.
pub fn commit() -> String {
    let git =
        |words: &[&str]| machine::first_line(Command::new("git").args(words).current_dir(top()));
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    // files of earlier measurements do not make it another build
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!lab/runs"]);
    if changed.is_empty() { head } else { head + "+" }
}

/// The repository.
pub fn top() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}
