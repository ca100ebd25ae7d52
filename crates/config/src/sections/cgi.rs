//! The routes of a site to programs that are run for each request (CGI, RFC 3875).

use crate::problems::problem::Wrong;
use crate::sections::upstreams::{HasUpstreams, UpstreamTimes, UpstreamsConfig, Variables};
use crate::table::{Item, Preset, Section, Setting};
use crate::values::account::Account;
use crate::values::optional::Optional;
use crate::values::units::{Percent, Size};
use crate::values::value::AutoCount;
use forebay_site::rules::{Route, Scope};
use forebay_upstream::fastcgi;
use forebay_upstream::settings::{self, LaunchedUpstream, UpstreamAddress};
use forebay_upstream::target::Ambiguous;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A `[[cgi]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgiSection {
    /// `path`
    pub path: Option<Scope>,
    /// `directory`
    pub directory: Option<PathBuf>,
    /// `program`
    pub program: Option<PathBuf>,
    /// `user`
    pub user: Option<Account>,
    /// `set`
    pub set: Variables,
    /// `in_flight`
    pub in_flight: u64,
    /// `spool_bytes`
    pub spool: Size,
    /// `limits.*`
    pub limits: CgiLimits,
    /// Settings that other routes have, too.
    pub upstreams: UpstreamsConfig,
}

/// The limits of the program that answers one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CgiLimits {
    /// `limits.time`: the time from the start of the program to its end.
    pub time: Duration,
    /// `limits.output`: the size of its answer, head and body.
    pub output: Size,
    /// `limits.memory`: the memory of each of its processes, and of all of them together.
    pub memory: Size,
    /// `limits.cpu`: the share of a processor, in a control group.
    pub cpu: Optional<Percent>,
    /// `limits.processes`: the number of its processes, the program itself included.
    pub processes: u64,
}

/// The programs of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CgiPrograms {
    /// The program that the request's path names beneath this directory.
    Beneath(PathBuf),
    /// One program, whatever the path.
    One(PathBuf),
}

impl CgiPrograms {
    /// The path that the configuration names.
    pub fn path(&self) -> &Path {
        match self {
            CgiPrograms::Beneath(path) | CgiPrograms::One(path) => path,
        }
    }
}

/// A route to programs, as the process that runs them sees it: nothing in it comes from a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CgiRoute {
    /// The programs.
    pub programs: CgiPrograms,
    /// The user that runs it, if the route names one.
    pub user: Option<Account>,
    /// Variables that it gets, whatever the request says.
    pub set: Vec<(Box<str>, Box<str>)>,
    /// The limits of a program.
    pub limits: CgiLimits,
    /// The largest number of its programs that run at once.
    pub in_flight: u64,
}

impl CgiRoute {
    /// The number by which a server asks for the route: the same for the same route in processes of one
    /// program.
    pub fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A route to programs whose settings are valid.
#[derive(Clone, Debug, PartialEq)]
pub struct CgiConfig {
    section: CgiSection,
    programs: CgiPrograms,
}

impl CgiConfig {
    /// The paths that the programs answer.
    pub fn path(&self) -> Scope {
        self.section.path.clone().unwrap_or_else(Scope::any)
    }

    /// The key that names the programs.
    pub fn key(&self) -> &'static str {
        match self.programs {
            CgiPrograms::Beneath(_) => "directory",
            CgiPrograms::One(_) => "program",
        }
    }

    /// Makes relative paths relative to the directory that `join` adds.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let CgiSection { directory, program, .. } = &mut self.section;
        directory.iter_mut().chain(program).for_each(join);
        let (CgiPrograms::Beneath(path) | CgiPrograms::One(path)) = &mut self.programs;
        join(path);
    }

    /// The route as the site takes it.
    pub fn route(&self) -> Route {
        Route { compress: self.section.upstreams.compress.0.clone(), ..Route::all(self.path()) }
    }

    /// The route as the launcher takes it, which runs the programs.
    pub fn launched(&self) -> CgiRoute {
        let CgiSection { user, set, limits, in_flight, .. } = &self.section;
        CgiRoute {
            programs: self.programs.clone(),
            user: user.clone(),
            set: set.0.clone(),
            limits: limits.clone(),
            in_flight: *in_flight,
        }
    }

    /// The settings by which the launcher is asked, which answers like an application that speaks FastCGI.
    /// `root` is that of the site.
    pub fn settings(&self, root: &Path) -> settings::FastCgiSettings {
        let upstreams = self.upstreams();
        let own = self.path().path().unwrap_or_default().to_owned();
        let own = own.strip_suffix('/').unwrap_or(&own).as_bytes();
        let root = root.as_os_str().as_bytes();
        let name = format!("cgi:{}", self.programs.path().display());
        let route = LaunchedUpstream { route: self.launched().number(), name: name.into() };
        settings::FastCgiSettings {
            group: upstreams.group(vec![UpstreamAddress::Launched(route)], Vec::new(), None),
            request: fastcgi::ScriptSettings {
                root: root.strip_suffix(b"/").unwrap_or(root).into(),
                ambiguous: Ambiguous::Refuse,
                keep: false,
                // the launcher knows the variables from the file
                set: Vec::new(),
                program: Some(own.into()),
            },
            bodies: upstreams.bodies(self.section.spool.0),
            limits: Default::default(),
            errors: upstreams.errors,
            buffer_bytes: upstreams.buffer_bytes.0,
            status: None,
        }
    }

    /// The settings of the route's one upstream, the launcher, which is asked once.
    fn upstreams(&self) -> UpstreamsConfig {
        let CgiSection { in_flight, upstreams, .. } = &self.section;
        UpstreamsConfig {
            in_flight: Optional(Some(AutoCount::Fixed(*in_flight))),
            fail_time: Duration::from_secs(10),
            timeouts: UpstreamTimes {
                connect: Duration::from_secs(3),
                ..upstreams.timeouts.clone()
            },
            ..upstreams.clone()
        }
    }
}

impl Item for CgiConfig {
    type Section = CgiSection;

    fn new(section: CgiSection) -> Result<CgiConfig, (&'static str, Wrong)> {
        let programs = match (&section.directory, &section.program) {
            (Some(directory), None) => CgiPrograms::Beneath(directory.clone()),
            (None, Some(program)) => CgiPrograms::One(program.clone()),
            (None, None) => {
                let example = "directory = \"/usr/lib/cgi-bin\"".to_owned();
                return Err(("directory", Wrong::Missing { example }));
            }
            (Some(_), Some(_)) => return Err(("program", Wrong::Both { other: "directory" })),
        };
        Ok(CgiConfig { section, programs })
    }

    fn section(&self) -> CgiSection {
        self.section.clone()
    }
}

impl HasUpstreams for CgiSection {
    fn upstreams(&mut self) -> &mut UpstreamsConfig {
        &mut self.upstreams
    }
}

impl Section for CgiSection {
    fn blank() -> CgiSection {
        CgiSection::default()
    }

    const SETTINGS: &'static [Setting<CgiSection>] = &[
        Setting {
            key: "path",
            preset: Preset::Required,
            range: None,
            meaning: "For which paths the programs answer. Routes are weighed as for proxy.",
            example: "\"/cgi-bin\"",
            at: |c| &mut c.path,
        },
        Setting {
            key: "directory",
            preset: Preset::Unset("program says what is run"),
            range: None,
            meaning: "The directory of the programs. What follows path names one of them: the first regular file \
                      on the way is run, and what follows it is its PATH_INFO. It must be executable, its name \
                      and those of directories may not begin with a dot, and no symbolic link leads out of the \
                      directory.",
            example: "\"/usr/lib/cgi-bin\"",
            at: |c| &mut c.directory,
        },
        Setting {
            key: "program",
            preset: Preset::Unset("directory says what is run"),
            range: None,
            meaning: "The one program that answers for every path of the route. All that follows path is its \
                      PATH_INFO.",
            example: "\"/usr/lib/git-core/git-http-backend\"",
            at: |c| &mut c.program,
        },
        Setting {
            key: "user",
            preset: Preset::Unset("that of user, else who has started the server"),
            range: None,
            meaning: "The user, by name or number, who runs the programs, in all groups of that user. Only root \
                      can name another one, and root itself may not be named. Give programs a user of their own: \
                      what runs as the user of the server can read and end whatever that user can.",
            example: "\"www-cgi\"",
            at: |c| &mut c.user,
        },
        Setting {
            key: "set",
            preset: Preset::Unset("nothing is set"),
            range: None,
            meaning: "Variables of the environment, each instead of what the request says. Their names are free, \
                      but for HTTP_PROXY. Beside them and what a request says programs have PATH alone.",
            example: "{ GIT_PROJECT_ROOT = \"/srv/git\" }",
            at: |c| &mut c.set,
        },
        Setting {
            key: "in_flight",
            preset: Preset::Value("16"),
            range: Some(("1", "10000")),
            meaning: "Programs of the route that run at once. While there are as many, more requests wait here \
                      (queue), in the order of their classes.",
            example: "8",
            at: |c| &mut c.in_flight,
        },
        Setting {
            meaning: "Size of a request body that is passed on; more is answered with 413, before anything runs \
                      if the request says how long it is.",
            ..Self::BODY_BYTES
        },
        Setting {
            key: "spool_bytes",
            preset: Preset::Value("64KiB"),
            range: Some(("0B", "1GiB")),
            meaning: "A request body of at most this size is collected in memory before a program is started, so \
                      that none waits for a slow client; a larger one goes to it as it comes. A program is told \
                      how long the body is, so one whose length is not known (Transfer-Encoding: chunked) is \
                      collected whatever its size: what is larger is in spool_dir, and without that it is 413.",
            example: "\"1MiB\"",
            at: |c| &mut c.spool,
        },
        Setting {
            meaning: "So much of an answer is received before its client takes it, in memory, so that a slow \
                      client does not keep the program.",
            ..Self::BUFFER_BYTES
        },
        Setting {
            meaning: "Whose page a client sees where the program answers with a status of 400 and more: theirs, \
                      or ours, which is that of errors.",
            ..Self::ERRORS
        },
        Setting {
            preset: Preset::Unset(
                "the site's compress, but no answer that has a strong tag (ETag)",
            ),
            meaning: "Codings that compressible answers are sent in to clients that take them. Empty: none.",
            ..Self::COMPRESS
        },
        Setting {
            preset: Preset::Value("true"),
            meaning: "Whether a client has left that has ended its direction of the connection (a FIN): its \
                      request leaves the queue, and its program is killed, as is always so after a reset. false: \
                      for clients that send all they have to say and then wait for the answer.",
            example: "false",
            ..Self::ABORT_ON_CLOSE
        },
        Setting {
            key: "limits.time",
            preset: Preset::Value("10m"),
            range: Some(("1s", "1d")),
            meaning: "How long a program may run, with all that it has started. Then all of it is killed, and the \
                      client gets 504, or an answer that breaks off.",
            example: "\"1h\"",
            at: |c| &mut c.limits.time,
        },
        Setting {
            key: "limits.output",
            preset: Preset::Value("1GiB"),
            range: Some(("1KiB", "1TiB")),
            meaning: "How much it may answer, head and body. Beyond that it is killed, and the answer breaks off.",
            example: "\"100MiB\"",
            at: |c| &mut c.limits.output,
        },
        Setting {
            key: "limits.memory",
            preset: Preset::Value("512MiB"),
            range: Some(("16MiB", "1TiB")),
            meaning: "How much address space each process of a request may have (RLIMIT_AS), and how much memory \
                      all of them together: beyond that they are killed. In a control group the kernel sees to \
                      that, and what they have in files counts, too; else it is looked at ten times a second.",
            example: "\"2GiB\"",
            at: |c| &mut c.limits.memory,
        },
        Setting {
            key: "limits.cpu",
            preset: Preset::Unset("what the server leaves"),
            range: Some(("1%", "25600%")),
            meaning: "How much of a processor the processes of a request may take together: 200% is two. The kernel \
                      keeps to it in a control group (cpu.max); where programs have none, the key does nothing, \
                      which the server says at its start.",
            example: "\"50%\"",
            at: |c| &mut c.limits.cpu,
        },
        Setting {
            key: "limits.processes",
            preset: Preset::Value("64"),
            range: Some(("1", "10000")),
            meaning: "How many processes a request may have, which is looked at ten times a second: beyond that \
                      they are killed. In a control group it has, besides, no more than 64 processes and threads \
                      beyond that (pids.max). A user of its own has, besides, no more processes and threads than this \
                      times in_flight, and 64 (RLIMIT_NPROC).",
            example: "8",
            at: |c| &mut c.limits.processes,
        },
        Setting {
            meaning: "Requests that wait while in_flight programs run, at most. Beyond that the last of the lowest \
                      class gives way to higher ones, and is answered with 503; with 0 nothing waits. Each takes a \
                      descriptor.",
            ..Self::QUEUE_REQUESTS
        },
        Self::QUEUE_TIME,
        Setting {
            meaning: "Time from the end of a request to the end of the answer's head; then the program is killed, \
                      and the client gets 504.",
            ..Self::TIMEOUTS_HEAD
        },
        Setting {
            meaning: "Time without a byte in a body, in either direction; then the program is killed.",
            ..Self::TIMEOUTS_SILENCE
        },
        Setting {
            meaning: "Time for the body of a request whose place others want, from when it has the place, and one \
                      second more for each 500 bytes that have come; then its client gets 408.",
            ..Self::TIMEOUTS_BODY
        },
    ];
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use forebay_upstream::settings::{ApplicationSettings, UpstreamAddress};
    use std::path::Path;

    fn number(lines: &str) -> u64 {
        let text = format!("[[cgi]]\npath = \"/cgi-bin\"\n{lines}");
        let config = parse(&text, "/etc/forebay.toml").unwrap();
        config.sites[0].cgi[0].launched().number()
    }

    #[test]
    fn what_is_run_differently_has_another_number() {
        let directory = "directory = \"/usr/lib/cgi-bin\"\n";
        let same = number(directory);
        assert_eq!(
            same,
            number(&format!("{directory}timeouts.head = \"1s\"\nerrors = \"ours\"\n"))
        );
        for other in [
            "directory = \"/usr/lib/other\"\n".to_owned(),
            "program = \"/usr/lib/cgi-bin\"\n".to_owned(),
            format!("{directory}user = \"cgi\"\n"),
            format!("{directory}set = {{ A = \"b\" }}\n"),
            format!("{directory}limits.time = \"1s\"\n"),
            format!("{directory}in_flight = 1\n"),
        ] {
            assert_ne!(same, number(&other), "{other}");
        }
    }

    #[test]
    fn the_launcher_is_asked_once_and_by_number() {
        let text =
            "[[cgi]]\npath = \"/git/\"\nprogram = \"/usr/bin/git-http\"\nset = { A = \"b\" }\n";
        let config = parse(text, "/etc/forebay.toml").unwrap();
        let applications = config.sites[0].applications(Path::to_owned);
        let [ApplicationSettings::FastCgi(settings)] = &applications[..] else { panic!() };
        assert_eq!(settings.request.program.as_deref(), Some(&b"/git"[..]));
        assert!(settings.request.set.is_empty() && !settings.request.keep);
        let group = &settings.group;
        assert_eq!((group.retries, group.max_fails, group.in_flight), (0, 0, Some(16)));
        let [UpstreamAddress::Launched(route)] = &group.to[..] else { panic!("{:?}", group.to) };
        assert_eq!(&*route.name, "cgi:/usr/bin/git-http");
    }
}
