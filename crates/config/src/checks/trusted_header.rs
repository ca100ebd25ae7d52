//! Checks of the field in which proxies name their clients: it must mean nothing else.

use crate::problems::path::Path as At;
use crate::problems::problem::Wrong;
use crate::reading::draft::ConfigDraft;
use forebay_http::forwarded::ForwardedFamily;
use forebay_upstream::{is_forwarding, is_own};

/// The longest field name that leaves room for the fields that stages add.
const MOST_BYTES: usize = 64;

/// Fields that every client sends, and that say something else.
const OTHERS: [&str; 4] = ["cookie", "authorization", "user-agent", "referer"];

impl ConfigDraft {
    /// Checks that the field that names clients has no other meaning, and that it is the only such field.
    pub(crate) fn check_trusted_header(&self, wrong: &mut Vec<(At, Wrong)>) {
        let Some(name) = &self.process.trusted_header else { return };
        let text = name.as_str();
        let reason = match () {
            () if name.is("x-forwarded-for") => {
                "X-Forwarded-For counts without that, as a list that proxies add to: leave this out"
            }
            () if name.is("forwarded") => "write forwarded = \"forwarded\" instead",
            () if is_own(text) || OTHERS.iter().any(|other| name.is(other)) => {
                "this field means something else"
            }
            () if is_forwarding(text) && !name.is("x-real-ip") => {
                "this field has no address of a client"
            }
            () if text.len() > MOST_BYTES => "no more than 64 characters, please",
            () if self.process.forwarded == ForwardedFamily::Forwarded => {
                "forwarded = \"forwarded\" has Forwarded say who clients are; leave one of the two out"
            }
            () => return,
        };
        let wrong_one = Wrong::Unfit { found: text.to_owned(), reason: reason.to_owned() };
        wrong.push((At::default().child("trusted_header"), wrong_one));
    }
}
