//! The file of an experiment's rows, which grows round by round.
//!
//! The file is `NAME.part.csv` until the last round is there, and `NAME.csv`, with `# whole` at its
//! end, from then on. After the rows of each round is a line `# round N is whole`; rows behind the
//! last such line are measured again.

use crate::Error;
use crate::rows::recorded::{RowFile, WHOLE};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Lines of the header that rows must share to stand in one file.
const SAME: &[&str] = &["experiment", "edition", "form", "commit", "machine"];

/// The rows of an experiment that is measured.
#[derive(Debug)]
pub struct GrowingRows {
    part: PathBuf,
    whole: PathBuf,
    rounds: Vec<u32>,
    has_head: bool,
    is_whole: bool,
}

impl GrowingRows {
    /// The rows of a name in a folder, which is made if it is not there. Rows that another build,
    /// another machine or another form has left are begun anew.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn open(
        folder: &Path,
        name: &str,
        header: &[(String, String)],
    ) -> Result<GrowingRows, Error> {
        fs::create_dir_all(folder).map_err(Error::io("cannot make the folder", folder))?;
        let (part, whole) =
            (folder.join(format!("{name}.part.csv")), folder.join(format!("{name}.csv")));
        let mut kept =
            GrowingRows { part, whole, rounds: Vec::new(), has_head: false, is_whole: false };
        let found = if kept.whole.exists() { &kept.whole } else { &kept.part };
        let text = fs::read_to_string(found).unwrap_or_default();
        let before = RowFile::read(&text);
        let said = |key: &str| header.iter().find(|(known, _)| known == key).map(|(_, it)| &**it);
        if text.is_empty() || SAME.iter().any(|key| before.said(key) != said(key)) {
            return Ok(kept);
        }
        let is_end = |line: &&str| round_of(line).is_some();
        kept.rounds = text.lines().filter_map(round_of).collect();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.iter().rposition(is_end).map_or(0, |at| at + 1);
        let rest: String = lines[..end].iter().flat_map(|line| [line, "\n"]).collect();
        kept.has_head = !rest.is_empty();
        kept.is_whole = before.is_whole;
        if !kept.is_whole {
            fs::write(&kept.part, rest).map_err(Error::io("cannot write", &kept.part))?;
        }
        Ok(kept)
    }

    /// Whether a round is there.
    pub fn has(&self, round: u32) -> bool {
        self.rounds.contains(&round)
    }

    /// Adds the rows of a round.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn add(&mut self, round: u32, file: &RowFile) -> Result<(), Error> {
        if self.is_whole {
            // more rounds than were asked for at first
            fs::rename(&self.whole, &self.part).map_err(Error::io("cannot rename", &self.whole))?;
            self.is_whole = false;
        }
        let mut text = if self.has_head { String::new() } else { file.head() };
        text.extend(file.rows.iter().map(|row| file.line(row)));
        text += &format!("# round {round} is whole\n");
        let failed = || Error::io("cannot write", &self.part);
        let out = match self.has_head {
            true => File::options().append(true).open(&self.part),
            false => File::create(&self.part),
        };
        let mut out = out.map_err(failed())?;
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(failed())?;
        self.has_head = true;
        self.rounds.push(round);
        Ok(())
    }

    /// Marks the file as whole. Returns the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(self) -> Result<PathBuf, Error> {
        if !self.is_whole {
            let failed = || Error::io("cannot write", &self.part);
            let text = fs::read_to_string(&self.part).map_err(failed())?;
            // a file that went on after its end has another such mark in its middle
            let lines = text.lines().filter(|line| *line != WHOLE);
            let text: String = lines.flat_map(|line| [line, "\n"]).collect();
            fs::write(&self.part, text + WHOLE + "\n").map_err(failed())?;
            fs::rename(&self.part, &self.whole).map_err(failed())?;
        }
        Ok(self.whole)
    }
}

/// The round that a line says is whole.
fn round_of(line: &str) -> Option<u32> {
    line.strip_prefix("# round ")?.strip_suffix(" is whole")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::RawRow;

    fn header(commit: &str) -> Vec<(String, String)> {
        vec![("commit".to_owned(), commit.to_owned()), ("experiment".to_owned(), "a".to_owned())]
    }

    fn rows(round: u32) -> RowFile {
        RowFile {
            header: header("1"),
            words: vec!["way".to_owned()],
            figures: vec!["ms".to_owned()],
            rows: vec![RawRow::new(round, 1).word("way", "x").figure("ms", 2.5)],
            is_whole: false,
        }
    }

    #[test]
    fn a_file_that_was_cut_goes_on_after_its_last_whole_round() {
        let folder =
            std::env::temp_dir().join(format!("forebay-lab-growing-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut kept = GrowingRows::open(&folder, "a", &header("1")).expect("a folder");
        kept.add(1, &rows(1)).expect("rows");
        // killed within the second round
        let part = folder.join("a.part.csv");
        let text = fs::read_to_string(&part).expect("rows") + "2,1,x,9.";
        fs::write(&part, text).expect("rows");
        let mut kept = GrowingRows::open(&folder, "a", &header("1")).expect("a folder");
        assert!(kept.has(1) && !kept.has(2));
        kept.add(2, &rows(2)).expect("rows");
        let whole = kept.end().expect("a file");
        let read = RowFile::read(&fs::read_to_string(&whole).expect("rows"));
        assert!(read.is_whole && !part.exists());
        assert_eq!(read.rows, [rows(1).rows, rows(2).rows].concat());
        // a third round of the same, and nothing twice
        let mut kept = GrowingRows::open(&folder, "a", &header("1")).expect("a folder");
        assert!(kept.has(2));
        kept.add(3, &rows(3)).expect("rows");
        let read = RowFile::read(&fs::read_to_string(kept.end().expect("a file")).expect("rows"));
        assert!(read.is_whole && read.rows.len() == 3);
        // another build begins anew
        assert!(!GrowingRows::open(&folder, "a", &header("2")).expect("a folder").has(1));
        fs::remove_dir_all(&folder).expect("a folder");
    }
}
