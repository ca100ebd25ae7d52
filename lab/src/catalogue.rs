//! All experiments: the files of `lab/experiments`.

use crate::bridge;
use crate::experiment::read::{ExperimentProblem, parse};
use crate::experiment::sheet::SHEET;
use crate::experiment::{
    Experiment, ExperimentNeed, ExperimentSet, ExperimentTask, PaperFigure, check,
};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The contents of all files, and their errors.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// The experiments without errors, by their names.
    pub experiments: Vec<Experiment>,
    /// The errors, with file and line.
    pub problems: Vec<String>,
}

/// The folder of the package.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

impl Catalogue {
    /// Reads the files of a folder.
    pub fn read(folder: &Path) -> Catalogue {
        let mut catalogue = Catalogue::default();
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            match parse(&name, &text) {
                Err((line, what)) => {
                    let problem = ExperimentProblem { file, line, what };
                    catalogue.problems.push(problem.to_string());
                }
                Ok(experiment) => {
                    let found = check::check(&experiment, &file, &text);
                    catalogue.problems.extend(found.iter().map(ExperimentProblem::to_string));
                    catalogue.problems.extend(of_command(&experiment).map(|what| {
                        let line = text.lines().position(|line| line.contains("@LAB@"));
                        let line = line.map_or(1, |line| line + 1);
                        ExperimentProblem { file, line, what }.to_string()
                    }));
                    catalogue.experiments.push(experiment);
                }
            }
        }
        catalogue.problems.extend(check::together(&catalogue.experiments));
        catalogue
    }

    /// The experiment of a name, or the one that has a figure of that name.
    pub fn find(&self, name: &str) -> Option<&Experiment> {
        let by_name = self.experiments.iter().find(|experiment| experiment.name == name);
        by_name.or_else(|| {
            self.experiments.iter().find(|experiment| experiment.figure(name).is_some())
        })
    }

    /// The experiments of one set.
    pub fn of(&self, set: ExperimentSet) -> impl Iterator<Item = &Experiment> {
        self.experiments.iter().filter(move |experiment| experiment.set == set)
    }

    /// The experiments that are of no paper.
    pub fn beside_papers(&self) -> impl Iterator<Item = &Experiment> {
        self.experiments.iter().filter(|experiment| experiment.set != ExperimentSet::Papers)
    }

    /// A line for each figure, in the order of the papers; `verdict` gives the text of a figure's
    /// verdict.
    pub fn list(
        &self,
        only: &str,
        verdict: &dyn Fn(&Experiment, &PaperFigure) -> String,
    ) -> String {
        let mut text = String::new();
        let mut line = |id: &str, experiment: Option<&Experiment>, title: &str, said: &str| {
            let (name, minutes, needs) = match experiment {
                None => ("–".to_owned(), "–".to_owned(), String::new()),
                Some(one) => (one.name.clone(), format!("{:.1}", one.minutes), needs(one)),
            };
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "{id:<16} {name:<22} {minutes:>5} min  {needs:<12} {said:<18} {title}"
            );
        };
        for row in SHEET.iter().filter(|row| row.id.starts_with(only)) {
            let found = self.experiments.iter().find(|one| one.figure(row.id).is_some());
            let figure = found.and_then(|one| Some((one, one.figure(row.id)?)));
            let (title, said) = match (figure, row.not_built) {
                (Some((one, figure)), _) => (figure.title.as_str(), verdict(one, figure)),
                (None, "") => (row.about, "no experiment yet".to_owned()),
                (None, _) => (row.about, "not built".to_owned()),
            };
            line(row.id, found, title, &said);
        }
        for one in self.beside_papers() {
            for figure in one.figures.iter().filter(|figure| figure.id.starts_with(only)) {
                line(&figure.id, Some(one), &figure.title, &verdict(one, figure));
            }
        }
        text
    }

    /// The time that a round of a set takes, in minutes.
    pub fn minutes(&self, set: ExperimentSet, quick: bool) -> f64 {
        self.of(set).map(|experiment| minutes(experiment, quick)).fold(0.0, |sum, more| sum + more)
    }
}

/// The error in the commands of a program.
fn of_command(experiment: &Experiment) -> Option<String> {
    let ExperimentTask::Program(program) = &experiment.task else { return None };
    let wanted = || program.keys.iter().chain(&program.measures);
    let quick = experiment.quick.iter().map(|quick| &quick.command);
    [&program.command]
        .into_iter()
        .chain(quick)
        .find_map(|words| bridge::wrong_with(words, wanted()))
}

/// The time that one experiment takes, in minutes.
pub fn minutes(experiment: &Experiment, quick: bool) -> f64 {
    match (quick, &experiment.quick) {
        (false, _) => experiment.minutes,
        (true, Some(quick)) => quick.minutes,
        (true, None) => 0.0,
    }
}

/// The experiment's needs, in words.
fn needs(experiment: &Experiment) -> String {
    let word = |need: &ExperimentNeed| match need {
        ExperimentNeed::Root => "root".to_owned(),
        ExperimentNeed::Gate => "gate".to_owned(),
        ExperimentNeed::Program(program) => program.clone(),
    };
    experiment.needs.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_whole() {
        let catalogue = Catalogue::read(&folder().join("experiments"));
        assert!(catalogue.problems.is_empty(), "{}", catalogue.problems.join("\n"));
        assert!(catalogue.experiments.len() > 5);
        let list = catalogue.list("", &|_, _| "not measured".to_owned());
        assert!(list.contains("emu-f4") && list.contains("voigt-4.6"), "{list}");
        assert_eq!(catalogue.find("duke-7d").map(|one| one.name.as_str()), Some("duke-silent"));
    }
}
