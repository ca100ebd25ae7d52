//! The command `forebay`: turns the command line into a configuration, and an error into a line on
//! standard error and an exit code.
//!
//! | module | what it holds |
//! |---|---|
//! | [`args`] | commands and options |
//! | [`browser`] | the process that opens the site in a browser |
//! | [`calibrate`](mod@calibrate) | `forebay calibrate` |
//! | [`exit`] | the errors of commands, and their exit codes |
//! | [`hash_password`] | `forebay hash-password` |
//! | [`init`] | `forebay init` |
//! | [`init_error`] | the errors of `forebay init` |
//! | [`load`](mod@load) | the load generator's options and output |
//! | [`local_certificate`] | the certificate of `forebay serve --tls` |
//! | [`policy`] | `forebay policy` |
//! | [`policy_error`] | the errors of `forebay policy` |
//! | [`running_server`] | questions to a running server |
//! | [`sources`] | names that `forebay serve` withholds |
//! | [`stage_keys`] | certificates and keys for stages on several machines |
//! | [`upgrade`] | `forebay upgrade`, and the process that it starts |
//! | [`upstream`] | `forebay upstream` |
//! | [`version`] | `forebay version --verbose` |
//! | `pages` | the man pages and docs/manual/commands.md, made by a test |
#![forbid(unsafe_code)]

mod args;
mod browser;
mod calibrate;
mod exit;
mod hash_password;
mod init;
mod init_error;
mod load;
mod local_certificate;
#[cfg(test)]
mod pages;
mod policy;
mod policy_error;
mod running_server;
mod sources;
mod stage_keys;
mod upgrade;
mod upstream;
mod version;

use args::{Args, Command, GivenOption, Serve, StageArgs};
use clap::CommandFactory;
use exit::CommandFailure;
use forebay_config::{
    AccessLog, Config, ConfigDraft, Listen, ListenEndpoint, Problem, StageProcess, Wrong,
};
use forebay_server::config_file;
use forebay_server::isolated;
use forebay_server::lints::{Depth, missing_files};
use forebay_server::start_error::Ready;
use forebay_sys::privileges::{self, KeptPrivileges};
use local_certificate::LocalCertificate;
use sources::Withheld;
use stage_keys::StagesCommand;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The allocator of the static program: musl's own has one lock for all threads
/// (docs/adr/0116-a-static-program.md has the figures).
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The address of `serve --tls` without `--listen`.
const DEFAULT_TLS_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

fn main() -> ExitCode {
    // wrong usage ends here with exit code 2
    let result = match args::parse().command {
        Command::Serve(options) => serve(options),
        Command::Init(options) => init::run(&options),
        Command::Run { config, in_place_of: None, .. } => run_file(config),
        Command::Run { config, in_place_of: Some(socket), orphan: true } => {
            upgrade::leave_orphan(&config, &socket)
        }
        Command::Run { config, in_place_of: Some(socket), .. } => upgrade::serve(config, &socket),
        Command::Stage(options) => stage(options),
        Command::Stages(StagesCommand::Keys(options)) => stage_keys::make(&options)
            .map_err(CommandFailure::StageKeys)
            .and_then(|said| print_out(&said)),
        Command::Firewall => {
            forebay_server::firewall::helper::run().map_err(CommandFailure::Firewall)
        }
        Command::Launcher { config, links } => {
            let copy = links.as_deref().and_then(isolated::copy);
            forebay_server::launcher::process::run(&config, copy.as_deref())
                .map_err(CommandFailure::Launcher)
        }
        Command::CgiLauncher { config, links } => {
            let copy = links.as_deref().and_then(isolated::copy);
            forebay_server::launcher::cgi::process::run(&config, copy.as_deref())
                .map_err(CommandFailure::Launcher)
        }
        Command::Gate => forebay_server::gate::guard().map_err(CommandFailure::Gate),
        Command::Reload { config, socket } => reload(&config, socket),
        Command::Status(server) => server.ask("status").and_then(running_server::print),
        Command::Upgrade(server) => upgrade::run(&server),
        Command::Why { server, id } => {
            server.ask(&format!("why {}", id.replace('\n', " "))).and_then(running_server::print)
        }
        Command::Answers(server) => server.ask("gate answers").and_then(running_server::print),
        Command::Policy(command) => policy::run(command),
        Command::Upstream(command) => upstream::run(command),
        Command::Check { config, print, strict, user, gate } => {
            see_as(user.as_deref()).and_then(|()| check(&config, (print, gate), strict))
        }
        Command::Doctor { config } => doctor(config.as_deref()),
        Command::Load(load) => return load::run(*load),
        Command::Calibrate(options) => calibrate(&options),
        Command::HashPassword(options) => hash_password::run(&options)
            .map_err(CommandFailure::Password)
            .and_then(|hash| print_out(&hash)),
        Command::Completions { shell } => print_out(&completions(shell)),
        Command::Version { verbose: false } => print_out(&version::short()),
        Command::Version { verbose: true } => print_out(&version::verbose()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}

fn run(config: Config, file: Option<PathBuf>, ready: Ready) -> Result<(), CommandFailure> {
    forebay_server::serve(config, file, ready).map_err(CommandFailure::Run)
}

/// Serves what a configuration file says. Its warnings are printed when clients are served.
fn run_file(file: PathBuf) -> Result<(), CommandFailure> {
    let read = config_file::load_and_warn(&file, Depth::Files);
    let (config, warnings) = read.map_err(CommandFailure::Configuration)?;
    let warn = move |_| warnings.iter().for_each(|warning| say(&format!("forebay: {warning}")));
    run(config, Some(file), Box::new(warn))
}

/// Runs one stage of a server with `engine = "isolated"`.
fn stage(options: StageArgs) -> Result<(), CommandFailure> {
    let StageArgs { role, config: file, links, instance } = options;
    // the process was started through a descriptor, whose number the kernel has taken as its name
    forebay_sys::process::set_name(&format!("forebay-{role}"));
    let _hold = isolated::hold(&links);
    let read = match isolated::copy(&links) {
        Some(copy) => {
            config_file::load_kept(&copy, &file).map_err(CommandFailure::Configuration)?
        }
        None => load(&file)?,
    };
    if !isolated::is_wanted(&read) {
        return Err(CommandFailure::NotIsolated { file });
    }
    let place = StageProcess { role, instance, file, links };
    run(isolated::at(read, place), None, Box::new(|_| {}))
}

/// Serves a directory, as the options of `serve` say.
fn serve(options: Serve) -> Result<(), CommandFailure> {
    let is_opened = options.open;
    let withheld = (!options.sources).then(|| Withheld::of(&options.dir));
    let config = from_options(options, withheld.as_ref())?;
    let mut hints: Vec<_> = config.sites.iter().filter_map(lacks_index).collect();
    hints.extend(withheld.and_then(|withheld| withheld.words()));
    let open: Ready = match is_opened {
        true => browser::wait_for_address(),
        false => Box::new(|_| {}),
    };
    let ready: Ready = Box::new(move |address| {
        hints.iter().for_each(|hint| say(hint));
        open(address);
    });
    run(config, None, ready)
}

/// The warning for a site whose front page is an error; `None` if it has a page.
fn lacks_index(site: &forebay_config::SiteConfig) -> Option<String> {
    let root = site.root.as_ref()?;
    if !site.try_files.candidates().is_empty() {
        let is_there = root.join("index.html").exists();
        let root = root.display();
        return (!is_there).then(|| {
            format!("forebay serve: {root} has no index.html, the page that --spa answers with")
        });
    }
    // the index files behind the first one belong to applications, which are not run
    let index = site.index.first()?;
    let has_page = !site.listing.0.is_empty() || root.join(index).exists();
    (!has_page).then(|| {
        let root = root.display();
        format!("forebay serve: {root} has no {index}; --listing shows what is in it")
    })
}

/// Asks the server that runs `file` to read it again, and prints the result. If the server expects an
/// upgrade, this starts the new server instead: so a service manager does it by reloading.
fn reload(file: &Path, socket: Option<PathBuf>) -> Result<(), CommandFailure> {
    let (at, problems) = running_server::find(file, socket)?;
    if let Some(upgraded) = upgrade::if_expected(file, &at) {
        return upgraded;
    }
    let answer = running_server::ask_at(at, problems, "reload")?;
    if answer.code != 0 {
        return Err(CommandFailure::Answered(answer));
    }
    say(answer.text.trim_end());
    Ok(())
}

fn load(file: &Path) -> Result<Config, CommandFailure> {
    config_file::load(file).map_err(CommandFailure::Configuration)
}

/// Gives this process the permissions of that user for opening files.
fn see_as(name: Option<&str>) -> Result<(), CommandFailure> {
    let Some(name) = name else { return Ok(()) };
    let failed = |error| CommandFailure::SeeAs { name: name.to_owned(), error };
    let user = privileges::user(name).map_err(|error| failed(Some(error)))?;
    let user = user.ok_or_else(|| failed(None))?;
    privileges::become_user(&user, KeptPrivileges::Binding).map_err(|error| failed(Some(error)))
}

fn check(
    file: &Path,
    (print, print_gate): (bool, bool),
    is_strict: bool,
) -> Result<(), CommandFailure> {
    let (config, remarks) =
        config_file::check(file, Depth::Surroundings).map_err(CommandFailure::Configuration)?;
    if is_strict && !remarks.is_empty() {
        return Err(CommandFailure::Configuration(remarks));
    }
    if print {
        print_out(&config.to_shown_toml())?;
    }
    if print_gate {
        print_out(&forebay_server::gate::told::report(&config))?;
    }
    remarks.iter().for_each(|remark| say(&format!("warning: {remark}")));
    let with = match remarks.len() {
        0 => String::new(),
        1 => ", with 1 warning".to_owned(),
        count => format!(", with {count} warnings"),
    };
    say(&format!("{}: good{with}", file.display()));
    Ok(())
}

fn doctor(file: Option<&Path>) -> Result<(), CommandFailure> {
    let config = file.map(load).transpose()?;
    print_out(&forebay_server::doctor::report(config.as_ref()))
}

/// The configuration of `serve`: the defaults, changed by the options.
fn from_options(serve: Serve, withheld: Option<&Withheld>) -> Result<Config, CommandFailure> {
    let mut draft = ConfigDraft::new();
    draft.site.root = Some(serve.dir);
    let one_page = GivenOption::of_one_page();
    let options = serve.listen.iter().chain(&serve.port).chain(&serve.engine).chain(&serve.workers);
    let options = options.chain(&serve.admin).chain(one_page.iter().filter(|_| serve.spa));
    for option in options {
        let wrong = |wrong| CommandFailure::Options(problem(option.key(), wrong).into());
        option.apply(&mut draft).map_err(wrong)?;
    }
    if serve.tls {
        with_tls(&mut draft)?;
    }
    draft.site.listing = serve.listing.into();
    if let Some(withheld) = withheld {
        let unfit = |reason| Wrong::Unfit { found: String::new(), reason };
        draft.site.access = withheld.rules().map_err(|error| {
            CommandFailure::Options(problem("", unfit(error.to_string())).into())
        })?;
        // a folder with an application answers with an explanation, unless a list or the one page does
        if !serve.listing && !serve.spa {
            draft.site.index.extend(sources::indexes());
        }
    }
    if serve.no_log {
        draft.site.log.access = AccessLog::Off;
    }
    if let Some((at, wrong)) = draft.problems(None).into_iter().next() {
        return Err(CommandFailure::Options(problem(&at.shown, wrong).into()));
    }
    let missing = missing_files(&draft).into_iter().map(|(_, wrong)| problem("", wrong));
    let problems: Vec<_> = missing.collect();
    if problems.is_empty() {
        Ok(draft.resolve())
    } else {
        Err(CommandFailure::Configuration(problems))
    }
}

/// Has every address speak TLS, with a certificate that is made on this machine.
fn with_tls(draft: &mut ConfigDraft) -> Result<(), CommandFailure> {
    if draft.listener.listen.is_empty() {
        draft.listener.listen.push(ListenEndpoint {
            listen: Listen::At(DEFAULT_TLS_LISTEN),
            tls: true,
            raw: false,
        });
    }
    let mut addresses = Vec::new();
    for endpoint in &mut draft.listener.listen {
        match &endpoint.listen {
            Listen::At(address) => addresses.push(address.ip()),
            Listen::All(_) => {}
            Listen::Unix(_) => continue,
        }
        endpoint.tls = true;
    }
    let hosts = local_certificate::hosts(addresses.into_iter());
    let local = LocalCertificate::prepare(&hosts).map_err(CommandFailure::Certificate)?;
    say(&local.words());
    draft.site.tls.pairs.certificates.push(local.certificate);
    draft.site.tls.pairs.keys.push(local.key);
    Ok(())
}

fn calibrate(options: &calibrate::Calibrate) -> Result<(), CommandFailure> {
    let (report, remarks) = calibrate::run(options).map_err(CommandFailure::Calibrate)?;
    print_out(&report)?;
    say(&remarks);
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "forebay", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn problem(key: &str, wrong: Wrong) -> Problem {
    Problem { file: "forebay serve".to_owned(), place: None, key: key.to_owned(), wrong }
}

/// Writes data to standard output. A reader that has closed the pipe is not an error.
fn print_out(text: &str) -> Result<(), CommandFailure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandFailure::Output(error))
        }
        _ => Ok(()),
    }
}

/// Prints a question to standard error, behind which the answer is typed.
fn prompt(text: &str) {
    let mut stderr = io::stderr();
    // if writing fails, the question cannot be seen; the user can still end the input
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes a message to standard error, where everything goes that is not data.
fn say(text: &str) {
    // an error here cannot be reported anywhere
    let _ = writeln!(io::stderr(), "{text}");
}
