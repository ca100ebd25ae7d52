//! DNS records by which an authority validates a name (dns-01, RFC 8555 §8.4), and how none is left behind.
//!
//! A record is noted in a file before it is made, and stays noted until it is removed. So the next server
//! that looks finds what a crash has left.

use crate::order_failure::{OrderFailure, Why};
use crate::storage::{self, Names, Storage};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What the hook must do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// Make the record, beside others of the same name.
    Present,
    /// Remove the record, if it is there.
    CleanUp,
}

impl RecordAction {
    /// The word for commands.
    pub fn word(self) -> &'static str {
        match self {
            RecordAction::Present => "present",
            RecordAction::CleanUp => "cleanup",
        }
    }
}

/// A DNS record of type TXT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeRecord {
    /// The host that is validated, without a star.
    pub host: String,
    /// The name of the record.
    pub name: String,
    /// The value of the record.
    pub value: String,
    /// The token from which the value is made.
    pub token: String,
    /// The account that orders the certificate.
    pub account: String,
}

impl ChallengeRecord {
    pub(crate) fn new(host: &str, value: String, token: &str, account: &str) -> ChallengeRecord {
        ChallengeRecord {
            host: host.to_owned(),
            name: format!("_acme-challenge.{host}"),
            value,
            token: token.to_owned(),
            account: account.to_owned(),
        }
    }
}

/// The record, as in a zone file, by which the operator allows an account to have certificates for a host,
/// and with `has_wildcard` for its wildcard (draft-ietf-acme-dns-persist-01 §3).
pub(crate) fn persistent(
    host: &str,
    issuer: Option<&str>,
    account: &str,
    has_wildcard: bool,
) -> String {
    let issuer = issuer.unwrap_or("NAME-OF-THE-AUTHORITY");
    let policy = if has_wildcard { "; policy=wildcard" } else { "" };
    format!("_validation-persist.{host}. TXT \"{issuer}; accounturi={account}{policy}\"")
}

/// A function that makes or removes a record; the error says why it could not. It may be called again for
/// what it has done already.
pub type RecordHook<'h> = &'h dyn Fn(RecordAction, &ChallengeRecord) -> Result<(), String>;

/// Notes these records, and makes them.
pub(crate) fn present(
    storage: &Storage,
    names: &Names,
    records: &[ChallengeRecord],
    hook: Option<RecordHook<'_>>,
) -> Result<(), OrderFailure> {
    let Some(hook) = hook else {
        let words = "there is no command that makes records of the name service (acme.dns_hook)";
        return Err(OrderFailure::new(Why::Hook, words));
    };
    let file = storage.records(names);
    // records that could not be removed earlier stay noted
    let mut all = read(&file)?;
    all.retain(|left| !records.contains(left));
    all.extend_from_slice(records);
    write(&file, &all)?;
    for record in records {
        hook(RecordAction::Present, record).map_err(|why| {
            let words = format!("acme.dns_hook has not made {}: {why}", record.name);
            OrderFailure::new(Why::Hook, words)
        })?;
    }
    Ok(())
}

/// Removes the records that are noted in this file, and then the file. Returns whether none is left. The lock
/// must be held.
pub(crate) fn clean_up(file: &Path, hook: Option<RecordHook<'_>>) -> Result<bool, OrderFailure> {
    if !file.exists() {
        return Ok(true);
    }
    let Some(hook) = hook else { return Ok(false) };
    let records = read(file)?;
    let left: Vec<_> = records
        .iter()
        .filter(|record| hook(RecordAction::CleanUp, record).is_err())
        .cloned()
        .collect();
    match left.is_empty() {
        true => storage::remove(file).map_err(|error| OrderFailure::storage(file, &error))?,
        false if left.len() < records.len() => write(file, &left)?,
        false => {}
    }
    Ok(left.is_empty())
}

/// The files in which records are noted.
pub(crate) fn noted(storage: &Storage) -> Vec<PathBuf> {
    storage.with_ending(storage::RECORDS)
}

/// The noted records. A file that cannot be parsed counts as having none.
fn read(file: &Path) -> Result<Vec<ChallengeRecord>, OrderFailure> {
    let noted = storage::read(file).map_err(|error| OrderFailure::storage(file, &error))?;
    Ok(noted.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
}

fn write(file: &Path, records: &[ChallengeRecord]) -> Result<(), OrderFailure> {
    let text = serde_json::to_vec(records)
        .map_err(|error| OrderFailure::new(Why::Storage, error.to_string()))?;
    storage::write(file, &text).map_err(|error| OrderFailure::storage(file, &error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;
    use std::cell::RefCell;
    use std::fs;

    #[test]
    fn a_record_that_stays_names_authority_and_account() {
        let record = |star| persistent("a.example", Some("acme.example"), "https://b/1", star);
        let name = "_validation-persist.a.example. TXT";
        let value = "acme.example; accounturi=https://b/1";
        assert_eq!(record(false), format!("{name} \"{value}\""));
        assert_eq!(record(true), format!("{name} \"{value}; policy=wildcard\""));
    }

    #[test]
    fn what_is_made_is_removed_and_what_cannot_be_stays_noted() {
        let base = std::env::temp_dir().join(format!("forebay-records-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let storage = Storage::new(&base, "https://acme.example/directory");
        storage.make().unwrap();
        let names = Names::new(["*.a.example", "a.example"]);
        let record =
            |value: &str| ChallengeRecord::new("a.example", value.to_owned(), "token", "account");
        let records = [record("one"), record("two")];
        assert_eq!(records[0].name, "_acme-challenge.a.example");
        let seen = RefCell::new(Vec::new());
        let fails = RefCell::new(vec!["present two", "cleanup one"]);
        let hook = |action: RecordAction, record: &ChallengeRecord| {
            let what = format!("{} {}", action.word(), record.value);
            let failed = fails.borrow().contains(&&*what);
            seen.borrow_mut().push(what);
            if failed { Err("for a reason".to_owned()) } else { Ok(()) }
        };
        let failure = present(&storage, &names, &records, Some(&hook)).unwrap_err();
        assert_eq!(failure.why, Why::Hook);
        let words = "acme.dns_hook has not made _acme-challenge.a.example: for a reason";
        assert_eq!(failure.reason, words);
        // a process that ends here leaves the file
        let [file] = &noted(&storage)[..] else { panic!("nothing is noted") };
        assert_eq!(*file, storage.records(&names));
        assert!(!file.to_string_lossy().contains('*'));
        assert!(!clean_up(file, None).unwrap());
        assert!(!clean_up(file, Some(&hook)).unwrap());
        assert_eq!(read(file).unwrap(), [record("one")]);
        fails.borrow_mut().remove(0);
        // a record that is left stays noted when new ones are
        present(&storage, &names, &records[1..], Some(&hook)).unwrap();
        assert_eq!(read(file).unwrap(), records);
        fails.borrow_mut().clear();
        assert!(clean_up(file, Some(&hook)).unwrap());
        assert!(clean_up(file, Some(&hook)).unwrap(), "there is nothing");
        let expected = [
            "present one",
            "present two",
            "cleanup one",
            "cleanup two",
            "present two",
            "cleanup one",
            "cleanup two",
        ];
        assert_eq!(*seen.borrow(), expected);
        assert!(noted(&storage).is_empty());
        let failure = present(&storage, &names, &records, None).unwrap_err();
        assert_eq!(failure.why, Why::Hook);
        fs::remove_dir_all(base).unwrap();
    }
}
