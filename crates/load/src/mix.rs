//! The paths that are requested: one, or many with weights, drawn at random.

use fastrand::Rng;
use std::fmt;
use std::path::{Path, PathBuf};

/// One path of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct MixPath {
    /// Path and query, as in the request line.
    pub path: Box<str>,
    /// How often the path is drawn, relative to the others; more than 0.
    pub weight: f64,
    /// The length that the body must have, in bytes, if it is known.
    pub length_bytes: Option<u64>,
}

/// Paths with weights. Drawing one costs a binary search.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    entries: Vec<MixPath>,
    /// The sum of the weights up to and including each entry, as a share of the whole.
    cumulative: Vec<f64>,
}

/// Why a file of paths cannot be used.
#[derive(Debug)]
pub enum MixError {
    /// The file could not be read.
    Unreadable(PathBuf, std::io::Error),
    /// A line is not `PATH [WEIGHT [BYTES]]`.
    Line(PathBuf, usize),
    /// The file has no path.
    Empty(PathBuf),
}

impl fmt::Display for MixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MixError::Unreadable(file, error) => write!(f, "{}: {error}", file.display()),
            MixError::Line(file, line) => {
                write!(f, "{}:{line}: expected PATH [WEIGHT [BYTES]]", file.display())
            }
            MixError::Empty(file) => write!(f, "{}: no path in it", file.display()),
        }
    }
}

impl Mix {
    /// A mix of a single path.
    pub fn one(path: &str) -> Mix {
        Mix::new(vec![MixPath { path: path.into(), weight: 1.0, length_bytes: None }])
    }

    /// A mix of these paths. An empty list becomes `/`.
    pub fn new(mut entries: Vec<MixPath>) -> Mix {
        if entries.is_empty() {
            entries.push(MixPath { path: "/".into(), weight: 1.0, length_bytes: None });
        }
        let total: f64 = entries.iter().map(|entry| entry.weight).sum();
        let mut sum = 0.0;
        let cumulative = entries.iter().map(|entry| {
            sum += entry.weight;
            sum / total
        });
        let cumulative = cumulative.collect();
        Mix { entries, cumulative }
    }

    /// Reads a file with one `PATH [WEIGHT [BYTES]]` per line; `#` begins a comment.
    ///
    /// # Errors
    /// The file cannot be read, or a line has another form.
    pub fn read(file: &Path) -> Result<Mix, MixError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| MixError::Unreadable(file.to_owned(), error))?;
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                let entry = Mix::line(line);
                entries.push(entry.ok_or_else(|| MixError::Line(file.to_owned(), number + 1))?);
            }
        }
        if entries.is_empty() {
            Err(MixError::Empty(file.to_owned()))
        } else {
            Ok(Mix::new(entries))
        }
    }

    fn line(line: &str) -> Option<MixPath> {
        let mut words = line.split_whitespace();
        let path = words.next().filter(|path| path.starts_with('/'))?;
        let weight: f64 = words.next().map_or(Some(1.0), |word| word.parse().ok())?;
        let length_bytes = match words.next() {
            Some(word) => Some(word.parse().ok()?),
            None => None,
        };
        let sound = weight > 0.0 && weight.is_finite() && words.next().is_none();
        sound.then(|| MixPath { path: path.into(), weight, length_bytes })
    }

    /// All entries.
    pub fn entries(&self) -> &[MixPath] {
        &self.entries
    }

    /// Draws an entry; returns its index in [`entries`](Mix::entries).
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> usize {
        if self.entries.len() == 1 {
            return 0;
        }
        let at = rng.f64();
        let place = self.cumulative.partition_point(|sum| *sum <= at);
        // rounding may leave the last sum a little below 1
        place.min(self.entries.len() - 1)
    }

    /// The share of all requests that entry `place` gets, 0 to 1.
    pub fn share(&self, place: usize) -> f64 {
        let before = place.checked_sub(1).map_or(0.0, |before| self.cumulative[before]);
        self.cumulative[place] - before
    }

    /// The mean length of a body, in bytes, if all lengths are known.
    pub fn mean_bytes(&self) -> Option<f64> {
        let mut mean = 0.0;
        for (place, entry) in self.entries.iter().enumerate() {
            mean += self.share(place) * entry.length_bytes? as f64;
        }
        Some(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_drawn_by_weight() {
        let entry = |path: &str, weight| MixPath { path: path.into(), weight, length_bytes: None };
        let mix = Mix::new(vec![entry("/a", 1.0), entry("/b", 3.0)]);
        let mut rng = Rng::with_seed(1);
        let b = (0..10_000).filter(|_| mix.draw(&mut rng) == 1).count();
        assert!((7_300..7_700).contains(&b), "{b}");
        assert!((mix.share(1) - 0.75).abs() < 1e-12);
    }

    #[test]
    fn a_file_of_paths_is_read() {
        let file = std::env::temp_dir().join(format!("forebay-mix-{}", std::process::id()));
        std::fs::write(&file, "# shop\n/buy 2 1024\n/ # home\n").unwrap();
        let mix = Mix::read(&file).unwrap();
        assert_eq!(mix.entries()[0].length_bytes, Some(1024));
        assert_eq!(mix.entries().len(), 2);
        std::fs::write(&file, "/ok\nbuy\n").unwrap();
        assert!(matches!(Mix::read(&file), Err(MixError::Line(_, 2))));
        std::fs::write(&file, "#\n").unwrap();
        assert!(matches!(Mix::read(&file), Err(MixError::Empty(_))));
        std::fs::remove_file(&file).unwrap();
    }
}
