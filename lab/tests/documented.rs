//! What is recorded and what is documented: rows in `lab/runs` are read, commands of BENCHMARKING.md are taken.

use forebay_lab::benchmarks::ALL;
use forebay_lab::rows::recorded::RowFile;
use forebay_lab::{arguments, runner};
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above").to_owned()
}

/// The name of the experiment in that of a run folder: 2026-11-22-engines-hot.
fn experiment(folder: &Path) -> Option<&'static str> {
    let name = folder.file_name()?.to_str()?.get("2026-11-22-".len()..)?;
    ALL.iter().map(|experiment| experiment.name).find(|known| name.starts_with(known))
}

#[test]
fn recorded_rows_are_read_whole() {
    let folders = fs::read_dir(top().join("lab/runs")).expect("runs").flatten();
    let mut read = 0;
    for folder in folders.map(|entry| entry.path()) {
        let Ok(text) = fs::read_to_string(folder.join("rows.csv")) else { continue };
        let name = experiment(&folder).expect("a folder that is named after an experiment");
        let found = runner::experiment_of(ALL, &RowFile::read(&text)).expect("an experiment");
        assert_eq!(found.name, name, "{}", folder.display());
        let words = found.columns.iter().filter(|column| column.is_key).map(|column| column.name);
        let file = RowFile::read_as(&text, &words.clone().collect::<Vec<_>>());
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(file.rows.len(), lines - 1, "{}", folder.display());
        for row in &file.rows {
            assert!(words.clone().all(|word| !row.text(word).is_empty()), "{row:?}");
            // what a file says is a number is one
            let figures = file.figures.iter().filter(|name| {
                found.columns.iter().any(|column| !column.is_key && column.name == **name)
            });
            let said = figures.filter(|name| row.get(name).is_some()).count();
            assert!(row.round > 0 && said > 2, "{}: {row:?}", folder.display());
        }
        let shown = runner::shown(ALL, &folder).expect("tables");
        assert!(shown.contains("\n|---|"), "{shown}");
        read += 1;
    }
    assert!(read > 30, "only {read} runs were read");
}

/// The commands `make bench…` of a page: the experiment, and its arguments.
fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("make bench"));
    let split = |line: &str| {
        let name = line.split_whitespace().next().filter(|_| line.starts_with('-'));
        let name = name.map_or("static", |name| name.trim_start_matches('-')).to_owned();
        let arguments = line.split_once("ARGS=\"").and_then(|(_, rest)| rest.split_once('"'));
        let arguments = arguments.map_or("", |(arguments, _)| arguments).split_whitespace();
        (name, arguments.map(str::to_owned).collect())
    };
    lines.map(split).collect()
}

#[test]
fn documented_commands_are_taken() {
    let pages = fs::read_dir(top().join("docs/measured")).expect("pages").flatten();
    let pages = pages.map(|page| page.path()).chain([top().join("BENCHMARKING.md")]);
    let texts = pages.map(|page| fs::read_to_string(page).expect("a page"));
    let mut taken = 0;
    for (name, arguments) in texts.flat_map(|text| commands(&text)) {
        let found = ALL.iter().find(|experiment| experiment.name == name);
        let experiment = found.unwrap_or_else(|| panic!("there is no {name}"));
        let words = [vec![name.clone()], arguments].concat();
        let given = arguments::command(experiment).try_get_matches_from(&words);
        let given = given.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let options = arguments::options(experiment, &given).expect("options");
        assert!(options.rounds > 0 && !options.servers.is_empty(), "{words:?}");
        taken += 1;
    }
    assert!(taken > 20, "only {taken} commands were found");
}

#[test]
fn experiments_are_whole() {
    for experiment in ALL {
        arguments::command(experiment).debug_assert();
        let is_column = |name: &str| experiment.columns.iter().any(|column| column.name == name);
        let words = experiment.tables.iter().chain(experiment.lines);
        assert!(words.copied().all(is_column), "{}", experiment.name);
        assert!(
            experiment.claims.iter().all(|claim| is_column(claim.figure)),
            "{}",
            experiment.name
        );
        for (_, peers) in experiment.peers {
            let is_there = |peer: &&str| !forebay_lab::peers::text(peer).is_empty();
            assert!(peers.iter().all(is_there), "{}", experiment.name);
        }
        for axis in experiment.axes() {
            let known = (axis.known)();
            let all = [axis.default, axis.quick, axis.instead.map_or("", |(_, values, _)| values)];
            let named = all.iter().flat_map(|values| values.split(','));
            let named = named.filter(|value| !value.is_empty() && !known.is_empty());
            assert!(named.clone().all(|value| known.contains(&value)), "{}", axis.option);
        }
    }
}
