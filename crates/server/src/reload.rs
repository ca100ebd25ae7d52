//! Turns a changed configuration file into everything that replaces what runs, or into the reason
//! why nothing changes.
//!
//! [`prepare`] may block (files, name lookups, slow disks) and runs on a thread of its own. It
//! touches nothing that serves clients. [`run`](crate::run) puts its result in force as a whole.

use crate::admin::AdminListener;
use crate::ban_files::{self, BanFileError, SaidBans};
use crate::command::PolicyChange;
use crate::config_file;
use crate::engines::{Common, Prepared};
use crate::firewall::sets::{self, SetReader};
use crate::gate;
use crate::isolated;
use crate::launcher::{LauncherError, Launchers};
use crate::lints::Depth;
use crate::listen::{ListenError, Listeners};
use crate::plan::{GroupPlan, MachineResources, Plan};
use crate::policy_command::{SetError, agents, set};
use crate::sandbox::{Outside, Sandbox, SandboxNeeds};
use crate::spool::{self, SpoolError};
use crate::status::Status;
use forebay_config::{AddressSets, Config, FirewallSettings, Listen, Problem, SiteConfig};
use forebay_engine::worker;
use forebay_handler::applications::Applications;
use forebay_handler::certificates::{CertificateError, Certificates, Renewed};
use forebay_handler::log::{LogError, LogSettings, Logs};
use forebay_handler::policy::Enforced;
use forebay_metrics::Totals;
use forebay_policy::PolicyError;
use forebay_site::{Content, OpenError};
use forebay_sys::stderr::say;
use forebay_sys::wait_budget::WaitBudget;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

/// The parts of the running server, as far as a reload can keep them.
pub struct Current {
    /// The configuration in force.
    pub config: Config,
    /// The configuration resolved for this machine.
    pub plan: Plan,
    /// The content of the sites.
    pub content: Arc<Content>,
    /// The certificates of the sites and listeners, where there is TLS.
    pub certificates: Arc<Certificates>,
    /// The logs.
    pub logs: Arc<Logs>,
    /// The parts that all groups of workers share.
    pub common: Common,
    /// The groups that do not retire: their numbers and plans.
    pub groups: Vec<(u64, GroupPlan)>,
    /// The listening sockets.
    pub listeners: Arc<Mutex<Listeners>>,
    /// The files and addresses that the sandbox allows since the start.
    pub sandbox: Sandbox,
    /// The launchers of the file's commands and programs, if there were some at the start.
    pub launchers: Launchers,
    /// The state that the admin listener reports.
    pub status: Arc<Status>,
    /// The thread that reads sets of the firewall, if rules named some at the start.
    pub sets: Option<Arc<SetReader>>,
}

/// Everything a new configuration needs, ready to be put in force.
pub struct NextConfiguration {
    /// The new configuration.
    pub config: Config,
    /// The configuration resolved for this machine.
    pub plan: Plan,
    /// The content of the sites; the same object if nothing about it changes.
    pub content: Arc<Content>,
    /// The certificates of the sites and listeners, where there is TLS.
    pub certificates: Arc<Certificates>,
    /// The applications; those that have not changed are the same objects.
    pub applications: Arc<Applications>,
    /// The logs. Files that are still wanted stay open.
    pub logs: Arc<Logs>,
    /// The parts that all groups of workers share, with new helper threads if their number changes.
    pub common: Common,
    /// The groups that go on, with their new settings.
    pub kept: Vec<(u64, GroupPlan)>,
    /// The new groups.
    pub begun: Vec<Prepared>,
    /// The admin listener, if it changes.
    pub admin: ChangeTo<Option<AdminListener>>,
    /// The bans in files, if these were read.
    pub bans: Option<SaidBans>,
    /// The launchers that have read a different configuration than they have in force.
    pub launchers: Launchers,
    /// The changes, in lines, if they do not come from the file.
    pub said: String,
    /// Warnings about settings in the file that are hardly intended.
    pub warnings: Vec<String>,
}

/// A change of a part, if there is one.
pub enum ChangeTo<T> {
    /// The part stays.
    None,
    /// The part is replaced by this one.
    To(T),
}

/// The reason why a reload changes nothing.
#[derive(Debug)]
pub enum ReloadError {
    /// The rules of a program cannot be put in force.
    Agent {
        /// The name of the program.
        owner: String,
        /// The reason.
        why: String,
    },
    /// The file wants stages, and the server runs without.
    Isolated,
    /// The configuration is wrong; all problems are listed.
    Configuration(Vec<Problem>),
    /// An assignment is wrong.
    Set(SetError),
    /// A setting can only change at a restart.
    Restart {
        /// The setting.
        key: &'static str,
    },
    /// An address cannot be listened on.
    Listen(ListenError),
    /// The commands of the file cannot be run.
    Launcher(LauncherError),
    /// A file or an address is outside of what the sandbox allows since the start.
    Outside(Outside),
    /// Classes and rules are not a valid policy.
    Policy(PolicyError),
    /// The content cannot be served.
    Content(OpenError),
    /// A certificate cannot be used.
    Certificate(CertificateError),
    /// No certificate whose files have changed can be used.
    Renewal(String),
    /// A file of bans cannot be used.
    Bans(BanFileError),
    /// Sets of the firewall cannot be read.
    Sets(&'static str),
    /// The access log cannot be written.
    Log(LogError),
    /// Request bodies cannot be stored on disk.
    Spool(SpoolError),
    /// The machine has no descriptors, threads or memory left.
    Resources(io::Error),
    /// The configuration does not come from a file.
    NoFile,
    /// The server is about to stop.
    Stopping,
    /// Another process is about to take the server's place.
    Handing,
}

impl ReloadError {
    /// The exit code of a command that gets this error.
    pub fn code(&self) -> u8 {
        match self {
            ReloadError::Configuration(_) => 78,
            ReloadError::Set(_) | ReloadError::Agent { .. } => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Configuration(problems) => {
                let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            ReloadError::Set(error) => error.fmt(f),
            ReloadError::Agent { owner, why } => write!(f, "{owner}: {why}"),
            ReloadError::Restart { key } => {
                write!(f, "{key} cannot change while the server runs: restart it")
            }
            ReloadError::Isolated => f.write_str(
                "stages (engine = \"isolated\" or [stages]) are there from the start of the server, and this one has none: \
                 restart it, or have another take its place (forebay upgrade)",
            ),
            ReloadError::Listen(error) => error.fmt(f),
            ReloadError::Outside(error) => error.fmt(f),
            ReloadError::Launcher(error) => error.fmt(f),
            ReloadError::Policy(error) => error.fmt(f),
            ReloadError::Content(error) => error.fmt(f),
            ReloadError::Certificate(error) => error.fmt(f),
            ReloadError::Renewal(said) => f.write_str(said),
            ReloadError::Bans(error) => error.fmt(f),
            ReloadError::Sets(why) => f.write_str(why),
            ReloadError::Log(error) => error.fmt(f),
            ReloadError::Spool(error) => error.fmt(f),
            ReloadError::Resources(error) => write!(f, "the machine has no room: {error}"),
            ReloadError::NoFile => {
                f.write_str("this server was started without a configuration file")
            }
            ReloadError::Stopping => f.write_str("the server is about to stop"),
            ReloadError::Handing => f.write_str(
                "another process is about to take the place of this one: wait for forebay upgrade",
            ),
        }
    }
}

impl std::error::Error for ReloadError {}

/// Reads `file` and prepares its configuration. Until the result is put in force, everything goes
/// on as before; dropping it has no effect.
///
/// # Errors
/// The reason why it cannot be used.
pub fn prepare(file: &Path, current: &Current) -> Result<NextConfiguration, ReloadError> {
    let read = config_file::load_and_warn(file, Depth::Text);
    let (config, warnings) = read.map_err(ReloadError::Configuration)?;
    if isolated::is_wanted(&config) {
        return Err(ReloadError::Isolated);
    }
    let certificates = Certificates::open(&config, &current.certificates, Vec::new());
    let certificates = Arc::new(certificates.map_err(ReloadError::Certificate)?);
    let bans = Some(ban_files::read(&config.ban_files).map_err(ReloadError::Bans)?);
    let taken_back = set::taken_back(&current.config, &config);
    let (of_programs, added) = set::without_added(&current.config);
    let (config, said) = agents::carry(&of_programs, config);
    let said = said.map(|said| said + "\n").unwrap_or_default() + &added + &taken_back;
    let (config, kept) = set::keep(&current.config.assigned, config);
    let next = prepare_config(config, certificates, said + &kept, file, current)?;
    Ok(NextConfiguration { warnings, bans, ..next })
}

/// Prepares a configuration from the program that the server is a part of.
///
/// # Errors
/// The reason why it cannot be used.
pub fn prepare_given(config: Config, current: &Current) -> Result<NextConfiguration, ReloadError> {
    let certificates = Certificates::open(&config, &current.certificates, Vec::new());
    let certificates = Arc::new(certificates.map_err(ReloadError::Certificate)?);
    let bans = Some(ban_files::read(&config.ban_files).map_err(ReloadError::Bans)?);
    let next = prepare_config(config, certificates, String::new(), Path::new(""), current)?;
    Ok(NextConfiguration { bans, ..next })
}

/// Prepares the current configuration with a change of the rules that a program has added.
///
/// # Errors
/// The reason why it cannot be used.
pub fn change_of(
    owner: &str,
    change: &PolicyChange,
    file: &Path,
    current: &Current,
) -> Result<NextConfiguration, ReloadError> {
    let changed = agents::apply(&current.config, owner, change);
    let (config, said) =
        changed.map_err(|why| ReloadError::Agent { owner: owner.to_owned(), why })?;
    prepare_config(config, Arc::clone(&current.certificates), said, file, current)
}

/// Prepares the current configuration with `assignments` to settings of classes and rules, which
/// survive reloads if they are `kept`. `file` is the file of the current configuration.
///
/// # Errors
/// The reason why it cannot be used.
pub fn change(
    assignments: &[String],
    kept: bool,
    file: &Path,
    current: &Current,
) -> Result<NextConfiguration, ReloadError> {
    let (config, said) =
        set::apply(&current.config, assignments, kept).map_err(ReloadError::Set)?;
    prepare_config(config, Arc::clone(&current.certificates), said, file, current)
}

/// Prepares the current configuration with a rule that is added or removed by command.
///
/// # Errors
/// The reason why it cannot be used.
pub fn change_rule(
    change: &RuleChange,
    file: &Path,
    current: &Current,
) -> Result<NextConfiguration, ReloadError> {
    let changed = match change {
        RuleChange::Add(name, assignments) => set::add_rule(&current.config, name, assignments),
        RuleChange::Remove(name) => set::remove_rule(&current.config, name),
    };
    let (config, said) = changed.map_err(ReloadError::Set)?;
    prepare_config(config, Arc::clone(&current.certificates), said, file, current)
}

/// A change by `forebay policy rule`.
#[derive(Clone, Debug)]
pub enum RuleChange {
    /// Adds a rule with this name and these assignments.
    Add(String, Vec<String>),
    /// Removes the rule with this name.
    Remove(String),
}

/// Prepares the current configuration with the certificates whose files have changed.
///
/// # Errors
/// The errors of the certificates, if none of them can be used.
pub fn renew(current: &Current) -> Result<NextConfiguration, ReloadError> {
    let Renewed { certificates, taken, errors } = current.certificates.renewed(&current.config);
    let is_new = !taken.is_empty();
    let taken = taken.iter().map(|what| format!("{what} are taken over"));
    let kept = errors.iter().map(|error| format!("{error}; what is in force is kept"));
    let said = taken.chain(kept).collect::<Vec<_>>().join("\n");
    if !is_new {
        return Err(ReloadError::Renewal(said));
    }
    Ok(NextConfiguration {
        config: current.config.clone(),
        plan: current.plan.clone(),
        content: Arc::clone(&current.content),
        certificates: Arc::new(certificates),
        applications: Arc::clone(&current.common.live.get().applications),
        logs: Arc::clone(&current.logs),
        common: current.common.clone(),
        kept: current.groups.clone(),
        begun: Vec::new(),
        admin: ChangeTo::None,
        bans: None,
        launchers: Launchers::default(),
        said,
        warnings: Vec::new(),
    })
}

/// Prepares the current configuration with the present elements of sets of the firewall.
///
/// # Errors
/// The reason why it cannot be used.
pub fn with_sets(
    sets: AddressSets,
    file: &Path,
    current: &Current,
) -> Result<NextConfiguration, ReloadError> {
    let config = Config { sets, ..current.config.clone() };
    let said = format!("{} networks are in force", config.sets.networks());
    prepare_config(config, Arc::clone(&current.certificates), said, file, current)
}

fn prepare_config(
    mut config: Config,
    certificates: Arc<Certificates>,
    said: String,
    file: &Path,
    current: &Current,
) -> Result<NextConfiguration, ReloadError> {
    at_the_start_only(&config, &current.config)?;
    sets::fill(&mut config, current.sets.as_deref()).map_err(ReloadError::Sets)?;
    // a stage reads the file only at its start
    let read = config.place.is_none().then_some(file);
    let needs = SandboxNeeds::of(&config, read, None);
    current.sandbox.allows(&needs).map_err(ReloadError::Outside)?;
    let launchers = current.launchers.prepare(&config, &current.config);
    let launchers = launchers.map_err(ReloadError::Launcher)?;
    let machine = MachineResources::of(&config).map_err(ReloadError::Resources)?;
    let plan = Plan::new(&config, &machine);
    let mut plan = plan.map_err(ReloadError::Policy)?;
    plan.ranks.slots = current.common.register.ledgers(&plan.policy);
    let content = if plan.site == current.plan.site {
        // new content reads files of users and error pages at once, so the old one does so, too
        current.content.look_at_users();
        current.content.look_at_pages();
        Arc::clone(&current.content)
    } else {
        let notice = |notice| say(format_args!("{notice}"));
        Content::open(plan.site.clone(), notice).map_err(ReloadError::Content)?
    };
    let before = current.common.live.get();
    let now_ms = worker::read_clocks().monotonic_ms;
    let (routes, shares) = (&plan.applications, &plan.ranks.shares);
    let known = before.applications.spool();
    let spool = spool::reopen(&config, machine.descriptors, &current.config, known);
    let applications = Applications::new(routes, shares, Some(&before.applications), now_ms)
        .passing(&plan.pass_routes)
        .with_spool(spool.map_err(ReloadError::Spool)?)
        .with_launcher(before.applications.launcher().cloned());
    let counted = current.common.register.totals();
    let logs = open_logs(&config, Some((&current.logs, &counted))).map_err(ReloadError::Log)?;
    let mut common = current.common.clone();
    // running threads can take over new shares and ledgers of classes
    let same_helpers =
        plan.helpers == current.plan.helpers && current.common.ranks.can_become(&plan.ranks);
    if !same_helpers {
        let sample = config.sample.try_into().unwrap_or(u32::MAX);
        common.take_helpers(&plan, sample).map_err(ReloadError::Resources)?;
    }
    let (mut kept, mut begun) = (Vec::new(), Vec::new());
    for group in &plan.groups {
        let runs = current.groups.iter().find(|(_, runs)| same_helpers && runs.serves(group));
        match runs {
            Some((number, _)) => kept.push((*number, group.clone())),
            None => begun.push(group.clone()),
        }
    }
    let begun = begin(begun, &plan, &common, current)?;
    let admin = match plan.admin == current.plan.admin {
        true => ChangeTo::None,
        false => ChangeTo::To(admin(&plan, &certificates, current)?),
    };
    Ok(NextConfiguration {
        config,
        plan,
        content,
        certificates,
        applications: Arc::new(applications),
        logs,
        common,
        kept,
        begun,
        admin,
        bans: None,
        launchers,
        said,
        warnings: Vec::new(),
    })
}

/// The admin listener of `plan`, if it has one.
fn admin(
    plan: &Plan,
    certificates: &Certificates,
    current: &Current,
) -> Result<Option<AdminListener>, ReloadError> {
    let Some(admin) = &plan.admin else { return Ok(None) };
    let mut listeners = current.listeners.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = listeners.take_admin(&admin.listen).map_err(ReloadError::Listen);
    let made = taken.and_then(|mut sockets| {
        let (live, status) = (Arc::clone(&current.common.live), Arc::clone(&current.status));
        let own = Arc::clone(&certificates.admin);
        let made = AdminListener::new(sockets.remove(0), admin, own, live, status);
        made.map_err(ReloadError::Resources)
    });
    if made.is_err() {
        listeners.undo(&wanted(&current.plan));
    }
    made.map(Some)
}

/// Checks the settings that need privileges which the process has only at its start.
fn at_the_start_only(next: &Config, now: &Config) -> Result<(), ReloadError> {
    let sets_interval = now.firewall.sets_interval;
    let firewall = FirewallSettings { sets_interval, ..next.firewall.clone() };
    let changed = [
        ("user", next.user != now.user),
        ("group", next.group != now.group),
        ("control.socket", next.control != now.control),
        ("sandbox", next.sandbox != now.sandbox),
        ("gate", next.gate != now.gate),
        ("gate_charge", next.gate_charge != now.gate_charge),
        ("gate_rules", next.gate_rules != now.gate_rules),
        ("gate_answers", next.gate_answers != now.gate_answers),
        ("firewall", firewall != now.firewall),
    ];
    match changed.into_iter().find(|(_, is_changed)| *is_changed) {
        Some((key, _)) => Err(ReloadError::Restart { key }),
        None => Ok(()),
    }
}

/// Opens the logs of `config`. Those that are open in `previous` stay open, and the
/// counts of the sites go on.
///
/// # Errors
/// When a file cannot be opened.
pub fn open_logs(
    config: &Config,
    previous: Option<(&Logs, &Totals)>,
) -> Result<Arc<Logs>, LogError> {
    let settings = |site: &SiteConfig| LogSettings::new(site.name().to_string(), &site.log);
    let sites: Vec<_> = config.sites.iter().map(settings).collect();
    Logs::open(&config.log, &sites, config.durations, previous)
}

/// Opens the sockets and prepares the workers for new groups of a plan.
fn begin(
    groups: Vec<GroupPlan>,
    plan: &Plan,
    common: &Common,
    current: &Current,
) -> Result<Vec<Prepared>, ReloadError> {
    let mut listeners = current.listeners.lock().unwrap_or_else(PoisonError::into_inner);
    *listeners.lock_wait() = WaitBudget::default();
    let gate = current.common.live.get().policy.gate.as_ref().map(Enforced::gate);
    let begun = groups.into_iter().map(|group| {
        let classes = gate::classes(gate.as_deref(), plan, &group);
        let sockets = listeners
            .take_ranked(&group.listen, group.listener_sets, classes)
            .map_err(ReloadError::Listen)?;
        common.prepare(group, sockets).map_err(ReloadError::Resources)
    });
    let begun: Result<Vec<_>, _> = begun.collect();
    let begun = begun.and_then(|begun| match listeners.check_inherited(&wanted(plan)) {
        Ok(()) => Ok(begun),
        Err(error) => Err(ReloadError::Listen(error)),
    });
    if begun.is_err() {
        // clients would wait in the queues of the new sockets for ever
        listeners.undo(&wanted(&current.plan));
    }
    begun
}

/// The address of each listener, with those of the admin listener.
pub fn wanted(plan: &Plan) -> Vec<Listen> {
    let admin = plan.admin.iter().flat_map(|admin| &admin.listen);
    let endpoints = plan.groups.iter().flat_map(|group| &group.listen).chain(admin);
    endpoints.map(|endpoint| endpoint.listen.clone()).collect()
}
