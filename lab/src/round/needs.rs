//! Needs of an experiment that the machine lacks.

use crate::catalogue::folder;
use crate::experiment::{Experiment, ExperimentNeed, ExperimentTask};
use crate::peers;
use crate::servers::KnownServers;
use std::fs;
use std::path::Path;

/// Everything that is missing, each in words for a reader.
pub fn missing(experiment: &Experiment, built: &Path) -> Vec<String> {
    let need = |need: &ExperimentNeed| match need {
        ExperimentNeed::Root => {
            (!rustix::process::geteuid().is_root()).then(|| "to be root".to_owned())
        }
        ExperimentNeed::Gate => (!has_gate(&built.join("forebay"))).then(|| {
            "a server with the gate: cargo build --release -p forebay-cli --features gate"
                .to_owned()
        }),
        ExperimentNeed::Program(program) => {
            peers::locate(program).is_none().then(|| format!("the program {program}"))
        }
    };
    let mut missing: Vec<String> = experiment.needs.iter().filter_map(need).collect();
    if let ExperimentTask::Program(program) = &experiment.task {
        let own = program.command.iter().filter_map(|word| word.strip_prefix("@BIN@/"));
        let own = own.filter(|name| !built.join(name).is_file());
        missing.extend(own.map(|name| {
            format!("{name}: cargo build --release --locked {}", program.build.join(" "))
        }));
    }
    if let ExperimentTask::Load(load) = &experiment.task {
        let known = KnownServers::read(&folder().join("servers.toml")).unwrap_or_default();
        let own = load.cast.ours.iter().filter_map(|name| known.server(name));
        let own = own.filter(|one| !one.program.is_empty() && !built.join(&one.program).is_file());
        missing.extend(own.map(|server| {
            format!("{}: cargo build --release --locked -p forebay-lab", server.program)
        }));
    }
    if !built.join("forebay").is_file() {
        missing.push("the server: cargo build --release -p forebay-cli --features gate".to_owned());
    }
    missing
}

/// Whether a build of the server has the programs for the kernel.
fn has_gate(server: &Path) -> bool {
    // a word of the library that loads them, as no command of the program reports it
    let bytes = fs::read(server).unwrap_or_default();
    let name = b"LIBBPF_LOG_LEVEL";
    bytes.windows(name.len()).any(|window| window == name)
}
