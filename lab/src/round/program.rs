//! A command that prints rows.

use super::points::{SweepPoint, filled, is_skipped, points};
use super::{RoundOptions, top};
use crate::Error;
use crate::content::Scratch;
use crate::experiment::{Experiment, ProgramTask};
use crate::rows::RawRow;
use crate::rows::recorded::RowFile;
use crate::running::{self, ChildProcess};
use crate::summary::Spread;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The longest time that a command may take.
const LONGEST: Duration = Duration::from_secs(3600);

/// The rows of one round.
///
/// # Errors
/// When the command fails, or prints something else than the rows that the experiment wants.
pub fn measure(
    experiment: &Experiment,
    task: &ProgramTask,
    round: u32,
    options: &RoundOptions,
) -> Result<RowFile, Error> {
    let scratch = Scratch::new()?;
    let mut all = RowFile::default();
    for point in points(experiment, options.quick, &options.set, round) {
        if is_skipped(experiment, &point) {
            continue;
        }
        let mut found = one(experiment, task, (round, &point), options, scratch.path())?;
        let words = experiment.keys().into_iter().map(str::to_owned);
        found.words = words.collect();
        let rows = std::mem::take(&mut found.rows).into_iter();
        let named = |row: RawRow| {
            point.iter().fold(row, |row, (axis, value)| row.word(axis, value.clone()))
        };
        let rows: Vec<RawRow> = [all.rows, rows.map(named).collect()].concat();
        all = RowFile { rows, ..found };
    }
    Ok(all)
}

/// One run of the command.
fn one(
    experiment: &Experiment,
    task: &ProgramTask,
    (round, point): (u32, &SweepPoint),
    options: &RoundOptions,
    scratch: &Path,
) -> Result<RowFile, Error> {
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let word = |name: &str, value: String| (name.to_owned(), value);
    let mut words = point.clone();
    words.extend([
        word("LAB", own.display().to_string()),
        word("BIN", options.built.display().to_string()),
        word("TOP", top().display().to_string()),
        word("ROUND", round.to_string()),
    ]);
    let short =
        experiment.quick.as_ref().filter(|quick| options.quick && !quick.command.is_empty());
    let line = short.map_or(&task.command, |quick| &quick.command);
    let line: Vec<String> = line.iter().map(|part| filled(part, &words)).collect();
    let (program, arguments) = line.split_first().expect("a command has a program");
    let (rows, said) = (scratch.join("rows"), scratch.join("said"));
    let create = |path: &Path| File::create(path).map_err(Error::io("cannot write", path));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(top()).stdin(Stdio::null());
    command.stdout(create(&rows)?).stderr(create(&said)?);
    eprintln!("{}: {}", experiment.name, line.join(" "));
    let mut process = ChildProcess::start(command, None)?;
    let failed = |what: &str| {
        let said = fs::read_to_string(&said).unwrap_or_default();
        Error::Client(format!("{}: {what}\n{}", line.join(" "), running::last_lines(&said)))
    };
    if !process.wait(LONGEST, &options.stop)? {
        return Err(failed("it took more than an hour"));
    }
    if !process.has_succeeded() {
        return Err(failed("it failed"));
    }
    let text = fs::read_to_string(&rows).map_err(Error::io("cannot read", &rows))?;
    let keys: Vec<&str> = task.keys.iter().map(String::as_str).collect();
    let mut file = RowFile::read_as(&text, &keys);
    let has = |name: &&String| file.words.contains(name) || file.figures.contains(name);
    let lacking: Vec<_> =
        task.keys.iter().chain(&task.measures).filter(|name| !has(name)).collect();
    if !lacking.is_empty() || file.rows.is_empty() {
        return Err(failed(&format!("rows without {lacking:?} were printed")));
    }
    file.rows = middles(file.rows, &task.keys, round);
    Ok(file)
}

/// A row for each combination of the keys' words, with the medians of what was measured several
/// times.
fn middles(rows: Vec<RawRow>, keys: &[String], round: u32) -> Vec<RawRow> {
    let words = |row: &RawRow| keys.iter().map(|key| row.text(key).to_owned()).collect::<Vec<_>>();
    let mut groups: Vec<(Vec<String>, Vec<RawRow>)> = Vec::new();
    for row in rows {
        let own = words(&row);
        match groups.iter_mut().find(|(words, _)| *words == own) {
            Some((_, group)) => group.push(row),
            None => groups.push((own, vec![row])),
        }
    }
    let middle = |(words, group): (Vec<String>, Vec<RawRow>)| {
        let place = group.first().map_or(0, |row| row.place);
        let row = keys.iter().zip(words);
        let row = row.fold(RawRow::new(round, place), |row, (key, word)| row.word(key, word));
        let valid: Vec<&RawRow> = match group.iter().filter(|row| row.is_valid()).collect() {
            // rows that do not count are shown as such
            valid if Vec::is_empty(&valid) => group.iter().collect(),
            valid => valid,
        };
        let mut names: Vec<&String> =
            valid.iter().flat_map(|row| row.figures()).map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        let row = names.into_iter().fold(row, |row, name| {
            let spread = Spread::of(valid.iter().filter_map(|one| one.get(name)));
            row.figure(name, spread.map_or(f64::NAN, |spread| spread.median))
        });
        let mut flags: Vec<&String> = valid.iter().flat_map(|row| row.flags()).collect();
        flags.sort();
        flags.dedup();
        flags.into_iter().fold(row, |row, flag| row.flag(flag, true))
    };
    groups.into_iter().map(middle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_measured_several_times_the_medians_are_taken() {
        let row = |way: &str, ms: f64| RawRow::new(1, 1).word("way", way).figure("ms", ms);
        let bad = row("a", 90.0).flag("errors", true);
        let rows = vec![row("a", 1.0), row("b", 5.0), row("a", 3.0), bad, row("a", 2.0)];
        let found = middles(rows, &["way".to_owned()], 7);
        let a = RawRow::new(7, 1).word("way", "a").figure("ms", 2.0);
        let b = RawRow::new(7, 1).word("way", "b").figure("ms", 5.0);
        assert_eq!(found, [a, b]);
    }
}
