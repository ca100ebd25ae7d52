//! The record: the rows of an experiment in all folders of `lab/runs`.

use super::KeptRound;
use super::recorded::RowFile;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rows that are kept of one experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptRows {
    /// The rounds of its edition, the oldest first.
    pub rounds: Vec<KeptRound>,
    /// The file of the newest round, and what its header says.
    pub newest: Option<(PathBuf, RowFile)>,
    /// The number of files of another edition: they are not judged.
    pub other_editions: usize,
    /// The number of files that did not come to their end.
    pub broken_off: usize,
}

/// The names of the folders, the oldest first: they begin with their dates.
pub fn folders(runs: &Path) -> Vec<String> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names: BTreeSet<_> =
        folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.into_iter().collect()
}

/// Reads what is kept of the experiment of this name and edition.
pub fn read(runs: &Path, name: &str, edition: u32) -> KeptRows {
    let mut kept = KeptRows::default();
    for run in folders(runs) {
        kept.add(&runs.join(&run), &run, name, edition);
    }
    kept
}

impl KeptRows {
    fn add(&mut self, folder: &Path, run: &str, name: &str, edition: u32) {
        let path = folder.join(format!("{name}.csv"));
        let Ok(text) = fs::read_to_string(&path) else { return };
        let file = RowFile::read(&text);
        if !file.is_whole {
            self.broken_off += 1;
        } else if file.said("edition").and_then(|said| said.parse().ok()) != Some(edition) {
            self.other_editions += 1;
        } else {
            self.rounds.extend(rounds(run, &file));
            self.newest = Some((path, file));
        }
    }
}

/// The rounds of a file.
fn rounds(run: &str, file: &RowFile) -> Vec<KeptRound> {
    let numbers: BTreeSet<u32> = file.rows.iter().map(|row| row.round).collect();
    let said = |key: &str| file.said(key).unwrap_or_default().to_owned();
    let round = |number: u32| KeptRound {
        run: run.to_owned(),
        number,
        commit: said("commit"),
        machine: file.said("machine").or(file.said("processor")).unwrap_or_default().to_owned(),
        rows: file.rows.iter().filter(|row| row.round == number).cloned().collect(),
    };
    numbers.into_iter().map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_files_of_an_edition_are_kept() {
        let runs = std::env::temp_dir().join(format!("forebay-lab-kept-{}", std::process::id()));
        let write = |run: &str, edition: u32, end: &str| {
            fs::create_dir_all(runs.join(run)).expect("a folder");
            let text = format!(
                "# commit: c0ffee\n# edition: {edition}\n# processor: one\n# words: way\n\
                 round,place,way,us,flags\n1,1,a,3,\n2,1,a,4,\n{end}"
            );
            fs::write(runs.join(run).join("fibers.csv"), text).expect("rows");
        };
        write("2026-12-02-round-2", 1, "# whole\n");
        write("2026-12-01-round-1", 1, "# whole\n");
        write("2026-12-03-round-3", 1, "");
        write("2026-11-30-round-0", 7, "# whole\n");
        let kept = read(&runs, "fibers", 1);
        assert_eq!((kept.other_editions, kept.broken_off, kept.rounds.len()), (1, 1, 4));
        let runs_of: Vec<_> = kept.rounds.iter().map(|round| round.run.as_str()).collect();
        assert_eq!(
            runs_of[..3],
            ["2026-12-01-round-1", "2026-12-01-round-1", "2026-12-02-round-2"]
        );
        let first = &kept.rounds[0];
        assert_eq!(
            (first.commit.as_str(), first.machine.as_str(), first.rows.len()),
            ("c0ffee", "one", 1)
        );
        assert!(
            kept.newest.is_some_and(|(path, _)| path.ends_with("2026-12-02-round-2/fibers.csv"))
        );
        assert_eq!(read(&runs, "others", 1), KeptRows::default());
        fs::remove_dir_all(&runs).expect("removed");
    }
}
