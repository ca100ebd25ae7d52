//! The command line: one set of options for every experiment, the axes and settings of the one that is run.

use crate::Error;
use crate::experiment::Experiment;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use std::time::Duration;

/// Something that is varied, and can be chosen.
#[derive(Debug)]
pub struct Axis {
    /// The column that says it.
    pub key: &'static str,
    /// The option that chooses values.
    pub option: &'static str,
    /// What it was called once, and still is.
    pub alias: Option<&'static str>,
    /// What it is.
    pub help: &'static str,
    /// The values that there are; empty if any word will do.
    pub known: fn() -> Vec<&'static str>,
    /// Those that are measured, separated by commas; empty for all.
    pub default: &'static str,
    /// The same with `--quick`.
    pub quick: &'static str,
    /// A flag that chooses others: its name, those values, and what it is for.
    pub instead: Option<(&'static str, &'static str, &'static str)>,
}

/// Any word will do.
pub fn any() -> Vec<&'static str> {
    Vec::new()
}

impl Axis {
    /// One with only what it must have.
    pub const fn new(
        key: &'static str,
        option: &'static str,
        help: &'static str,
        known: fn() -> Vec<&'static str>,
        default: &'static str,
    ) -> Axis {
        Axis { key, option, alias: None, help, known, default, quick: default, instead: None }
    }

    fn values(&self, text: &str) -> Vec<String> {
        match text {
            "" => (self.known)().into_iter().map(str::to_owned).collect(),
            text => text.split(',').map(str::to_owned).collect(),
        }
    }
}

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A duration, such as 1.5s or 20ms; seconds without a unit.
    Time,
    /// A word.
    Text,
    /// Nothing: it is so.
    Flag,
}

/// Something else that can be said of an experiment.
#[derive(Debug)]
pub struct Setting {
    /// The option.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is, unless it is said.
    pub default: &'static str,
    /// What it means.
    pub help: &'static str,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Measurements of each server at each point.
    pub rounds: u32,
    /// Length of one measurement.
    pub measured: Duration,
    /// The servers.
    pub servers: Vec<String>,
    /// The values of each axis of the sweep.
    pub sweep: Vec<Vec<String>>,
    /// The core of servers.
    pub server_core: usize,
    /// The core of the load.
    pub client_core: usize,
    /// Forebay's binary.
    pub program: PathBuf,
    /// Another build of it.
    pub before: Option<PathBuf>,
    /// Lines for every configuration of Forebay.
    pub set: String,
    /// Fewer of everything.
    pub quick: bool,
    /// Where results go; a new folder if nothing is said.
    pub out: Option<PathBuf>,
    /// Nothing is measured.
    pub list: bool,
    settings: Vec<(&'static str, String)>,
}

/// The option of the load's length that was before `--measured`.
const SECONDS: &str = "seconds";

/// The arguments of an experiment.
pub fn command(experiment: &'static Experiment) -> Command {
    let mut command = Command::new(experiment.name).about(experiment.about).next_line_help(false);
    for axis in experiment.axes() {
        let known = (axis.known)();
        let mut arg = Arg::new(axis.option).long(axis.option).value_delimiter(',');
        arg = arg.action(ArgAction::Append);
        if !known.is_empty() {
            arg = arg.value_parser(PossibleValuesParser::new(&known)).hide_possible_values(true);
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

fn common(command: Command, experiment: &'static Experiment) -> Command {
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

/// A duration; seconds without a unit.
///
/// # Errors
/// What was expected instead.
pub fn a_time(text: &str) -> Result<Duration, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = if is_bare { format!("{text}s") } else { text.to_owned() };
    forebay_load::units::duration(&text).map_err(|error| error.to_string())
}

impl Options {
    /// Of an experiment, as they were given.
    ///
    /// # Errors
    /// When this program cannot be found, beside which Forebay's is.
    pub fn of(experiment: &'static Experiment, given: &ArgMatches) -> Result<Options, Error> {
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
        Ok(Options {
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
        })
    }

    /// A setting as it was written; empty if the experiment has none of that name.
    pub fn text(&self, name: &str) -> &str {
        self.settings.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A setting that is a number; 0 if the experiment has none of that name.
    pub fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// A setting that is a duration.
    pub fn time(&self, name: &str) -> Duration {
        a_time(self.text(name)).unwrap_or_default()
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.text(name) == "true"
    }
}
