//! Configuration files: the file and everything it names on disk are read and checked. A text alone
//! is [read](forebay_config::parse()) without the disk.

use crate::config_source::{ConfigBundle, MachineSource, RecordedSource};
use crate::lints::{self, Depth, ERRORS, ERRORS_OF_CHECK, LintSubject};
use crate::machine;
use forebay_config::calibration;
use forebay_config::parse::checked_with;
use forebay_config::path;
use forebay_config::read::LONGEST;
use forebay_config::table::ConfigReader;
use forebay_config::{
    AccessLog, Calibration, CalibrationError, Config, ConfigDraft, ConfigSource,
    ControlSocketChoice, Problem, Remarks, Wrong,
};
use forebay_sys::file::open_regular;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

/// The largest number of remarks that a server logs at a time.
const MOST_WARNINGS: usize = 20;

/// Reads and checks the configuration at `path`, the files and directories it names included.
///
/// # Errors
/// All problems of the configuration; at least one.
pub fn load(path: &Path) -> Result<Config, Vec<Problem>> {
    read_with(path, |_, _| ()).map(|(config, ())| config)
}

/// Reads and checks the configuration at `path` as [`load`] does, and returns the remarks, too:
/// settings that are valid but probably not intended.
///
/// # Errors
/// As [`load`].
pub fn check(path: &Path, depth: Depth) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let (config, (errors, remarks)) = read_with(path, |draft, reader| {
        let errors = lints::found(ERRORS_OF_CHECK, &LintSubject { draft, text: reader }, depth);
        let errors = noted(reader, errors);
        (errors, noted_remarks(draft, reader, depth))
    })?;
    if errors.is_empty() { Ok((config, remarks)) } else { Err(errors) }
}

/// Reads and checks the configuration at `path` as [`load`] does, for a server: remarks become
/// lines for its operator, each once, and no more than a terminal shows.
///
/// # Errors
/// As [`load`].
pub fn load_and_warn(path: &Path, depth: Depth) -> Result<(Config, Vec<String>), Vec<Problem>> {
    // determines the processor now, so that later callers find it
    machine::processor();
    let (config, remarks) = read_with(path, |draft, reader| noted_remarks(draft, reader, depth))?;
    Ok((config, warnings(&remarks, path)))
}

/// The remarks as lines; the last line says how many are left out, and which command shows them.
fn warnings(remarks: &[Problem], path: &Path) -> Vec<String> {
    let mut told = HashSet::new();
    let lines = remarks.iter().map(|remark| format!("warning: {remark}"));
    let mut lines: Vec<String> = lines.filter(|line| told.insert(line.clone())).collect();
    let more = lines.len().saturating_sub(MOST_WARNINGS);
    lines.truncate(MOST_WARNINGS);
    if more > 0 {
        let path = path.display();
        lines.push(format!("warning: and {more} more: forebay check -c {path} shows all"));
    }
    lines
}

fn noted_remarks(draft: &ConfigDraft, reader: &mut ConfigReader<'_>, depth: Depth) -> Vec<Problem> {
    let mut remarks = lints::remarks(&LintSubject { draft, text: reader }, depth);
    remarks.extend(reader.take_remarks());
    noted(reader, remarks)
}

fn noted(reader: &mut ConfigReader<'_>, found: Remarks) -> Vec<Problem> {
    found.into_iter().for_each(|(path, wrong)| reader.note_at(&path, wrong));
    reader.problems()
}

/// Reads the bundle that was kept of the configuration at `path`, as [`load`] reads the file.
///
/// # Errors
/// As [`load`].
pub fn load_kept(kept: &Path, path: &Path) -> Result<Config, Vec<Problem>> {
    let file = path.display().to_string();
    let read = || -> io::Result<ConfigBundle> {
        Ok(serde_json::from_reader(BufReader::new(File::open(kept)?))?)
    };
    let bundle = read().map_err(|error| whole(&file, None, Wrong::Unreadable(error)))?;
    let text = bundle.text.clone();
    read_text(&text, &file, Box::new(bundle), |_, _| ()).map(|(config, ())| config)
}

/// Everything that the configuration at `path` is read from, as it is now, for processes that must
/// read the same.
///
/// # Errors
/// When the file itself cannot be read. Other errors are left to those processes.
pub fn keep(path: &Path) -> io::Result<ConfigBundle> {
    let text = io::read_to_string(open_regular(path)?.take(LONGEST))?;
    let bundle = Rc::new(RefCell::new(ConfigBundle::default()));
    let source = RecordedSource(Rc::clone(&bundle));
    ConfigReader::reading(&text, &path.display().to_string(), Box::new(source)).draft();
    let mut bundle = bundle.take();
    bundle.text = text;
    Ok(bundle)
}

/// Reads the configuration at `path`, and calls `then` with its draft if nothing is wrong.
fn read_with<R>(
    path: &Path,
    then: impl FnOnce(&ConfigDraft, &mut ConfigReader<'_>) -> R,
) -> Result<(Config, R), Vec<Problem>> {
    let file = path.display().to_string();
    let whole = |place, wrong| whole(&file, place, wrong);
    let mut bytes = Vec::new();
    open_regular(path)
        .and_then(|opened| opened.take(LONGEST + 1).read_to_end(&mut bytes))
        .map_err(|error| whole(None, Wrong::Unreadable(error)))?;
    if bytes.len() as u64 > LONGEST {
        return Err(whole(None, Wrong::TooLong { limit: LONGEST }));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        // the part up to the bad byte is UTF-8
        let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or("");
        whole(Some(ConfigReader::new(good, &file).end()), Wrong::NotUtf8)
    })?;
    read_text(text, &file, Box::new(MachineSource), then)
}

/// A problem with the file as a whole.
fn whole(file: &str, place: Option<(usize, usize)>, wrong: Wrong) -> Vec<Problem> {
    vec![Problem { file: file.to_owned(), place, key: String::new(), wrong }]
}

/// Reads and checks a configuration for a server that is a part of this program: `text`, with the
/// additions of `prepare`. Messages call the text `file`, and its relative paths begin beside that.
/// Where the text has no access log, none is written: standard output belongs to the program.
/// Remarks become lines.
///
/// # Errors
/// As [`load`].
pub fn load_guest(
    text: &str,
    file: &Path,
    prepare: impl FnOnce(&mut ConfigDraft, &ConfigReader<'_>),
) -> Result<(Config, Vec<String>), Vec<Problem>> {
    let name = file.display().to_string();
    let prepare = |draft: &mut ConfigDraft, reader: &ConfigReader<'_>| {
        let says = |at: path::Path| reader.has(&at.child("log").child("access"));
        if !says(path::Path::default()) {
            draft.site.log.access = AccessLog::Off;
            let site = |index| path::Path::default().child("site").item(index);
            let unsaid = draft.sites.iter_mut().enumerate().filter(|(at, _)| !says(site(*at)));
            unsaid.for_each(|(_, site)| site.log.access = AccessLog::Off);
        }
        prepare(draft, reader);
    };
    let read = read_text_with(text, &name, Box::new(MachineSource), prepare, |draft, reader| {
        noted_remarks(draft, reader, Depth::Text)
    });
    let (config, remarks) = read?;
    let warnings = remarks.iter().map(|remark| format!("warning: {remark}")).collect();
    Ok((Config { is_guest: true, ..config }, warnings))
}

/// Reads the text of the configuration `file`, and calls `then` with its draft if nothing is wrong.
fn read_text<R>(
    text: &str,
    file: &str,
    source: Box<dyn ConfigSource>,
    then: impl FnOnce(&ConfigDraft, &mut ConfigReader<'_>) -> R,
) -> Result<(Config, R), Vec<Problem>> {
    read_text_with(text, file, source, |_, _| (), then)
}

/// As [`read_text`], with the additions of `prepare` to the text.
fn read_text_with<R>(
    text: &str,
    file: &str,
    source: Box<dyn ConfigSource>,
    prepare: impl FnOnce(&mut ConfigDraft, &ConfigReader<'_>),
    then: impl FnOnce(&ConfigDraft, &mut ConfigReader<'_>) -> R,
) -> Result<(Config, R), Vec<Problem>> {
    let mut reader = ConfigReader::reading(text, file, source);
    let mut draft = checked_with(&mut reader, file, machine::without_parents, prepare)?;
    let subject = LintSubject { draft: &draft, text: &reader };
    let wrong = lints::found(ERRORS, &subject, Depth::Text);
    wrong.into_iter().for_each(|(path, wrong)| reader.note_at(&path, wrong));
    let of_calibration = calibrate(&mut draft, &mut reader);
    let mut problems = reader.problems();
    problems.extend(of_calibration);
    if !problems.is_empty() {
        return Err(problems);
    }
    let outcome = then(&draft, &mut reader);
    Ok((draft.resolve(), outcome))
}

/// Reads the calibration that the configuration names, if any; returns the problems in it.
fn calibrate(draft: &mut ConfigDraft, reader: &mut ConfigReader<'_>) -> Vec<Problem> {
    let Some(path) = draft.process.pipeline.calibration.clone() else { return Vec::new() };
    let top = path::Path::default();
    match load_calibration_with_machine(&path) {
        Ok((calibration, machine)) => {
            draft.calibrated_on = machine;
            draft.process.pipeline.calibrated = Some(calibration);
            if !reader.has(&top.child("cache").child("file_bytes")) {
                draft.process.cache.file_bytes = calibration.file_bytes;
            }
            if !reader.has(&top.child("cache").child("segment_bytes")) {
                draft.process.cache.segment_bytes = calibration.segment_bytes;
            }
            Vec::new()
        }
        Err(CalibrationError::Unreadable(error)) => {
            let at = top.child("pipeline").child("calibration");
            reader.note_at(&at, Wrong::NoFile { path, error });
            Vec::new()
        }
        Err(CalibrationError::Wrong(problems)) => problems,
    }
}

/// Reads the constants of a machine in the file at `path`.
///
/// # Errors
/// When the file cannot be read, or all problems in it.
pub fn load_calibration(path: &Path) -> Result<Calibration, CalibrationError> {
    load_calibration_with_machine(path).map(|(calibration, _)| calibration)
}

/// Reads a calibration as [`load_calibration`] does, and the machine that the file names.
fn load_calibration_with_machine(
    path: &Path,
) -> Result<(Calibration, Option<String>), CalibrationError> {
    let mut text = String::new();
    let read = open_regular(path).and_then(|f| f.take(LONGEST).read_to_string(&mut text));
    read.map_err(CalibrationError::Unreadable)?;
    let name = path.display().to_string();
    let calibration = Calibration::parse(&text, &name).map_err(CalibrationError::Wrong)?;
    Ok((calibration, calibration::machine(&text)))
}

/// The `control.socket` of a file in which everything else may be wrong.
pub fn control_socket_of(path: &Path) -> ControlSocketChoice {
    let said = || {
        let text = io::read_to_string(open_regular(path).ok()?.take(LONGEST)).ok()?;
        let file = path.display().to_string();
        let draft = ConfigReader::reading(&text, &file, Box::new(MachineSource)).draft();
        let mut setting = draft.process.control.socket;
        if let ControlSocketChoice::At(at) = &mut setting {
            *at = path.parent().unwrap_or(Path::new("")).join(&at);
        }
        Some(setting)
    };
    said().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MachineResources, Plan};
    use forebay_config::Size;
    use std::sync::atomic::{AtomicU32, Ordering};

    const ONE: Calibration = Calibration {
        request_s: 5.25e-6,
        byte_s: 8.5e-11,
        per_waiting: [0.01, 0.02, 0.05, 0.5],
        per_rate: [0.0, 1e-5, 5e-5, 1e-4],
        file_bytes: Size(512 * 1024),
        segment_bytes: Size(64 * 1024),
    };

    /// Reads a configuration file that names a file of constants.
    fn beside(lines: &str, constants: Option<&str>) -> Result<Config, Vec<String>> {
        read(lines, constants, load)
    }

    fn read<R>(
        lines: &str,
        constants: Option<&str>,
        read: fn(&Path) -> Result<R, Vec<Problem>>,
    ) -> Result<R, Vec<String>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-calibration-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(directory.join("site")).unwrap();
        let file = directory.join("forebay.toml");
        std::fs::write(&file, format!("root = \"site\"\n{lines}")).unwrap();
        if let Some(text) = constants {
            std::fs::write(directory.join("c.toml"), text).unwrap();
        }
        let loaded = read(&file);
        std::fs::remove_dir_all(&directory).unwrap();
        let directory = format!("{}/", directory.display());
        let said = |problem: &Problem| problem.to_string().replace(&directory, "");
        loaded.map_err(|problems| problems.iter().map(said).collect())
    }

    #[test]
    fn a_configuration_takes_over_what_it_does_not_say_itself() {
        let text = ONE.to_toml("", &[]);
        let names = "pipeline.calibration = \"c.toml\"\n";
        let config = beside(names, Some(&text)).unwrap();
        assert_eq!(config.cache.file_bytes, ONE.file_bytes);
        assert_eq!(config.cache.segment_bytes, ONE.segment_bytes);
        let old = text.replace("segment_bytes = \"64KiB\"\n", "");
        assert_eq!(beside(names, Some(&old)).unwrap().cache.segment_bytes, Size(0));
        let said = format!("{names}cache.file_bytes = \"4KiB\"\n");
        let own = beside(&said, Some(&text)).unwrap();
        assert_eq!((own.cache.file_bytes, own.pipeline.calibrated), (Size(4096), Some(ONE)));
        let plan = Plan::new(
            &own,
            &MachineResources {
                cores: 4,
                memory_bytes: 1 << 30,
                descriptors: 20_000,
                threads: 10_000,
            },
        )
        .unwrap();
        let allocation = &plan.groups[0].pipeline.allocation;
        assert_eq!(allocation.costs, ONE.costs(4));
        assert_eq!((allocation.per_waiting, allocation.per_rate), (ONE.per_waiting, ONE.per_rate));
    }

    /// The size of the data cache comes from the calibration with every engine, so no remark calls
    /// this setting useless, as other settings of the pipeline are.
    #[test]
    fn it_has_a_use_with_other_engines() {
        let names = "engine = \"event\"\npipeline.calibration = \"c.toml\"\n";
        let text = ONE.to_toml("", &[]);
        let check = |path: &Path| check(path, Depth::Machine);
        let (_, remarks) = read(names, Some(&text), check).unwrap();
        assert!(remarks.is_empty(), "{}", remarks[0]);
    }

    #[test]
    fn a_file_that_is_not_there_or_wrong_is_told_where_that_is() {
        let names = "[pipeline]\ncalibration = \"c.toml\"\n";
        let said = beside(names, None).unwrap_err();
        let begin =
            "forebay.toml:3:15: pipeline.calibration: cannot read the file \"c.toml\": No such";
        assert!(said.len() == 1 && said[0].starts_with(begin), "{said:?}");
        let said = beside(names, Some("\nc1 = true\n")).unwrap_err();
        let begin = "c.toml:2:6: c1: expected a number of at least 0, found true";
        assert!(said.iter().any(|line| line.starts_with(begin)), "{said:?}");
        let said = beside(names, Some("c1\n")).unwrap_err();
        assert!(said.len() == 1 && said[0].starts_with("c.toml:1:"), "{said:?}");
    }
}
