//! The commands of `lab`.

use crate::Error;
use crate::catalogue::{Catalogue, folder};
use crate::experiment::ExperimentSet;
use clap::{Parser, Subcommand};
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
