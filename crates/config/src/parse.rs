//! Parses a text into a [`Config`], or into all its faults.

use crate::problems::path;
use crate::table::ConfigReader;
use crate::values::without_parents::without_named_parents;
use crate::{ClassConfig, Config, ConfigDraft, Problem, RuleConfig, Wrong};
use std::path::{Path, PathBuf};

/// Reads a configuration from `text`. `file` is its name for messages, and the directory in that name is
/// where relative paths begin. Touches no file.
///
/// # Errors
/// Everything that is wrong with the text, in its order. If the text is not TOML, the first place where it
/// is not.
pub fn parse(text: &str, file: &str) -> Result<Config, Vec<Problem>> {
    let mut reader = ConfigReader::new(text, file);
    checked(&mut reader, file, without_named_parents).map(ConfigDraft::resolve)
}

/// The first fault between settings whose values are each valid, and its place in a text that has all
/// settings.
pub fn at_odds(config: &Config) -> Option<(path::Path, Wrong)> {
    let text = config.to_toml();
    let mut reader = ConfigReader::new(&text, "");
    let mut draft = reader.draft();
    // a text cannot say which program has added a class or a rule
    let owners = config.rules.iter().map(|rule| rule.owner.clone());
    draft.rules.iter_mut().zip(owners).for_each(|(rule, owner)| rule.owner = owner);
    let owners = config.classes.iter().map(|class| class.owner.clone());
    draft.classes.iter_mut().zip(owners).for_each(|(class, owner)| class.owner = owner);
    let wrong = odds(&draft, &reader);
    let first = wrong.into_iter().min_by_key(|(path, _)| reader.offset(&path.exact));
    first.or_else(|| {
        let Problem { key, wrong, .. } = reader.problems().into_iter().next()?;
        Some((path::Path { shown: key.clone(), exact: key }, wrong))
    })
}

/// The first fault between the classes and rules of a configuration, each of which is valid. No text is
/// written or read for that, because there may be ten thousand rules.
pub fn rules_at_odds(config: &Config) -> Option<(path::Path, Wrong)> {
    let Config { agent, identity, classes, rules, .. } = config;
    let mut draft = ConfigDraft::new();
    draft.process = Config { agent: *agent, identity: identity.clone(), ..draft.process };
    (draft.classes, draft.rules) = (classes.clone(), rules.clone());
    let mut wrong = Vec::new();
    draft.check_policy(None, &mut wrong);
    wrong.into_iter().next()
}

/// Reads the classes and rules of a text that has nothing else, each by itself.
///
/// # Errors
/// What cannot be read, and what is missing.
pub fn classes_and_rules(text: &str) -> Result<(Vec<ClassConfig>, Vec<RuleConfig>), Vec<Problem>> {
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

/// The faults between the settings that the reader has read.
fn odds(draft: &ConfigDraft, reader: &ConfigReader<'_>) -> Vec<(path::Path, Wrong)> {
    let mut wrong = draft.problems(Some(reader));
    wrong.retain(|(path, wrong)| !matches!(wrong, Wrong::Missing { .. }) || !reader.has(path));
    wrong
}

/// Resolves the reader's text, if its settings fit together. `place` turns a path with `..` into one
/// without.
///
/// # Errors
/// The same as of [`parse`].
pub fn checked(
    reader: &mut ConfigReader<'_>,
    file: &str,
    place: fn(PathBuf) -> PathBuf,
) -> Result<ConfigDraft, Vec<Problem>> {
    checked_with(reader, file, place, |_, _| ())
}

/// Resolves the text like [`checked`], with additions of `prepare` that no text can make.
///
/// # Errors
/// The same as of [`parse`].
pub fn checked_with(
    reader: &mut ConfigReader<'_>,
    file: &str,
    place: fn(PathBuf) -> PathBuf,
    prepare: impl FnOnce(&mut ConfigDraft, &ConfigReader<'_>),
) -> Result<ConfigDraft, Vec<Problem>> {
    let mut draft = reader.draft();
    prepare(&mut draft, reader);
    draft.rebase(Path::new(file).parent().unwrap_or(Path::new("")), place);
    draft.process.origin = reader.origin().clone();
    if reader.is_toml() {
        let wrong = odds(&draft, reader);
        wrong.into_iter().for_each(|(path, wrong)| reader.note_at(&path, wrong));
    }
    if reader.is_content() { Ok(draft) } else { Err(reader.problems()) }
}
