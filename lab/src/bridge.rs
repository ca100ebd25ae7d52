//! `lab measure NAME …`: the rows of an experiment that is a value, for a file of kind `program`.

use crate::benchmarks::ALL;
use crate::columns;
use crate::rows::recorded::RowFile;
use crate::{Error, arguments, profile, runner, shift};
use clap::parser::ValueSource;
use clap::{Arg, Command, value_parser};

/// Prints the rows of one round; the first word is the experiment.
///
/// # Errors
/// The errors of a run of that experiment.
pub fn measure(words: &[String]) -> Result<(), Error> {
    let first = words.first().map(String::as_str).unwrap_or_default();
    let found = ALL.iter().find(|benchmark| benchmark.name == first);
    let benchmark = found.ok_or_else(|| {
        let known: Vec<_> = ALL.iter().map(|benchmark| benchmark.name).collect();
        Error::Client(format!("{first}: lab measure knows {}", known.join(", ")))
    })?;
    let given = command(benchmark.name).get_matches_from(words);
    let mut options = arguments::options(benchmark, &given)?;
    if given.value_source("rounds") != Some(ValueSource::CommandLine) {
        options.rounds = 1;
    }
    let beginning = given.get_one::<u32>("beginning").copied().unwrap_or(1);
    let mut rows = runner::rows(benchmark, options, beginning.saturating_sub(1))?;
    match benchmark.name {
        "shift" => rows = shift::judged(rows),
        "profile" => rows = profile::with_sums(rows),
        // a server's capacity is a figure of no paper
        "overload" => rows.retain(|row| row.text("part") != "capacity"),
        _ => {}
    }
    let file = RowFile { rows, is_whole: true, ..columns::file(benchmark.columns) };
    print!("{}", file.text());
    Ok(())
}

/// The command line of an experiment that is measured: its own, and the number of this round among
/// many.
///
/// An unknown name has a command line without options.
pub fn command(name: &str) -> Command {
    let found = ALL.iter().find(|benchmark| benchmark.name == name);
    let beginning = Arg::new("beginning").long("beginning").value_parser(value_parser!(u32));
    let beginning = beginning.help("Which round of many this one is: others begin in each [1]");
    found.map_or(Command::new("none"), |benchmark| arguments::command(benchmark).arg(beginning))
}

/// The error in a file's command, if it measures an experiment that is a value: in its words, or in
/// the columns that the file wants.
pub fn wrong_with<'w>(
    words: &[String],
    wanted: impl Iterator<Item = &'w String>,
) -> Option<String> {
    let [own, measure, words @ ..] = words else { return None };
    if own != "@LAB@" || measure != "measure" {
        return None;
    }
    let name = words.first().map(String::as_str).unwrap_or_default();
    let Some(benchmark) = ALL.iter().find(|benchmark| benchmark.name == name) else {
        return Some(format!("{name}: lab measure does not know it"));
    };
    let words = words.iter().map(|word| word.replace("@ROUND@", "1"));
    if let Err(error) = command(name).try_get_matches_from(words) {
        return Some(error.to_string().lines().next().unwrap_or_default().to_owned());
    }
    let has = |name: &String| benchmark.columns.iter().any(|column| column.name == *name);
    let mut wanted = wanted.filter(|name| !has(name));
    wanted.next().map(|name| {
        let known: Vec<_> = benchmark.columns.iter().map(|column| column.name).collect();
        format!("{name}: {} has {}", benchmark.name, known.join(", "))
    })
}
