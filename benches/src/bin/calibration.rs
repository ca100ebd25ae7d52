//! `calibration`: begins with constants that are wrong on purpose, and asks how much of what they lose
//! `forebay calibrate` recovers.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::calibration::{GOAL, Recovered, WRONG, Wrong, table};
use forebay_benches::content::Scratch;
use forebay_benches::forebay::header;
use forebay_benches::{Error, machine};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Has wrong constants calibrated: does at least 80 % of what they lose come back?
#[derive(Parser)]
struct Options {
    /// The short form of calibrate: three pairs of eight sizes instead of ten of twelve
    #[arg(long)]
    quick: bool,
    /// Which wrong constants [default: too-low, too-high]
    #[arg(long, value_delimiter = ',', value_parser = WRONG.map(|wrong| wrong.name))]
    wrong: Vec<String>,
    /// The program [default: forebay beside this one]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Folder for the results [default: lab/runs/DATE-calibration]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("calibration: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let date = machine::date("+%Y-%m-%d");
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(format!("lab/runs/{date}-calibration")));
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let program = options.program.clone().unwrap_or_else(|| own.with_file_name("forebay"));
    let scratch = Scratch::new()?;
    let mut rows = Vec::new();
    let is_asked = |wrong: &&Wrong| {
        options.wrong.is_empty() || options.wrong.iter().any(|name| name == wrong.name)
    };
    for wrong in WRONG.iter().filter(is_asked) {
        let from = scratch.path().join(format!("{}.toml", wrong.name));
        fs::write(&from, wrong.file()).map_err(Error::io("cannot write", &from))?;
        let found = out.join(format!("{}.toml", wrong.name));
        let mut command = Command::new(&program);
        command.arg("calibrate").arg("--from").arg(&from).arg("--out").arg(&found);
        if options.quick {
            command.arg("--quick");
        }
        // what it says is worth keeping, and how far it is goes to the terminal
        let output = command.stderr(std::process::Stdio::inherit()).output();
        let output = output.map_err(Error::io("cannot start", &program))?;
        let said = out.join(format!("{}.txt", wrong.name));
        fs::write(&said, &output.stdout).map_err(Error::io("cannot write", &said))?;
        if !output.status.success() {
            return Err(Error::Client(format!("forebay calibrate ended with {}", output.status)));
        }
        let text = fs::read_to_string(&found).map_err(Error::io("cannot read", &found))?;
        rows.push((wrong.name, Recovered::of(&text)));
    }
    let text = format!(
        "{}- goal: at least {:.0} % of what wrong constants lose is recovered; 95 % intervals\n{}",
        header("Wrong constants, calibrated", "calibration", &machine::describe()),
        GOAL * 100.0,
        table(&rows)
    );
    let file = out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    Ok(())
}
