//! A round of all experiments of a set, each in a process of its own.
//!
//! The folder of a round is `lab/runs/DATE-round-N`. `round.txt` there states the build, the place
//! and the beginning; with `# whole` at its end nothing is missing. A round that was interrupted
//! goes on, if the build and the machine are the same and it is younger than a day.

use super::{commit, needs, top};
use crate::catalogue::{Catalogue, minutes};
use crate::experiment::{Experiment, ExperimentSet};
use crate::rows::recorded::WHOLE;
use crate::{Error, machine};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const POLL: Duration = Duration::from_millis(100);
/// The factor by which an experiment may take longer than its file says before a message says so.
const LONGER: f64 = 1.3;
/// The age from which an interrupted round does not go on.
const DAY_S: u64 = 24 * 3600;

/// A round under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundFolder {
    /// The folder for rows.
    pub path: PathBuf,
    /// The round's number, from 1 on.
    pub number: u32,
}

/// The wanted kind of round.
#[derive(Clone, Debug)]
pub struct RoundWanted {
    /// The set whose turn it is.
    pub set: Option<ExperimentSet>,
    /// Whether short forms are measured.
    pub quick: bool,
    /// Whether another round is begun, even if one is not finished.
    pub new: bool,
    /// The folder for rows, if not `lab/runs`.
    pub out: Option<PathBuf>,
}

/// The name of a set in the names of folders.
fn name(set: Option<ExperimentSet>) -> &'static str {
    match set {
        Some(ExperimentSet::Papers) => "round",
        Some(ExperimentSet::Peers) => "peers",
        Some(ExperimentSet::Library) => "library",
        None => "all",
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The lines of `round.txt` by which a round is recognised.
fn identity() -> String {
    format!("commit: {}\nmachine: {}\n", commit(), machine::name())
}

/// The rounds below a folder, the newest last.
fn rounds(runs: &Path, kind: &str) -> Vec<RoundFolder> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.get("2026-11-29-".len()..)?;
        let number = name.strip_prefix(kind)?.strip_prefix('-')?.parse().ok()?;
        Some(RoundFolder { path, number })
    };
    let mut rounds: Vec<_> = entries.filter_map(number).collect();
    rounds.sort_by_key(|round| round.number);
    rounds
}

/// The round that goes on, or the next one, with the time at which it began.
fn folder(wanted: &RoundWanted) -> Result<RoundFolder, Error> {
    if let Some(out) = &wanted.out {
        return Ok(RoundFolder { path: out.clone(), number: 1 });
    }
    let runs = top().join("lab/runs");
    let before = rounds(&runs, name(wanted.set));
    let newest = before.last().cloned();
    let goes_on = |round: &RoundFolder| {
        let text = fs::read_to_string(round.path.join("round.txt")).unwrap_or_default();
        let began = text.lines().find_map(|line| line.strip_prefix("began: ")?.parse::<u64>().ok());
        let is_young = began.is_some_and(|began| now_s().saturating_sub(began) < DAY_S);
        is_young && text.starts_with(&identity()) && !text.ends_with(&format!("{WHOLE}\n"))
    };
    if let Some(round) = newest.as_ref().filter(|round| !wanted.new && goes_on(round)) {
        return Ok(round.clone());
    }
    let number = newest.map_or(1, |round| round.number + 1);
    let path = format!("{}-{}-{number}", machine::date("+%Y-%m-%d"), name(wanted.set));
    Ok(RoundFolder { path: runs.join(path), number })
}

/// Measures all experiments of a set that the round does not have yet; `after` is called for each.
///
/// # Errors
/// When something fails, or is missing where nothing may be missing (`CI=true`); a signal.
pub fn measure(
    catalogue: &Catalogue,
    wanted: &RoundWanted,
    built: &Path,
    stop: &AtomicBool,
    after: &mut dyn FnMut(&Experiment, &Path) -> Result<(), String>,
) -> Result<RoundFolder, Error> {
    let round = folder(wanted)?;
    fs::create_dir_all(&round.path).map_err(Error::io("cannot make the folder", &round.path))?;
    let is_wanted = |one: &&Experiment| {
        wanted.set.is_none_or(|set| set == one.set) && (!wanted.quick || one.quick.is_some())
    };
    let all: Vec<&Experiment> = catalogue.experiments.iter().filter(is_wanted).collect();
    let said = round.path.join("round.txt");
    if !said.exists() {
        let text = format!("{}began: {}\n", identity(), now_s());
        fs::write(&said, text).map_err(Error::io("cannot write", &said))?;
    }
    let text = fs::read_to_string(&said).map_err(Error::io("cannot read", &said))?;
    if !text.starts_with(&identity()) {
        let what = "holds a round of another build or machine: give another folder";
        return Err(Error::Client(format!("{} {what}", round.path.display())));
    }
    let mut left: Vec<&Experiment> = all.clone();
    left.retain(|one| !round.path.join(format!("{}.csv", one.name)).is_file());
    println!(
        "Round {} in {}: {} experiments, {}. Nothing else should run.",
        round.number,
        round.path.display(),
        left.len(),
        until(&left, wanted.quick),
    );
    let mut wrong = Vec::new();
    let mut turns = left.clone().into_iter();
    while let Some(one) = turns.next() {
        let missing = needs::missing(one, built);
        if !missing.is_empty() {
            println!("NOT MEASURED: {}: it needs {}", one.name, missing.join(", "));
            wrong.push(format!("{}: not measured", one.name));
            continue;
        }
        let began = Instant::now();
        let measured = || one_of(one, &round, wanted, stop);
        let judged = measured().and_then(|()| {
            if let Err(why) = after(one, &round.path) {
                // an accident is not seen twice
                println!("{}: {why}. Once more.", one.name);
                let file = round.path.join(format!("{}.csv", one.name));
                fs::remove_file(&file).map_err(Error::io("cannot remove", &file))?;
                measured()?;
                return after(one, &round.path).map_err(Error::Client);
            }
            Ok(())
        });
        match judged {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                println!("FAILED: {}: {error}", one.name);
                wrong.push(format!("{}: failed", one.name));
            }
            Ok(()) => {
                let took = began.elapsed().as_secs_f64() / 60.0;
                if took > LONGER * minutes(one, wanted.quick) + 0.1 {
                    println!("{} took {took:.1} minutes: its file says less", one.name);
                }
                let rest: Vec<&Experiment> = turns.clone().collect();
                println!(
                    "{} is there; {} left, {}",
                    one.name,
                    rest.len(),
                    until(&rest, wanted.quick)
                );
            }
        }
    }
    // an experiment that the machine cannot measure leaves the round open; only in CI is that a failure
    let is_strict = wanted.quick && std::env::var("CI").is_ok_and(|ci| ci == "true");
    let failed = wrong.iter().any(|one| one.ends_with("failed"));
    if wrong.is_empty() {
        let text = fs::read_to_string(&said).unwrap_or_default();
        let text = text.trim_end_matches(&format!("{WHOLE}\n")).to_owned() + WHOLE + "\n";
        fs::write(&said, text).map_err(Error::io("cannot write", &said))?;
    }
    match failed || is_strict && !wrong.is_empty() {
        true => Err(Error::Client(format!("the round is not whole: {}", wrong.join("; ")))),
        false => Ok(round),
    }
}

/// The time that these take, and when they will be done.
fn until(left: &[&Experiment], quick: bool) -> String {
    let all: f64 = left.iter().map(|one| minutes(one, quick)).fold(0.0, |sum, more| sum + more);
    let end = now_s() + (all * 60.0) as u64;
    let end = machine::first_line(Command::new("date").args(["-d", &format!("@{end}"), "+%H:%M"]));
    format!("about {all:.0} minutes, until {end}")
}

/// One experiment in a process of its own: networks are made for a whole process.
fn one_of(
    one: &Experiment,
    round: &RoundFolder,
    wanted: &RoundWanted,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let mut command = Command::new(own);
    command.args(["run", &one.name, "--first", &round.number.to_string(), "--silent", "--out"]);
    command.arg(&round.path);
    if wanted.quick {
        command.arg("--quick");
    }
    let child = command.spawn().map_err(Error::io("cannot start", "this program"))?;
    let status = ended(child, stop)?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Client(format!("lab run {}: {status}", one.name))),
    }
}

/// Waits for a process. A signal that asks this program to stop stops it, too.
fn ended(mut child: Child, stop: &AtomicBool) -> Result<ExitStatus, Error> {
    loop {
        if let Some(status) = child.try_wait().map_err(Error::io("cannot wait for", "lab run"))? {
            return match stop.load(Ordering::Relaxed) {
                true => Err(Error::Interrupted),
                false => Ok(status),
            };
        }
        if stop.load(Ordering::Relaxed) {
            let pid = rustix::process::Pid::from_child(&child);
            // a process that has ended needs no signal
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
            return Err(Error::Interrupted);
        }
        std::thread::sleep(POLL);
    }
}
