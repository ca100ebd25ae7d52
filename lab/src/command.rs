//! The commands of `lab`.

use crate::Error;
use crate::catalogue::{Catalogue, folder};
use crate::experiment::ExperimentSet;
use crate::machine;
use crate::report::{self, LabReport};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The Laboratory: experiments of Forebay beside other servers and beside itself, and what the papers claim.
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Every figure: its file, how long it takes, what it needs, and its verdict
    List {
        /// Only figures whose names begin so, such as voigt
        #[arg(long, default_value = "")]
        paper: String,
    },
    /// Whether all files of lab/experiments are whole
    Check,
    /// What all rounds come to, as one page of HTML
    Report {
        /// Print one table of markdown in place of the page
        #[arg(long)]
        table: bool,
        /// The file of the page [default: target/lab/report.html]
        #[arg(long)]
        out: Option<PathBuf>,
        /// The folder of the rounds [default: lab/runs]
        #[arg(long)]
        runs: Option<PathBuf>,
    },
    /// What the rows of one folder come to, as markdown
    Show {
        /// Folders of lab/runs, or like those
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run(LabArgs::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: LabCommand) -> Result<ExitCode, Error> {
    let catalogue = Catalogue::read(&folder().join("experiments"));
    match command {
        LabCommand::List { paper } => {
            print!("{}", catalogue.list(&paper, &|_| "not measured".to_owned()));
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Check => Ok(check(&catalogue)),
        LabCommand::Report { table, out, runs } => {
            let runs = runs.unwrap_or_else(|| folder().join("runs"));
            let report = LabReport::gather(&catalogue, &runs, machine::date("+%Y-%m-%d %H:%M UTC"));
            let out = out.unwrap_or_else(|| folder().join("../target/lab/report.html"));
            match table {
                true => print!("{}", report::table::markdown(&report)),
                false => {
                    report.write(&out)?;
                    println!("{}", out.canonicalize().unwrap_or(out).display());
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Show { folders } => {
            for shown in &folders {
                let runs = folder().join("runs");
                print!("{}", report::folder::markdown(&catalogue, &runs, shown)?);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(catalogue: &Catalogue) -> ExitCode {
    for problem in &catalogue.problems {
        eprintln!("{problem}");
    }
    println!(
        "{} experiments; a round takes {:.0} minutes of the papers' and {:.0} of the others', the short form {:.1}",
        catalogue.experiments.len(),
        catalogue.minutes(ExperimentSet::Papers, false),
        catalogue.minutes(ExperimentSet::Peers, false),
        catalogue.minutes(ExperimentSet::Papers, true)
            + catalogue.minutes(ExperimentSet::Peers, true),
    );
    match catalogue.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
