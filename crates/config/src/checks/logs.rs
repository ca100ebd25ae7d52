//! Checks of logs that clients could read, that are written in two formats, or that ask for something that
//! does not exist.

use crate::checks::text::Text;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong, did_you_mean, see};
use crate::problems::text_place::TextPlace;
use crate::reading::draft::ConfigDraft;
use crate::{AccessLog, LogCondition, LogConfig, LogFormat, Member};
use forebay_policy::near::nearest;
use std::collections::HashMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A fault in logs, or a remark about them.
#[derive(Debug)]
enum LogFinding {
    /// A condition names a site that does not exist.
    NoSite {
        /// The name in the condition.
        found: String,
        /// The site that is probably meant.
        near: Option<String>,
    },
    /// Two formats in one file.
    TwoFormats {
        /// The path of the file.
        path: PathBuf,
        /// The line and column of the other format.
        place: Option<TextPlace>,
    },
    /// A setting for JSON lines alone, in a log with another format.
    JsonOnly,
}

impl Finding for LogFinding {}

impl fmt::Display for LogFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogFinding::NoSite { found, near } => {
                write!(f, "there is no site {found:?}")?;
                did_you_mean(f, near.as_deref())
            }
            LogFinding::TwoFormats { path, place } => {
                write!(f, "{path:?} is written in another format by another site")?;
                see(f, place)
            }
            LogFinding::JsonOnly => {
                write!(f, "only JSON lines have that: write log.format = \"json\"")
            }
        }
    }
}

impl ConfigDraft {
    /// Checks that no log is where clients could read it, and that none is written in two formats.
    pub(crate) fn check_logs(&self, text: Text<'_>, wrong: &mut Vec<(At, Wrong)>) {
        let sites = self.all_sites();
        let every_site = self.every_site();
        let aliases = every_site.iter().flat_map(|(path, site)| {
            let place = |index| path.child("alias").item(index).child("to");
            let directories =
                site.aliases.iter().enumerate().filter(|(_, one)| one.file().is_none());
            directories.map(move |(at, alias)| (plain(&alias.to), place(at)))
        });
        let roots = sites
            .iter()
            .filter_map(|(path, site)| Some((plain(site.root.as_deref()?), path.child("root"))));
        let served: HashMap<&Path, At> = roots.chain(aliases).collect();
        // beside sites, the top level's log has the requests of no site
        let top = (!self.sites.is_empty()).then(|| (At::default(), &self.site));
        let mut known: HashMap<&Path, (LogFormat, At)> = HashMap::new();
        for (path, site) in top.iter().chain(&sites) {
            let AccessLog::File(log) = &site.log.access else { continue };
            match known.get(&**log) {
                Some((format, first)) if *format != site.log.format => {
                    let (at, place) = (path.child("log.format"), text.place(first));
                    wrong.push((
                        at,
                        Wrong::said(LogFinding::TwoFormats { path: log.clone(), place }),
                    ));
                }
                Some(_) => {}
                None => {
                    let at = path.child("log.access");
                    if let Some((directory, place)) = directory_of(log, &served) {
                        let (path, directory) = (log.clone(), directory.to_owned());
                        let place = text.place(place);
                        wrong.push((at.clone(), Wrong::Served { path, directory, place }));
                    }
                    known.insert(log, (site.log.format, at));
                }
            }
        }
    }

    /// Checks that conditions of logs name classes and sites that exist.
    pub(crate) fn check_log_names(&self, wrong: &mut Vec<(At, Wrong)>) {
        let (classes, sites) = (self.class_names(), self.all_sites());
        let sites: Vec<String> = sites.iter().map(|(_, site)| site.name().to_string()).collect();
        let top = &self.site.log.conditions;
        for (path, site) in self.every_site() {
            let conditions = &site.log.conditions;
            // what is inherited is reported once, at the top
            if !path.exact.is_empty() && conditions == top {
                continue;
            }
            for (index, condition) in conditions.iter().enumerate() {
                let at = path.child("log").child("if").item(index);
                let is_in = |names: &[String], name: &str| names.iter().any(|known| known == name);
                if let Some(class) = condition.class().filter(|name| !is_in(&classes, name)) {
                    let (found, known) = (class.to_owned(), classes.clone());
                    wrong.push((at, Wrong::NoClass { found, known }));
                } else if let Some(site) = condition.site().filter(|name| !is_in(&sites, name)) {
                    let near = nearest(site, sites.iter().map(String::as_str)).map(str::to_owned);
                    wrong.push((
                        at,
                        Wrong::said(LogFinding::NoSite { found: site.to_owned(), near }),
                    ));
                }
            }
        }
    }

    /// Remarks on settings for JSON lines alone, in logs with another format.
    pub(crate) fn remark_logs(&self, remarks: &mut Remarks) {
        let (top, sites) = (&self.site.log, self.every_site());
        let is_json = |log: &LogConfig| log.format == LogFormat::Json;
        for (at, site) in &sites {
            let log = &site.log;
            // an inherited setting is remarked at the top, if no site that inherits it can use it
            let is_unused = |is_inherited: &dyn Fn(&LogConfig) -> bool| match at.exact.is_empty() {
                true => {
                    !sites.iter().any(|(_, site)| is_inherited(&site.log) && is_json(&site.log))
                }
                false => !is_inherited(log) && !is_json(log),
            };
            let at = at.child("log");
            if log.fields != Member::ALL && is_unused(&|log| log.fields == top.fields) {
                remarks.push((at.child("fields"), Wrong::said(LogFinding::JsonOnly)));
            }
            let none = log.conditions.iter().position(LogCondition::is_without_answer);
            if let Some(index) = none.filter(|_| is_unused(&|log| log.conditions == top.conditions))
            {
                remarks.push((at.child("if").item(index), Wrong::said(LogFinding::JsonOnly)));
            }
        }
    }
}

/// A path without `.` at its start.
fn plain(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// The directory among these that a file is in, as far as their names show. Where `..` leads is not known
/// without a look at the disk.
fn directory_of<'d>(
    file: &Path,
    directories: &'d HashMap<&'d Path, At>,
) -> Option<(&'d Path, &'d At)> {
    let file = plain(file);
    if file.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let mut above = file.ancestors().skip(1);
    above.find_map(|directory| directories.get_key_value(directory)).map(|(path, at)| (*path, at))
}
