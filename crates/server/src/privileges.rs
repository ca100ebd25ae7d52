//! The switch from root to the user of the configuration, once and for good, before there are threads.
//!
//! Everything that only root can do comes first: sockets are bound, and missing log files are made
//! and given to that user.

use crate::listen::Listeners;
use forebay_config::{AccessLog, Account, Config, GateMode, SiteConfig};
use forebay_sys::privileges::{self, KeptPrivileges, SystemUser};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown, lchown};
use std::path::{Path, PathBuf};
use std::{fmt, slice};

/// The reason why the process cannot switch to the user of the configuration.
#[derive(Debug)]
pub enum PrivilegeError {
    /// This machine has no such user.
    NoUser {
        /// The name or number.
        name: String,
    },
    /// This machine has no such group.
    NoGroup {
        /// The name or number.
        name: String,
    },
    /// A user is given as a number without a name, so the group is unknown.
    GroupMissing {
        /// The number.
        user: String,
    },
    /// Only root can switch to another user.
    NotRoot {
        /// The user.
        name: String,
    },
    /// A log file cannot be made for the user.
    Log {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The directory of certificates by ACME cannot be made for the user.
    Storage {
        /// The directory.
        path: PathBuf,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The kernel refuses the switch.
    Refused {
        /// The error of the kernel.
        error: io::Error,
    },
}

impl fmt::Display for PrivilegeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrivilegeError::NoUser { name } => {
                write!(f, "user: there is no user {name:?} on this machine")
            }
            PrivilegeError::NoGroup { name } => {
                write!(f, "group: there is no group {name:?} on this machine")
            }
            PrivilegeError::GroupMissing { user } => {
                write!(f, "group: must be set, because user is a number without a name, {user}")
            }
            PrivilegeError::NotRoot { name } => write!(
                f,
                "user: only root can become {name}; start the server as root, or as {name} and \
                 without this setting"
            ),
            PrivilegeError::Log { path, error } => {
                write!(f, "log.access: cannot make {} for the user: {error}", path.display())
            }
            PrivilegeError::Storage { path, error } => {
                write!(f, "acme.storage: cannot make {} for the user: {error}", path.display())
            }
            PrivilegeError::Refused { error } => write!(f, "cannot give up privileges: {error}"),
        }
    }
}

impl std::error::Error for PrivilegeError {}

fn refused(error: io::Error) -> PrivilegeError {
    PrivilegeError::Refused { error }
}

/// Switches to the user of `config`, if it names one, and gives up all other rights of root. The
/// open `listeners` and the `files` are given to that user.
///
/// # Errors
/// [`PrivilegeError`]; the process must then end.
pub fn drop_to_user(
    config: &Config,
    listeners: &mut Listeners,
    files: &[&Path],
) -> Result<(), PrivilegeError> {
    let kept = match config.gate {
        GateMode::Off => KeptPrivileges::Binding,
        GateMode::Auto | GateMode::Address | GateMode::Full => KeptPrivileges::BindingAndGate,
    };
    if let Some(user) = another(config)? {
        listeners.give(user.user, user.group).map_err(refused)?;
        for path in files {
            lchown(path, Some(user.user), Some(user.group)).map_err(refused)?;
        }
        for path in logs(config) {
            make_log(path, &user)
                .map_err(|error| PrivilegeError::Log { path: path.to_owned(), error })?;
        }
        make_storage(config, Some(&user))?;
        privileges::become_user(&user, kept).map_err(refused)?;
    } else {
        make_storage(config, None)?;
        if privileges::current().0 != 0 {
            privileges::keep_only(kept).map_err(refused)?;
        }
    }
    privileges::gain_nothing().map_err(refused)
}

/// The user of `config`, if this process runs as another user and may switch.
///
/// # Errors
/// [`PrivilegeError`] if there is no such user, or the process may not switch.
pub(crate) fn another(config: &Config) -> Result<Option<SystemUser>, PrivilegeError> {
    let Some(account) = &config.user else { return Ok(None) };
    let user = user_of(account, config.group.as_ref())?;
    if (user.user, user.group) == privileges::current() {
        return Ok(None);
    }
    match privileges::may_become_another() {
        true => Ok(Some(user)),
        false => Err(PrivilegeError::NotRoot { name: account.as_str().to_owned() }),
    }
}

/// A user by name or number, in the given group or the user's own.
///
/// # Errors
/// [`PrivilegeError`] if this machine does not know the user or the group.
pub(crate) fn user_of(
    user: &Account,
    group: Option<&Account>,
) -> Result<SystemUser, PrivilegeError> {
    let name = user.as_str();
    let found = privileges::user(name).map_err(refused)?;
    let group = match group {
        Some(group) => Some(group_of(group)?),
        None => None,
    };
    match (found, name.parse(), group) {
        (Some(user), _, None) => Ok(user),
        (Some(SystemUser { user, mut groups, group: own }), _, Some(group)) => {
            groups.retain(|other| *other != own);
            groups.push(group);
            Ok(SystemUser { user, group, groups })
        }
        (None, Ok(user), Some(group)) => Ok(SystemUser { user, group, groups: vec![group] }),
        (None, Ok(user), None) => Err(PrivilegeError::GroupMissing { user: u32::to_string(&user) }),
        (None, Err(_), _) => Err(PrivilegeError::NoUser { name: name.to_owned() }),
    }
}

fn group_of(group: &Account) -> Result<u32, PrivilegeError> {
    let name = group.as_str();
    let found = privileges::group(name).map_err(refused)?;
    found
        .or_else(|| name.parse().ok())
        .ok_or_else(|| PrivilegeError::NoGroup { name: name.to_owned() })
}

/// The files of all access logs.
pub(crate) fn logs(config: &Config) -> impl Iterator<Item = &Path> {
    let sites = config.sites.iter().map(|site| &site.log);
    sites.chain(slice::from_ref(&config.log)).filter_map(|log| match &log.access {
        AccessLog::File(path) => Some(path.as_path()),
        AccessLog::Off | AccessLog::Stdout => None,
    })
}

/// Makes a log file and gives it to the user. An existing file keeps its owner: another user may
/// have put it into a directory that others can write to.
fn make_log(path: &Path, user: &SystemUser) -> io::Result<()> {
    let made = OpenOptions::new().append(true).create_new(true).mode(0o640).open(path);
    match made {
        Ok(file) => give(&file, user),
        // whether the server can open it shows later
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the directory of certificates by ACME, with missing directories above it, and gives those
/// it makes to the user.
fn make_storage(config: &Config, user: Option<&SystemUser>) -> Result<(), PrivilegeError> {
    if !config.sites.iter().any(SiteConfig::has_acme) {
        return Ok(());
    }
    let storage = config.acme.files();
    let mut missing: Vec<&Path> = storage.directory().ancestors().collect();
    missing.retain(|path| !path.as_os_str().is_empty() && !path.exists());
    for path in missing.into_iter().rev() {
        let made = DirBuilder::new().mode(0o700).create(path);
        let given = made.and_then(|()| match user {
            Some(user) => lchown(path, Some(user.user), Some(user.group)),
            None => Ok(()),
        });
        given.map_err(|error| PrivilegeError::Storage { path: path.to_owned(), error })?;
    }
    Ok(())
}

fn give(file: &File, user: &SystemUser) -> io::Result<()> {
    fchown(file, Some(user.user), Some(user.group))
}
