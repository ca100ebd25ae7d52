//! Settings of static content.

use crate::rules::{
    AccessRule, Alias, Auth, ErrorPage, FileMediaType, GuardedPaths, HeaderRule, Host, Redirect,
    Rewrite, Route, Scope, Scripts, SiteName, TryFile, TryFiles, WorkHandler,
};
use forebay_conn::Hsts;
use forebay_http::coding::Coding;
use std::path::PathBuf;
use std::time::Duration;

/// The largest number of different conditions that the header rules and redirects of a site have.
pub const MOST_CONDITIONS: usize = u64::BITS as usize;

/// The sites, and the way their content is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentSettings {
    /// The sites. A request goes to the one that has its host, else to the one without hosts, of
    /// which there is at most one. Order has no meaning otherwise.
    pub sites: Vec<SiteSettings>,
    /// Whether answers to requests that are no site's carry `Server: Forebay`. Default: yes.
    pub server_header: bool,
    /// The settings of the cache.
    pub cache: CacheSettings,
    /// The process in which the sites' files are read. Default: this one.
    pub files: FilesLocation,
    /// Whether other software answers in the place of a stage of this server. Like applications, it
    /// may read path parameters as no part of a name. Default: no.
    pub is_answered_elsewhere: bool,
}

/// The process in which files are read: those that are served, error pages, users of passwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilesLocation {
    /// This process.
    #[default]
    Here,
    /// Another process, which has the same rules. All that needs a file is left to it. Here only
    /// [`Site::decide`](crate::Site::decide) is of use, and nothing is read.
    Behind,
    /// Another process, which has no rules. Here nothing is read, either, and rules are applied
    /// without files: errors have pages of our own.
    Elsewhere,
}

impl ContentSettings {
    /// One site for all hosts, with the defaults for a directory.
    pub fn new(root: impl Into<PathBuf>) -> ContentSettings {
        let sites = vec![SiteSettings::new(root)];
        ContentSettings {
            sites,
            server_header: true,
            cache: CacheSettings::default(),
            files: FilesLocation::Here,
            is_answered_elsewhere: false,
        }
    }
}

/// The settings of one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSettings {
    /// The site's name in logs, metrics and messages.
    pub name: SiteName,
    /// The hosts it answers for; without any it is the site of all hosts that no other has.
    pub hosts: Vec<Host>,
    /// The directory whose files are served. Relative to the working directory at start. A site
    /// without one answers 404 where no rule answers.
    pub root: Option<PathBuf>,
    /// Other directories beneath paths of the site. The longest path decides.
    pub aliases: Vec<Alias>,
    /// The targets of links in the root that may lead out of it, beneath the paths of these links.
    /// They are parts of the root: an application that runs files runs those there, too.
    pub links: Vec<Alias>,
    /// Files that answer for a directory, the first that exists. Plain names. Default: `index.html`.
    pub index: Vec<String>,
    /// Whether answers carry `Server: Forebay`. Default: yes.
    pub server_header: bool,
    /// Whether paths with a segment that begins with a dot are served. `/.well-known/` always is.
    /// Default: no.
    pub hidden: bool,
    /// Whether `NAME.br`, `NAME.zst` and `NAME.gz` beside a file are sent to clients that prefer
    /// them. Default: yes.
    pub precompressed: bool,
    /// Codings into which compressible files are turned when they are asked for; the first that a
    /// client likes best. Default: br, zstd, gzip.
    pub compress: Vec<Coding>,
    /// The largest file or list that is compressed, in bytes. At most a sixteenth of
    /// [`CacheSettings::bytes`] counts, as the outcome is kept there. Default: 4 MiB.
    pub compress_bytes: u64,
    /// The source of files' entity tags. Default: the bytes of files up to
    /// [`CacheSettings::file_bytes`], and size and times of larger ones.
    pub etag: EtagMode,
    /// The types of files by their endings. They go before the built-in ones.
    pub types: Vec<FileMediaType>,
    /// Directories that are answered with a list of their files if they have no index. Default: none.
    pub listing: Vec<Scope>,
    /// Files that only grow: an answer that has begun goes on though its file grows meanwhile.
    /// Default: none.
    pub appended: Vec<Scope>,
    /// The value of `Cache-Control` in answers with content; `None` for no such field, and then
    /// browsers guess how long an answer holds. Default: `no-cache`, by which they ask each time.
    pub cache_control: Option<String>,
    /// The places where a file is looked for. Default: the path itself.
    pub try_files: TryFiles,
    /// The paths that are looked for only at the path itself.
    pub try_files_except: Vec<Scope>,
    /// The Strict-Transport-Security field for clients that come through TLS. Default: none.
    pub hsts: Option<Hsts>,
    /// The redirect of clients that do not come through TLS. Default: none.
    pub to_https: Option<ToHttps>,
    /// Files that stand for errors, one for each status at most.
    pub errors: Vec<ErrorPage>,
    /// Redirects; the first that fits decides.
    pub redirects: Vec<Redirect>,
    /// Rewrites; the first that fits decides.
    pub rewrites: Vec<Rewrite>,
    /// Header rules; all that fit are applied, in order.
    pub headers: Vec<HeaderRule>,
    /// Paths that are protected by passwords; the first that fits decides.
    pub auth: Vec<Auth>,
    /// Rules about clients' addresses; all that fit must admit a client.
    pub access: Vec<AccessRule>,
    /// Paths for which another server is asked whether a request may pass; the first that fits decides.
    pub asks: Vec<GuardedPaths>,
    /// Paths whose files are sent only at the request of applications; clients get 404 there.
    pub internal: Vec<Scope>,
    /// Paths of the handler `work`; the first that fits decides.
    pub work: Vec<WorkHandler>,
    /// The paths that applications answer, by the application's number: see
    /// [`route_of`](crate::route_of).
    pub routes: Vec<Route>,
}

impl SiteSettings {
    /// The defaults for a directory, for all hosts.
    pub fn new(root: impl Into<PathBuf>) -> SiteSettings {
        SiteSettings { root: Some(root.into()), ..SiteSettings::default() }
    }

    /// Whether the directory with this path is answered with a list of its files.
    pub(crate) fn lists(&self, directory: &[u8]) -> bool {
        self.listing.iter().any(|scope| scope.contains(directory))
    }

    /// Whether the file at this path only grows.
    pub(crate) fn grows(&self, file: &[u8]) -> bool {
        self.appended.iter().any(|scope| scope.contains(file))
    }

    /// Whether some application runs files.
    pub(crate) fn has_scripts(&self) -> bool {
        self.routes.iter().any(|route| route.scripts.is_some())
    }

    /// The files that the application of a route runs, if it runs any.
    pub(crate) fn scripts(&self, route: u32) -> Option<&Scripts> {
        self.routes.get(route as usize)?.scripts.as_ref()
    }

    /// Whether files answer first beneath a route.
    pub(crate) fn looks_first(&self, route: u32) -> bool {
        self.routes.get(route as usize).is_some_and(|route| route.files_first)
    }

    /// The places where a file is looked for if `path` is asked for; if empty, only there.
    pub(crate) fn candidates(&self, path: &[u8]) -> &[TryFile] {
        match self.try_files_except.iter().any(|scope| scope.contains(path)) {
            true => &[],
            false => self.try_files.candidates(),
        }
    }
}

impl Default for SiteSettings {
    /// The defaults, without a directory.
    fn default() -> SiteSettings {
        SiteSettings {
            name: SiteName::of(&[]),
            hosts: Vec::new(),
            root: None,
            aliases: Vec::new(),
            links: Vec::new(),
            index: vec!["index.html".to_owned()],
            hidden: false,
            precompressed: true,
            compress: vec![Coding::Br, Coding::Zstd, Coding::Gzip],
            compress_bytes: 4 << 20,
            etag: EtagMode::default(),
            types: Vec::new(),
            listing: Vec::new(),
            appended: Vec::new(),
            server_header: true,
            cache_control: Some("no-cache".to_owned()),
            try_files: TryFiles::default(),
            try_files_except: Vec::new(),
            hsts: None,
            to_https: None,
            errors: Vec::new(),
            redirects: Vec::new(),
            rewrites: Vec::new(),
            headers: Vec::new(),
            auth: Vec::new(),
            access: Vec::new(),
            asks: Vec::new(),
            internal: Vec::new(),
            work: Vec::new(),
            routes: Vec::new(),
        }
    }
}

/// The source of files' entity tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EtagMode {
    /// The bytes of files up to [`CacheSettings::file_bytes`]; size, time of modification and time
    /// of change of larger ones.
    #[default]
    Auto,
    /// The bytes, however many: a larger file is read when it is first asked for.
    Content,
    /// Size and times, so that no file is read for it.
    Stat,
    /// Size and times, in weak tags: good for 304, but no part of a file is sent by them
    /// (`If-Range`), and no download is continued.
    Weak,
}

impl EtagMode {
    /// Whether a file of `bytes` has a tag of its content.
    pub(crate) fn is_of_content(self, bytes: u64, file_bytes: u64) -> bool {
        match self {
            EtagMode::Auto => bytes <= file_bytes,
            EtagMode::Content => true,
            EtagMode::Stat | EtagMode::Weak => false,
        }
    }
}

/// The redirect to the same address with https. The answers for authorities that make certificates
/// (`/.well-known/acme-challenge/`) stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToHttps {
    /// 301 or 308.
    pub status: u16,
    /// The port where TLS is spoken. Clients that have come to a proxy without TLS are sent to the
    /// [usual port](ToHttps::USUAL_PORT).
    pub port: u16,
}

impl ToHttps {
    /// The port of an `https` address that names none (RFC 9110 §4.2.2).
    pub const USUAL_PORT: u16 = 443;
}

/// The settings of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Bytes of answers kept in memory; 0 switches the cache off, then every request goes to the
    /// file system. Default: 256 MiB.
    pub bytes: u64,
    /// Bytes of files in memory for answers that the cache does not hold: those on their way to
    /// clients. When they are used up, files are sent by sendfile. Default: 256 MiB.
    pub in_flight_bytes: u64,
    /// The largest file kept in memory, in bytes. Larger ones are kept open and sent by sendfile.
    /// At most a sixteenth of [`bytes`](CacheSettings::bytes) counts. Default: 512 KiB, where
    /// sending from memory stops being cheaper (`BENCHMARKING.md`).
    pub file_bytes: u64,
    /// The size of pieces in which bodies in memory are given to the kernel. A body that is longer,
    /// and at most twice as long, is sent in two pieces of about this size. 0: each body as a
    /// whole. The processor decides which is cheaper (`BENCHMARKING.md`). Default: 0.
    pub segment_bytes: u64,
    /// The approximate number of files kept open; each takes its part of
    /// [`bytes`](CacheSettings::bytes). At least 1. Default: 1024.
    pub open_files: u32,
    /// The largest number of pipes for bodies that are sent once and not kept; each takes two
    /// descriptors. 0 reads all into memory. Default: 64.
    pub pipes: u32,
    /// The age at which an answer's file is looked at again where changes are not reported: on
    /// network file systems, for hard links, with more directories than can be watched. Where they
    /// are reported, a file is looked at after ten times as long. 0 looks at every request.
    /// Default: 1 s.
    pub check_interval: Duration,
    /// Directories watched for changes, those on the root's path included; 0 watches none, then
    /// only the interval holds. Default: 8192.
    pub watched_directories: usize,
}

impl Default for CacheSettings {
    fn default() -> CacheSettings {
        CacheSettings {
            bytes: 256 << 20,
            in_flight_bytes: 256 << 20,
            file_bytes: 512 << 10,
            segment_bytes: 0,
            open_files: 1024,
            pipes: 64,
            check_interval: Duration::from_secs(1),
            watched_directories: 8192,
        }
    }
}
