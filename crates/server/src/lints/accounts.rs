//! Users and groups that this machine does not know, and stages that would keep the privileges of root.

use super::LintSubject;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{Account, Remarks};
use forebay_sys::{privileges, process};
use std::fmt;

/// A remark about a user or a group.
#[derive(Debug)]
enum AccountRemark {
    /// An account that this machine does not have.
    NoAccount {
        /// `user` or `group`.
        kind: &'static str,
        /// The name of the account.
        name: String,
    },
    /// A user given as a number without a name, and no group.
    NoGroup,
    /// Stages that keep the privileges of root.
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

/// Finds a user or group that this machine does not know. It is a warning, because the server may
/// run on another machine.
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
    // the server ignores the group if there is no user
    if let Some(name) = group.as_ref().filter(|_| user.is_some()).map(Account::as_str)
        && !is_number(name)
        && let Ok(None) = privileges::group(name)
    {
        remark("group", unknown("group", name));
    }
}

/// Finds stages that would keep the privileges of root. A server whose file is checked by root is
/// assumed to be started by root.
pub(super) fn root(of: &LintSubject<'_>, remarks: &mut Remarks) {
    if of.draft.is_isolated() && of.draft.process.user.is_none() && process::user() == 0 {
        remarks.push((At::default().child("user"), Wrong::said(AccountRemark::RootStages)));
    }
}
