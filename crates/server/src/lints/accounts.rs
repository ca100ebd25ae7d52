//! Users and groups that this machine does not know, and rights of root that stages would keep.

use super::LintSubject;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{Account, Remarks};
use forebay_sys::{privileges, process};
use std::fmt;

/// What is said of users and groups.
#[derive(Debug)]
enum AccountRemark {
    /// An account that this machine does not have.
    NoAccount {
        /// A user or a group.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A user that is a number without a name, and no group.
    NoGroup,
    /// Stages with the rights of root.
    RootStages,
}

impl Finding for AccountRemark {}

impl fmt::Display for AccountRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountRemark::NoAccount { kind, name } => write!(
                f,
                "there is no {kind} {name:?} on this machine; without it the server does not start"
            ),
            AccountRemark::NoGroup => write!(
                f,
                "no user of this machine has this number; without group beside it the server does \
                 not start"
            ),
            AccountRemark::RootStages => f.write_str(
                "is not set: started as root, the stages receive and respond keep its rights; \
                 name an account without rights",
            ),
        }
    }
}

/// A user or group that is not known here. The server may run on another machine.
pub(super) fn accounts(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let mut remark = |key, wrong| remarks.push((At::default().child(key), wrong));
    let unknown =
        |kind, name: &str| Wrong::said(AccountRemark::NoAccount { kind, name: name.to_owned() });
    let is_number = |name: &str| name.parse::<u32>().is_ok();
    let (user, group) = (&of.draft.process.user, &of.draft.process.group);
    if let Some(name) = user.as_ref().map(Account::as_str)
        && let Ok(None) = privileges::user(name)
    {
        match is_number(name) {
            false => remark("user", unknown("user", name)),
            true if group.is_none() => remark("user", Wrong::said(AccountRemark::NoGroup)),
            true => {}
        }
    }
    if let Some(name) = of.draft.process.acme.dns_user.as_ref().map(Account::as_str)
        && let Ok(None) = privileges::user(name)
    {
        remark("acme.dns_user", unknown("user", name));
    }
    // without a user the group is not asked for
    if let Some(name) = group.as_ref().filter(|_| user.is_some()).map(Account::as_str)
        && !is_number(name)
        && let Ok(None) = privileges::group(name)
    {
        remark("group", unknown("group", name));
    }
}

/// Stages that would keep the rights of root. The server of a file that root checks is started by root.
pub(super) fn root(of: &LintSubject<'_>, remarks: &mut Remarks) {
    if of.draft.is_isolated() && of.draft.process.user.is_none() && process::user() == 0 {
        remarks.push((At::default().child("user"), Wrong::said(AccountRemark::RootStages)));
    }
}
