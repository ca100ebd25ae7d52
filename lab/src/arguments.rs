//! The command line: the options of every experiment, and those of the one that is run.

use crate::Error;
use crate::benchmark::Benchmark;
use crate::options::{Axis, Kind, Options, Setting, a_time};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;

/// The older name of `--measured`.
const SECONDS: &str = "seconds";

/// The arguments of an experiment.
pub fn command(experiment: &'static Benchmark) -> Command {
    let mut command = Command::new(experiment.name).about(experiment.about).next_line_help(false);
    for axis in experiment.axes() {
        let known = (axis.known)();
        let mut arg = Arg::new(axis.option).long(axis.option).value_delimiter(',');
        arg = arg.action(ArgAction::Append);
        if !known.is_empty() {
            arg = arg.value_parser(PossibleValuesParser::new(&known)).hide_possible_values(true);
        }
        match axis.kind {
            Kind::Number => arg = arg.value_parser(a_number),
            Kind::Time => arg = arg.value_parser(a_time_text),
            Kind::Text | Kind::Flag => {}
        }
        let help = match (axis.default, known.is_empty()) {
            ("", _) => format!("{} [default: all of {}]", axis.help, known.join(", ")),
            (default, true) => format!("{} [default: {default}]", axis.help),
            (default, _) => {
                format!("{} [default: {default}; known: {}]", axis.help, known.join(", "))
            }
        };
        arg = arg.help(help);
        if let Some(alias) = axis.alias {
            arg = arg.visible_alias(alias);
        }
        command = command.arg(arg);
        if let Some((flag, _, help)) = axis.instead {
            command = command.arg(Arg::new(flag).long(flag).help(help).action(ArgAction::SetTrue));
        }
    }
    for setting in experiment.settings {
        let arg = Arg::new(setting.name).long(setting.name).help(setting.help);
        command = command.arg(match setting.kind {
            Kind::Flag => arg.action(ArgAction::SetTrue),
            Kind::Number => arg.default_value(setting.default).value_parser(a_number),
            Kind::Time => arg.default_value(setting.default).value_parser(a_time_text),
            Kind::Text => arg.default_value(setting.default),
        });
    }
    common(command, experiment)
}

fn common(command: Command, experiment: &'static Benchmark) -> Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).value_parser(value_parser!(PathBuf))
    };
    let core = |name: &'static str, help: &'static str, core: &'static str| {
        Arg::new(name).long(name).help(help).default_value(core).value_parser(value_parser!(usize))
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    let rounds = Arg::new("rounds").long("rounds").value_parser(value_parser!(u32).range(1..=1000));
    let rounds = rounds.help(format!(
        "Measurements of each server at each point [default: {}]",
        experiment.rounds
    ));
    let measured = Arg::new("measured").long("measured").visible_alias(SECONDS);
    let measured = measured.value_parser(a_time).help(format!(
        "Length of one measurement, such as 1.5s; seconds without a unit [default: {}]",
        experiment.measured
    ));
    let set = Arg::new("set").long("set").value_name("LINE").action(ArgAction::Append);
    command
        .arg(rounds)
        .arg(measured)
        .arg(flag("quick", "Less of everything, for the shape only"))
        .arg(set.help("A line for every configuration of Forebay; may be given again"))
        .arg(core("server-core", "The core the servers run on", "0"))
        .arg(core("client-core", "The core the load comes from", "1"))
        .arg(
            path("program", "Forebay's binary [default: forebay beside this one]")
                .visible_alias("forebay"),
        )
        .arg(path("before", "Another build of Forebay, measured too where the experiment can"))
        .arg(path("out", "Folder for the results [default: lab/runs/DATE-NAME]"))
        .arg(flag("list", "Say what would be measured, and measure nothing"))
}

fn a_number(text: &str) -> Result<String, String> {
    text.parse::<f64>().map(|_| text.to_owned()).map_err(|_| "a number".to_owned())
}

fn a_time_text(text: &str) -> Result<String, String> {
    a_time(text).map(|_| text.to_owned())
}

/// The options of an experiment, from its command line.
///
/// # Errors
/// When this program's own path cannot be found; Forebay's is beside it.
pub fn options(experiment: &'static Benchmark, given: &ArgMatches) -> Result<Options, Error> {
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let path = |name: &str| given.get_one::<PathBuf>(name).cloned();
    let core = |name: &str| given.get_one::<usize>(name).copied().unwrap_or_default();
    let quick = given.get_flag("quick");
    let values = |axis: &Axis| match given.get_many::<String>(axis.option) {
        Some(values) => values.cloned().collect(),
        None => match axis.instead.filter(|(flag, ..)| given.get_flag(flag)) {
            Some((_, values, _)) => axis.values(values),
            None => axis.values(if quick { axis.quick } else { axis.default }),
        },
    };
    let mut servers = values(&experiment.servers);
    let knows_before = (experiment.servers.known)().contains(&"before");
    let is_chosen = given.contains_id(experiment.servers.option);
    if !is_chosen && knows_before && path("before").is_some() {
        servers.push("before".to_owned());
    }
    let setting = |setting: &Setting| match setting.kind {
        Kind::Flag => given.get_flag(setting.name).to_string(),
        _ => given.get_one::<String>(setting.name).cloned().unwrap_or_default(),
    };
    let default = a_time(experiment.measured).unwrap_or_default();
    let set = given.get_many::<String>("set").unwrap_or_default();
    let mut options = Options {
        rounds: given.get_one("rounds").copied().unwrap_or(if quick {
            1
        } else {
            experiment.rounds
        }),
        measured: given.get_one("measured").copied().unwrap_or(if quick {
            default / 2
        } else {
            default
        }),
        servers,
        sweep: experiment.sweep.iter().map(values).collect(),
        server_core: core("server-core"),
        client_core: core("client-core"),
        program: path("program").unwrap_or_else(|| own.with_file_name("forebay")),
        before: path("before"),
        set: set.map(|line| format!("{line}\n")).collect(),
        quick,
        out: path("out"),
        list: given.get_flag("list"),
        settings: experiment.settings.iter().map(|one| (one.name, setting(one))).collect(),
    };
    if let (Some(made), false) = (experiment.servers.made, is_chosen) {
        options.servers = made(&options);
    }
    Ok(options)
}
