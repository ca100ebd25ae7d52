//! From a changed configuration file to everything that takes the place of what runs, or the reason
//! why nothing changes.
//!
//! [`prepare`] may block (files, name lookups, slow disks) and runs on a thread of its own. It
//! touches nothing that serves clients. What it returns is put in force by [`run`](crate::run) in
//! one go.

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

/// What runs now, as far as a reload can keep it.
pub struct Current {
    /// The configuration in force.
    pub config: Config,
    /// What it came to.
    pub plan: Plan,
    /// What is served.
    pub content: Arc<Content>,
    /// Its identities, where TLS is spoken.
    pub certificates: Arc<Certificates>,
    /// Where it is logged.
    pub logs: Arc<Logs>,
    /// What the groups share.
    pub common: Common,
    /// The groups that do not retire: their numbers and what they were made for.
    pub groups: Vec<(u64, GroupPlan)>,
    /// The listening sockets.
    pub listeners: Arc<Mutex<Listeners>>,
    /// What may be reached since the start.
    pub sandbox: Sandbox,
    /// Have the commands and programs of the file run, if there were some at the start.
    pub launchers: Launchers,
    /// What the admin listener reports.
    pub status: Arc<Status>,
    /// Reads sets of the firewall, if rules named some at the start.
    pub sets: Option<Arc<SetReader>>,
}

/// Everything a new configuration needs, ready to be put in force.
pub struct NextConfiguration {
    /// The new configuration.
    pub config: Config,
    /// What it comes to.
    pub plan: Plan,
    /// What is served; the same object if nothing about it changes.
    pub content: Arc<Content>,
    /// The server's identities, where TLS is spoken.
    pub certificates: Arc<Certificates>,
    /// The applications behind; those that have not changed are the same objects.
    pub applications: Arc<Applications>,
    /// Where it is logged. Files that are still wanted are still open.
    pub logs: Arc<Logs>,
    /// Threads for jobs, and new ones if their number changes.
    pub common: Common,
    /// Groups that go on with other settings.
    pub kept: Vec<(u64, GroupPlan)>,
    /// Groups that begin.
    pub begun: Vec<Prepared>,
    /// The admin listener, if it is another one.
    pub admin: ChangeTo<Option<AdminListener>>,
    /// What files say of bans, if they were read.
    pub bans: Option<SaidBans>,
    /// The launchers that have read something else than they have.
    pub launchers: Launchers,
    /// What was changed, in lines, if it was not the file that was read.
    pub said: String,
    /// What the file says and hardly means.
    pub warnings: Vec<String>,
}

/// Whether something changes.
pub enum ChangeTo<T> {
    /// It stays.
    None,
    /// This comes instead.
    To(T),
}

/// Why a reload changes nothing.
#[derive(Debug)]
pub enum ReloadError {
    /// What a program wants of its rules cannot be.
    Agent {
        /// Its name.
        owner: String,
        /// Why.
        why: String,
    },
    /// The file wants stages, and there are none.
    Isolated,
    /// The configuration is wrong, everything listed.
    Configuration(Vec<Problem>),
    /// An assignment is wrong.
    Set(SetError),
    /// Something can be decided at the start only.
    Restart {
        /// The setting.
        key: &'static str,
    },
    /// An address cannot be listened on.
    Listen(ListenError),
    /// The commands of the file cannot be run.
    Launcher(LauncherError),
    /// Something lies where the server may not reach since its start.
    Outside(Outside),
    /// Classes and rules are no policy.
    Policy(PolicyError),
    /// The content cannot be served.
    Content(OpenError),
    /// A certificate cannot be used.
    Certificate(CertificateError),
    /// None of the certificates whose files have changed can be used.
    Renewal(String),
    /// A file of bans cannot be used.
    Bans(BanFileError),
    /// Sets of the firewall cannot be read.
    Sets(&'static str),
    /// The access log cannot be written.
    Log(LogError),
    /// No body can be on disk.
    Spool(SpoolError),
    /// The machine has nothing left: descriptors, threads, memory.
    Resources(io::Error),
    /// There is no file to read again.
    NoFile,
    /// The server is about to stop.
    Stopping,
    /// Another process is about to take its place.
    Handing,
}

impl ReloadError {
    /// The exit code of a command that meets it.
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

/// Reads `file` and prepares what it says. Until the result is put in force, everything goes on as
/// before; if it is dropped, nothing has happened.
///
/// # Errors
/// What is in the way.
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

/// Prepares a configuration that the program has given of which the server is a part.
///
/// # Errors
/// What is in the way.
pub fn prepare_given(config: Config, current: &Current) -> Result<NextConfiguration, ReloadError> {
    let certificates = Certificates::open(&config, &current.certificates, Vec::new());
    let certificates = Arc::new(certificates.map_err(ReloadError::Certificate)?);
    let bans = Some(ban_files::read(&config.ban_files).map_err(ReloadError::Bans)?);
    let next = prepare_config(config, certificates, String::new(), Path::new(""), current)?;
    Ok(NextConfiguration { bans, ..next })
}

/// Prepares what runs now, but for a change of what a program has added.
///
/// # Errors
/// What is in the way.
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

/// Prepares what runs now, but for `assignments` to settings of classes and rules, which hold through reloads if
/// they are `kept`. `file` is where what runs now came from.
///
/// # Errors
/// What is in the way.
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

/// Prepares what runs now, with a rule more or less from the command line.
///
/// # Errors
/// What is in the way.
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

/// What `forebay policy rule` asks for.
#[derive(Clone, Debug)]
pub enum RuleChange {
    /// A rule of this name, by these assignments.
    Add(String, Vec<String>),
    /// It goes.
    Remove(String),
}

/// Prepares what runs now, with the certificates whose files have changed.
///
/// # Errors
/// What is wrong with them, if there is nothing to be taken over.
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

/// Prepares what runs now, with what sets of the firewall hold by now.
///
/// # Errors
/// What is in the way.
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
    // a stage reads no file again
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
        // what new content would read at once
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
    // shares and ledgers of classes reach threads that are there
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

/// The admin listener that `plan` wants.
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

/// What is done once, when the process has still all its privileges.
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

/// The logs that `config` names. Those that are open in `previous` stay so, and the sites go on with
/// what was counted.
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

/// Sockets and workers for new groups of a plan.
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
        // clients would wait in the queues of these for ever
        listeners.undo(&wanted(&current.plan));
    }
    begun
}

/// Every address that is listened on.
pub fn wanted(plan: &Plan) -> Vec<Listen> {
    let admin = plan.admin.iter().flat_map(|admin| &admin.listen);
    let endpoints = plan.groups.iter().flat_map(|group| &group.listen).chain(admin);
    endpoints.map(|endpoint| endpoint.listen.clone()).collect()
}
