//! The constants that `forebay calibrate` has measured on a machine: a file that it writes, and that
//! `pipeline.calibration` names (keta §4.2: constants "obtained off-line and written into a configuration
//! file").
//!
//! The constants for the server stand at the top; `[found]` says for people how they were measured. Costs
//! are in seconds of one core, so that the file holds for any number of cores.

use crate::Config;
use crate::problems::problem::{Problem, Wrong};
use crate::problems::quoted::quote;
use crate::table::{ConfigReader, Section};
use crate::values::units::Size;
use forebay_control::allocation::{PHASES, Phase};
use forebay_control::utilisation::Costs;
use forebay_policy::near::nearest;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use toml_edit::{Document, Item, Key, TableLike};

/// The constants of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// `c1`: seconds of one core that a request takes.
    pub request_s: f64,
    /// `c2`: seconds of one core that a byte takes.
    pub byte_s: f64,
    /// `a_k`: threads per waiting task and period, by [`Phase::index`].
    pub per_waiting: [f64; PHASES],
    /// `b_k`: threads per change of the request rate by 1/s, by [`Phase::index`].
    pub per_rate: [f64; PHASES],
    /// The largest file that is cheaper to send from memory than by sendfile.
    pub file_bytes: Size,
    /// The size of the pieces in which bodies of up to twice this size are cheaper to send; 0 for none.
    pub segment_bytes: Size,
}

/// Why a calibration cannot be used.
#[derive(Debug)]
pub enum CalibrationError {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file has faults, all of which are listed.
    Wrong(Vec<Problem>),
}

/// The key of `[found]` that names the machine.
pub const MACHINE: &str = "machine";

/// The machine that a file's text names.
pub fn machine(text: &str) -> Option<String> {
    let document = Document::parse(text).ok()?;
    Some(document.get("found")?.as_table_like()?.get(MACHINE)?.as_str()?.to_owned())
}

/// The keys of the file.
const KEYS: [&str; 7] = ["c1", "c2", "file_bytes", "segment_bytes", "a", "b", "found"];

impl Calibration {
    /// The cost of a request and of a byte, as a share of a server with this number of cores.
    pub fn costs(&self, cores: u32) -> Costs {
        let cores = f64::from(cores.max(1));
        Costs { request_s: self.request_s / cores, byte_s: self.byte_s / cores }
    }

    /// Reads the file's text; `file` is its name for messages.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the text.
    pub fn parse(text: &str, file: &str) -> Result<Calibration, Vec<Problem>> {
        let mut notes = CalibrationText { text, file, problems: Vec::new() };
        let read = match Document::parse(text) {
            Ok(document) => notes.calibration(document.as_table()),
            Err(error) => {
                let message = error.message().replace('\n', ", ").replace(char::is_control, " ");
                notes.note("", error.span(), Wrong::Syntax(message));
                None
            }
        };
        let mut problems = notes.problems;
        problems.sort_by_key(|problem| problem.place);
        read.filter(|_| problems.is_empty()).ok_or(problems)
    }

    /// The text of the file: `about` as a comment at its head, the constants with their meanings, and in
    /// `found` names and TOML values for people.
    pub fn to_toml(&self, about: &str, found: &[(&str, String)]) -> String {
        let phases = |values: &[f64; PHASES]| {
            let one = |phase: Phase| format!("{} = {:?}", phase.name(), values[phase.index()]);
            Phase::ALL.map(one).join(", ")
        };
        let mut text: String =
            about.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
        // writing to a string does not fail
        let _ = write!(
            text,
            "\n# U = c1·W + c2·R says how much of the server is used (keta §4.2, eq. 2), with W requests\n\
             # and R bytes per second, heads included. Seconds of one core: U is 1 when all cores the\n\
             # server may use are busy.\nc1 = {:?}\nc2 = {:?}\n\n\
             # The largest file that is cheaper to send from memory than by sendfile: the default of\n\
             # cache.file_bytes.\nfile_bytes = {}\n\n\
             # Bodies of up to twice this size are cheaper in two pieces, 0B: in one: the default of\n\
             # cache.segment_bytes.\nsegment_bytes = {}\n\n\
             # Threads that a phase of the pipeline gains in a period, by = \"queue\": a for each task that\n\
             # waits, b for each request per second that W has grown by.\n\
             a = {{ {} }}\nb = {{ {} }}\n\n\
             # How it was found. No server goes by this.\n[found]\n",
            self.request_s,
            self.byte_s,
            quote(&self.file_bytes.to_string()),
            quote(&self.segment_bytes.to_string()),
            phases(&self.per_waiting),
            phases(&self.per_rate),
        );
        for (key, value) in found {
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }
}

/// A text while it is parsed, and its faults.
struct CalibrationText<'t> {
    text: &'t str,
    file: &'t str,
    problems: Vec<Problem>,
}

impl CalibrationText<'_> {
    fn note(&mut self, key: &str, span: Option<Range<usize>>, wrong: Wrong) {
        let before = self.text.get(..span.map_or(0, |span| span.start)).unwrap_or("");
        self.problems.push(Problem {
            file: self.file.to_owned(),
            place: Some(ConfigReader::new(before, self.file).end()),
            key: key.to_owned(),
            wrong,
        });
    }

    fn calibration(&mut self, table: &dyn TableLike) -> Option<Calibration> {
        self.unknown("", table, &KEYS);
        let costs = (self.number("", table, "c1"), self.number("", table, "c2"));
        let file_bytes = self.size(table, "file_bytes");
        // files of earlier versions do not have it
        let segment_bytes = match table.contains_key("segment_bytes") {
            true => self.size(table, "segment_bytes"),
            false => Some(Size(0)),
        };
        let factors = (self.phases(table, "a"), self.phases(table, "b"));
        Some(Calibration {
            request_s: costs.0?,
            byte_s: costs.1?,
            per_waiting: factors.0?,
            per_rate: factors.1?,
            file_bytes: file_bytes?,
            segment_bytes: segment_bytes?,
        })
    }

    /// Notes each key that is not among `keys`.
    fn unknown(&mut self, section: &str, table: &dyn TableLike, keys: &[&str]) {
        for (name, item) in table.iter().filter(|(name, _)| !keys.contains(name)) {
            let near = nearest(name, keys.iter().copied()).map(str::to_owned);
            let span = table.key(name).and_then(Key::span).or(item.span());
            self.note(&format!("{section}{name}"), span, Wrong::Unknown { near });
        }
    }

    fn item<'i>(
        &mut self,
        table: &'i dyn TableLike,
        path: &str,
        example: &str,
    ) -> Option<&'i Item> {
        let found = table.get(path.rsplit('.').next().unwrap_or(path));
        if found.is_none() {
            self.note(path, None, Wrong::Missing { example: example.to_owned() });
        }
        found
    }

    fn number(&mut self, section: &str, table: &dyn TableLike, key: &str) -> Option<f64> {
        let path = format!("{section}{key}");
        let item = self.item(table, &path, &format!("{key} = 1e-6"))?;
        let number = item.as_float().or(item.as_integer().map(|number| number as f64));
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        self.fits(&path, item, "a number of at least 0", number)
    }

    /// Reads a size that is no larger than the setting of the cache with this name may be.
    fn size(&mut self, table: &dyn TableLike, key: &str) -> Option<Size> {
        let item = self.item(table, key, &format!("{key} = \"512KiB\""))?;
        let size = item.as_str().and_then(|text| text.parse::<Size>().ok());
        let size = self.fits(key, item, "a size such as \"512KiB\"", size)?;
        let setting = Config::SETTINGS.iter().find(|one| one.key == format!("cache.{key}"));
        let (least, most) = setting.and_then(|setting| setting.range)?;
        if most.parse().is_ok_and(|most: Size| size > most) {
            self.note(key, item.span(), Wrong::Range { found: size.to_string(), least, most });
            return None;
        }
        Some(size)
    }

    fn phases(&mut self, table: &dyn TableLike, key: &str) -> Option<[f64; PHASES]> {
        let example = format!("{key} = {{ accept = 0, receive = 0, process = 0, send = 0 }}");
        let item = self.item(table, key, &example)?;
        let inner =
            self.fits(key, item, "a section with a number for each phase", item.as_table_like())?;
        let section = format!("{key}.");
        self.unknown(&section, inner, &Phase::ALL.map(Phase::name));
        let values = Phase::ALL.map(|phase| self.number(&section, inner, phase.name()));
        let [Some(accept), Some(receive), Some(process), Some(send)] = values else { return None };
        Some([accept, receive, process, send])
    }

    /// Passes a value on; notes a fault if there is none.
    fn fits<T>(
        &mut self,
        path: &str,
        item: &Item,
        expected: &'static str,
        value: Option<T>,
    ) -> Option<T> {
        if value.is_none() {
            let text = item.span().and_then(|span| self.text.get(span)).unwrap_or("nothing");
            let found = text.chars().take(40).collect::<String>().replace(char::is_control, " ");
            self.note(path, item.span(), Wrong::Form { expected, found, near: None });
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Calibration = Calibration {
        request_s: 5.25e-6,
        byte_s: 8.5e-11,
        per_waiting: [0.01, 0.02, 0.05, 0.5],
        per_rate: [0.0, 1e-5, 5e-5, 1e-4],
        file_bytes: Size(512 * 1024),
        segment_bytes: Size(64 * 1024),
    };

    #[test]
    fn what_is_written_is_read_back() {
        let found = [("r_squared", "0.993".to_owned()), ("machine", quote("a \"b\" c"))];
        let text = ONE.to_toml("Found by a test.\n\nTwo lines.", &found);
        assert_eq!(Calibration::parse(&text, "c.toml").unwrap(), ONE, "{text}");
        assert!(text.starts_with("# Found by a test.\n#\n# Two lines.\n\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn sizes_have_the_range_of_their_settings() {
        let text = ONE.to_toml("", &[]);
        let said = |size: &str, with: &str| {
            let problems = Calibration::parse(&text.replace(size, with), "c.toml").unwrap_err();
            problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
        };
        let most = said("\"512KiB\"", "\"2GiB\"");
        let end = "file_bytes: 2GiB is out of range, from 0B to 1GiB is allowed";
        assert!(most.ends_with(end) && !most.contains('\n'), "{most}");
        let most = said("\"64KiB\"", "\"2MiB\"");
        let end = "segment_bytes: 2MiB is out of range, from 0B to 1MiB is allowed";
        assert!(most.ends_with(end) && !most.contains('\n'), "{most}");
    }

    #[test]
    fn costs_are_shared_out_over_the_cores() {
        let (one, four) = (ONE.costs(1), ONE.costs(4));
        assert_eq!(one.request_s, ONE.request_s);
        assert_eq!(one.utilisation(1e4, 1e7), 4.0 * four.utilisation(1e4, 1e7));
    }

    #[test]
    fn everything_that_is_wrong_is_told_with_its_line() {
        let text = "c1 = -1.0\nc2 = \"much\"\nfile_byte = \"512KiB\"\n\
                    a = { accept = 0, receive = 0, proces = 0, send = nan }\n[found]\nx = 1\n";
        let problems = Calibration::parse(text, "c.toml").unwrap_err();
        let said: Vec<_> = problems.iter().map(Problem::to_string).collect();
        let begin = [
            "c.toml:1:1: file_bytes: missing, set it, for example file_bytes",
            "c.toml:1:1: b: missing",
            "c.toml:1:1: a.process: missing",
            "c.toml:1:6: c1: expected a number of at least 0, found -1.0",
            "c.toml:2:6: c2: expected a number of at least 0, found \"much\"",
            "c.toml:3:1: file_byte: unknown key, did you mean \"file_bytes\"?",
            "c.toml:4:32: a.proces: unknown key, did you mean \"process\"?",
            "c.toml:4:51: a.send: expected a number of at least 0, found nan",
        ];
        assert_eq!(said.len(), begin.len(), "{said:#?}");
        for begin in begin {
            assert!(said.iter().any(|line| line.starts_with(begin)), "{begin}: {said:#?}");
        }
        let problems = Calibration::parse("c1 = \n", "c.toml").unwrap_err();
        assert!(problems[0].to_string().starts_with("c.toml:1:"), "{problems:?}");
    }
}
