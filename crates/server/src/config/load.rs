//! A file, or a text, into a [`Config`], or into everything that is wrong with it.

use super::read::LONGEST;
use super::table::ConfigReader;
use super::{
    Calibration, CalibrationError, ClassConfig, Config, ConfigDraft, ControlSocketChoice, Depth,
    Problem, RuleConfig, Wrong, calibration, path, value,
};
use forebay_sys::file::open_regular;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

/// Of what is hardly meant a server tells no more at a time.
const MOST_WARNINGS: usize = 20;

/// Reads and checks the configuration at `path`, the files and directories it names included.
///
/// # Errors
/// Everything that is wrong with it; at least one problem.
pub fn load(path: &Path) -> Result<Config, Vec<Problem>> {
    read_with(path, |_, _| ()).map(|(config, ())| config)
}

/// Reads and checks the configuration at `path` as [`load`] does, and says too what is right and yet
/// hardly what is meant.
///
/// # Errors
/// As [`load`].
pub fn check(path: &Path, depth: Depth) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let (config, (errors, remarks)) = read_with(path, |draft, reader| {
        let errors = noted(reader, draft.unusable_sockets(reader));
        (errors, noted(reader, draft.remarks(reader, depth)))
    })?;
    if errors.is_empty() { Ok((config, remarks)) } else { Err(errors) }
}

/// Reads and checks the configuration at `path` as [`load`] does, for a server: what is right and yet hardly
/// what is meant are lines for its operator, each once, and no more than a terminal shows.
///
/// # Errors
/// As [`load`].
pub fn load_and_warn(path: &Path, depth: Depth) -> Result<(Config, Vec<String>), Vec<Problem>> {
    // known from now on
    calibration::processor();
    let (config, remarks) =
        read_with(path, |draft, reader| noted(reader, draft.remarks(reader, depth)))?;
    Ok((config, warnings(&remarks, path)))
}

/// The lines; the last one says how many are left out, and what shows them.
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

fn noted(reader: &mut ConfigReader<'_>, found: Vec<(path::Path, Wrong)>) -> Vec<Problem> {
    found.into_iter().for_each(|(path, wrong)| reader.note_at(&path, wrong));
    reader.problems()
}

/// Reads a copy of the configuration at `path`, as [`load`] reads that: where the copy lies makes no
/// difference.
///
/// # Errors
/// As [`load`].
pub fn load_copy(copy: &Path, path: &Path) -> Result<Config, Vec<Problem>> {
    read_as(copy, path, |_, _| ()).map(|(config, ())| config)
}

/// Reads the configuration at `path`; `then` is done with one in which nothing is wrong.
fn read_with<R>(
    path: &Path,
    then: impl FnOnce(&ConfigDraft, &mut ConfigReader<'_>) -> R,
) -> Result<(Config, R), Vec<Problem>> {
    read_as(path, path, then)
}

fn read_as<R>(
    path: &Path,
    name: &Path,
    then: impl FnOnce(&ConfigDraft, &mut ConfigReader<'_>) -> R,
) -> Result<(Config, R), Vec<Problem>> {
    let file = name.display().to_string();
    let whole =
        |place, wrong| vec![Problem { file: file.clone(), place, key: String::new(), wrong }];
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
    let mut reader = ConfigReader::new(text, &file);
    let mut draft = checked(&mut reader, &file)?;
    for (path, wrong) in draft.missing_files().into_iter().chain(draft.exposed_logs(&reader)) {
        reader.note_at(&path, wrong);
    }
    let of_calibration = calibrate(&mut draft, &mut reader);
    let mut problems = reader.problems();
    problems.extend(of_calibration);
    if !problems.is_empty() {
        return Err(problems);
    }
    let outcome = then(&draft, &mut reader);
    Ok((draft.resolve(), outcome))
}

/// Reads the calibration that is named, if one is; what is wrong with it itself is returned.
fn calibrate(draft: &mut ConfigDraft, reader: &mut ConfigReader<'_>) -> Vec<Problem> {
    let Some(path) = draft.process.pipeline.calibration.clone() else { return Vec::new() };
    let top = path::Path::default();
    match Calibration::load_with_machine(&path) {
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

/// What `control.socket` says in a file that may be wrong everywhere else.
pub fn control_socket_of(path: &Path) -> ControlSocketChoice {
    let said = || {
        let mut text = String::new();
        open_regular(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
        let document = toml_edit::Document::parse(text).ok()?;
        let socket = document.get("control")?.as_table_like()?.get("socket")?.as_str()?.to_owned();
        let mut setting = ControlSocketChoice::Auto;
        value::Value::set(&mut setting, &socket).ok()?;
        if let ControlSocketChoice::At(at) = &mut setting {
            *at = path.parent().unwrap_or(Path::new("")).join(&at);
        }
        Some(setting)
    };
    said().unwrap_or_default()
}

/// Reads a configuration from `text`. `file` is its name for messages, and the directory it names
/// is where relative paths begin. Touches no file.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text. Of a text that is not TOML, the
/// first place where it is not.
pub fn parse(text: &str, file: &str) -> Result<Config, Vec<Problem>> {
    checked(&mut ConfigReader::new(text, file), file).map(ConfigDraft::resolve)
}

/// The first thing that does not hold together in a configuration whose values are right, each by
/// itself, and where: by its place in a text that says all of it.
pub(crate) fn at_odds(config: &Config) -> Option<(path::Path, Wrong)> {
    let text = config.to_toml();
    let mut reader = ConfigReader::new(&text, "");
    let mut draft = reader.draft();
    // no text says which program has added what
    let owners = config.rules.iter().map(|rule| rule.owner.clone());
    draft.rules.iter_mut().zip(owners).for_each(|(rule, owner)| rule.owner = owner);
    let owners = config.classes.iter().map(|class| class.owner.clone());
    draft.classes.iter_mut().zip(owners).for_each(|(class, owner)| class.owner = owner);
    let wrong = odds(&draft, &reader);
    let first = wrong.into_iter().min_by_key(|(path, _)| reader.place(&path.exact));
    first.or_else(|| {
        let Problem { key, wrong, .. } = reader.problems().into_iter().next()?;
        Some((path::Path { shown: key.clone(), exact: key }, wrong))
    })
}

/// The first thing that does not hold together in the classes and rules of a configuration, where each says
/// what it must. Nothing is written or read for that: there may be ten thousand.
pub(crate) fn rules_at_odds(config: &Config) -> Option<(path::Path, Wrong)> {
    let Config { agent, identity, classes, rules, .. } = config;
    let mut draft = ConfigDraft::new();
    draft.process = Config { agent: *agent, identity: identity.clone(), ..draft.process };
    (draft.classes, draft.rules) = (classes.clone(), rules.clone());
    let mut wrong = Vec::new();
    draft.check_policy(None, &mut wrong);
    wrong.into_iter().next()
}

/// The classes and rules of a text that has nothing else, each by itself.
///
/// # Errors
/// What cannot be read, and what is missing.
pub(crate) fn classes_and_rules(
    text: &str,
) -> Result<(Vec<ClassConfig>, Vec<RuleConfig>), Vec<Problem>> {
    let mut reader = ConfigReader::new(text, "");
    let draft = reader.draft();
    let mut missing = Vec::new();
    draft.check_policy(Some(&reader), &mut missing);
    missing.retain(|(path, wrong)| matches!(wrong, Wrong::Missing { .. }) && !reader.has(path));
    missing.into_iter().for_each(|(path, wrong)| reader.note_at(&path, wrong));
    let ConfigDraft { classes, rules, .. } = draft;
    let problems = reader.problems();
    if problems.is_empty() { Ok((classes, rules)) } else { Err(problems) }
}

/// What does not hold together in what the reader has read.
fn odds(draft: &ConfigDraft, reader: &ConfigReader<'_>) -> Vec<(path::Path, Wrong)> {
    let mut wrong = draft.problems(Some(reader));
    wrong.retain(|(path, wrong)| !matches!(wrong, Wrong::Missing { .. }) || !reader.has(path));
    wrong
}

/// What the reader's text says, if it holds together.
fn checked(reader: &mut ConfigReader<'_>, file: &str) -> Result<ConfigDraft, Vec<Problem>> {
    let mut draft = reader.draft();
    draft.rebase(Path::new(file).parent().unwrap_or(Path::new("")));
    if reader.is_toml() {
        let wrong = odds(&draft, reader);
        wrong.into_iter().for_each(|(path, wrong)| reader.note_at(&path, wrong));
    }
    if reader.is_content() { Ok(draft) } else { Err(reader.problems()) }
}
