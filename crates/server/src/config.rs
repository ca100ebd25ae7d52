//! The configuration: what may be set, what it is set to, and what is wrong with a file.
//!
//! There is one table of settings ([`SETTINGS`](table::SETTINGS)). Parsing, defaults, range checks
//! and `forebay check --print` all come from it; to add a setting, add a field to [`Config`] and a
//! row to the table.
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | the settings: key, type, range, default, meaning |
//! | [`value`] | what every type of setting can do, and the plain ones |
//! | [`address`], [`choice`] | the types that are addresses, and those that are words |
//! | [`units`] | durations, sizes and rates as people write them |
//! | [`read`] | a TOML text into a [`Config`], or everything that is wrong with it |
//! | [`problem`] | one thing that is wrong, and the line that says so |

pub mod address;
pub mod choice;
pub mod problem;
pub mod read;
pub mod table;
pub mod units;
pub mod value;

pub use address::{Listen, Loopback};
pub use choice::{Access, Engine, FieldValue, LogFormat};
pub use problem::{Problem, Wrong};
pub use read::{load, parse};
pub use units::{Rate, Size};
pub use value::Count;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Preset;

/// Everything that can be configured, typed. What each field means, its range and its default
/// stand in [`table::SETTINGS`] under the same path.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `listen`
    pub listen: Vec<Listen>,
    /// `engine`
    pub engine: Engine,
    /// `workers`; `auto` is one per usable core
    pub workers: Count,
    /// `root`
    pub root: PathBuf,
    /// `index`
    pub index: Vec<String>,
    /// `server_header`
    pub server_header: bool,
    /// `cache_control`
    pub cache_control: FieldValue,
    /// `precompressed`
    pub precompressed: bool,
    /// `sample`: every so many requests one is timed; 0 is never
    pub sample: u64,
    /// `timeouts.*`
    pub timeouts: Timeouts,
    /// `limits.*`
    pub limits: Limits,
    /// `cache.*`
    pub cache: Cache,
    /// `log.*`
    pub log: Log,
    /// `admin.*`
    pub admin: Admin,
    /// `helpers.*`
    pub helpers: Helpers,
}

/// How long is waited for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeouts {
    /// `timeouts.head`
    pub head: Duration,
    /// `timeouts.body`
    pub body: Duration,
    /// `timeouts.idle`
    pub idle: Duration,
    /// `timeouts.job`
    pub job: Duration,
    /// `timeouts.send_window`
    pub send_window: Duration,
    /// `timeouts.drain`
    pub drain: Duration,
}

/// How much a client may ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// `limits.head_bytes`
    pub head_bytes: Size,
    /// `limits.head_lines`
    pub head_lines: u64,
    /// `limits.target_bytes`
    pub target_bytes: Size,
    /// `limits.body_bytes`
    pub body_bytes: Size,
    /// `limits.connections`; `auto` is what the descriptor limit allows
    pub connections: Count,
    /// `limits.connections_per_client`; `auto` is half of `connections`
    pub connections_per_client: Count,
    /// `limits.requests_per_connection`; 0 is no limit
    pub requests_per_connection: u64,
    /// `limits.send_rate`; 0 is no minimum
    pub send_rate: Rate,
}

/// What is kept in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cache {
    /// `cache.bytes`; 0 is no data cache
    pub bytes: Size,
    /// `cache.file_bytes`
    pub file_bytes: Size,
    /// `cache.open_files`
    pub open_files: u64,
    /// `cache.check_interval`
    pub check_interval: Duration,
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// `log.access`
    pub access: Access,
    /// `log.format`
    pub format: LogFormat,
}

/// The admin listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admin {
    /// `admin.listen`
    pub listen: Loopback,
}

/// Threads for work that may block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Helpers {
    /// `helpers.threads`, for all loops together
    pub threads: u64,
}

impl Default for Config {
    /// Every setting at the default of its row. `root` has none and is empty.
    fn default() -> Config {
        let mut config = Config {
            listen: Vec::new(),
            engine: Engine::default(),
            workers: Count::Auto,
            root: PathBuf::new(),
            index: Vec::new(),
            server_header: false,
            cache_control: FieldValue::default(),
            precompressed: false,
            sample: 0,
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            cache: Cache::default(),
            log: Log::default(),
            admin: Admin::default(),
            helpers: Helpers::default(),
        };
        for setting in table::SETTINGS {
            if let Preset::Value(default) = setting.preset {
                // a test sets every default, so that no row can hold one that is not accepted
                let accepted = setting.set(&mut config, default);
                debug_assert!(accepted.is_ok(), "{}", setting.key);
            }
        }
        config
    }
}

impl Config {
    /// All settings as TOML that [`parse`] reads back to the same configuration, each under a
    /// comment that says what it means.
    pub fn to_toml(&self) -> String {
        let mut config = self.clone();
        let mut text = String::new();
        let mut section = "";
        for setting in table::SETTINGS {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            if setting.section() != section {
                section = setting.section();
                text.push_str(&format!("[{section}]\n"));
            }
            let value = (setting.at)(&mut config).show();
            text.push_str(&format!("{}\n{} = {value}\n", setting.comment(), setting.name()));
        }
        text
    }

    /// Makes relative paths relative to `directory`.
    fn rebase(&mut self, directory: &Path) {
        // taking a path apart leaves out each "." within it
        let join = |path: &Path| directory.join(path).components().collect();
        if !self.root.as_os_str().is_empty() {
            self.root = join(&self.root);
        }
        if let Access::File(path) = &mut self.log.access {
            *path = join(path);
        }
    }

    /// What the file system lacks for this configuration: the setting's key and what is wrong.
    pub fn missing_files(&self) -> Vec<(&'static str, Wrong)> {
        let mut directories = vec![("root", self.root.as_path())];
        if let Access::File(path) = &self.log.access {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            directories.push(("log.access", parent.unwrap_or(Path::new("."))));
        }
        let wrong = directories.into_iter().filter_map(|(key, path)| {
            let error = check_directory(path).err()?;
            Some((key, Wrong::NoDirectory { path: path.to_owned(), error }))
        });
        wrong.collect()
    }
}

fn check_directory(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}
