//! Answers that are the same for every client, so that a keeper which has only their bytes can give them.
//!
//! In: an entry of the cache that has just answered. Out: the bytes of the answer in each coding, in the
//! order in which codings are preferred, or why the answer depends on more than that. `Date` and
//! `Connection` are left out. Whether rules of the policy, the listener or the log prevent this is not
//! known here.

use crate::answering::answer::{ChosenVariant, choose_by};
use crate::bodies::variant::Variant;
use crate::cache::entry::{Entry, EntryKind, FoundFile};
use crate::vhost::VirtualHost;
use forebay_conn::has_values;
use forebay_http::coding::{Coding, Preference};
use std::fmt;

/// An answer that depends only on the codings that the client accepts, and on the request's condition.
///
/// The client gets the form that it gives the highest weight, and of several such forms the first one
/// here. A coding that the client does not name is not accepted, except the identity, which then comes
/// last unless it is excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedAnswer {
    /// The forms of the answer, one for each coding at most, in the order of preference.
    pub forms: Vec<FixedForm>,
}

/// An answer in one coding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedForm {
    /// The coding.
    pub coding: Coding,
    /// The bytes; `None` where only the server can give this form: it is too long, or not made yet.
    pub bytes: Option<FixedBytes>,
}

/// The bytes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedBytes {
    /// Status line and fields of the 200, each with its CR LF; `Date`, `Connection` and the empty line are missing.
    pub head: Box<[u8]>,
    /// Status line and fields of the 304, in the same form.
    pub not_modified: Box<[u8]>,
    /// The body.
    pub body: Box<[u8]>,
    /// The entity tag, as `ETag` and `If-None-Match` have it.
    pub tag: Box<[u8]>,
}

/// Why an answer of the cache is not the same for every client, or cannot be kept elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotFixed {
    /// Access, password, another server, or an application decides which clients get the answer.
    Guarded,
    /// The site's rules for the path have conditions.
    Conditional,
    /// A field has a variable.
    Variables,
    /// Clients without TLS are sent elsewhere.
    ToHttps,
    /// The answer is a redirect.
    Redirect,
    /// The answer is a list of files.
    List,
    /// The answer is an error, with this status.
    Failure(u16),
    /// The query decides, or an application answers.
    Made,
    /// The file is in a coding by its name, or no order of codings tells which form a client gets.
    Codings,
    /// The body is sent from a file.
    OnDisk,
    /// The file was written less than two seconds ago: its tag is about to change.
    Young,
    /// Each form of the answer has more bytes than this limit.
    Large(usize),
    /// The cache has dropped the answer, or must check its file again.
    Gone,
}

impl fmt::Display for NotFixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotFixed::Guarded => {
                "[[access]], [[auth]], [[forward_auth]] or an application decides which clients get it"
            }
            NotFixed::Conditional => "rules of the site for its path have conditions",
            NotFixed::Variables => "a [[header]] gives it a value with a variable",
            NotFixed::ToHttps => "tls.redirect sends clients that come without TLS elsewhere",
            NotFixed::Redirect => "the answer is a redirect",
            NotFixed::List => "the answer is a list of files, which has several forms",
            NotFixed::Failure(status) => return write!(f, "the answer is an error ({status})"),
            NotFixed::Made => "the answer is made for each request",
            NotFixed::Codings => "its forms in codings have no order of preference",
            NotFixed::OnDisk => "the body is sent from its file, not from memory",
            NotFixed::Young => "the file was written less than two seconds ago",
            NotFixed::Large(most) => {
                return write!(f, "head and body have more than {most} bytes in each form");
            }
            NotFixed::Gone => "the cache must look at the file again",
        })
    }
}

/// The answer that `entry` gives, or `inner` if an alias leads there. A form is left to the server if its
/// head, with `added_bytes` for the missing fields, and its body have more than `most_bytes` together.
///
/// # Errors
/// The reason why the answer is not fixed.
pub(crate) fn fixed_answer(
    vhost: &VirtualHost,
    entry: &Entry,
    inner: Option<&Entry>,
    (added_bytes, most_bytes): (usize, usize),
) -> Result<FixedAnswer, NotFixed> {
    if vhost.to_https.is_some() {
        return Err(NotFixed::ToHttps);
    }
    let answers = inner.unwrap_or(entry);
    if entry.guard.is_some() || answers.guard.is_some() {
        return Err(NotFixed::Guarded);
    }
    let found = file_of(answers)?;
    let fits = |variant: &&Variant| {
        variant.size <= most_bytes as u64
            && variant.head().len() + added_bytes + variant.size as usize <= most_bytes
    };
    let mut forms = Vec::new();
    for chosen in in_order(found).ok_or(NotFixed::Codings)? {
        let bytes = match chosen.index {
            Some(index) => found.variant(index).filter(fits).map(FixedBytes::of).transpose()?,
            None => None,
        };
        forms.push(FixedForm { coding: chosen.coding, bytes });
    }
    match forms.iter().any(|form| form.bytes.is_some()) {
        true => Ok(FixedAnswer { forms }),
        false => Err(NotFixed::Large(most_bytes)),
    }
}

/// The file that an entry answers with.
fn file_of(entry: &Entry) -> Result<&FoundFile, NotFixed> {
    let found = match &entry.what {
        EntryKind::Found(found) => found,
        EntryKind::Conditional(_) => return Err(NotFixed::Conditional),
        EntryKind::Redirect(_) => return Err(NotFixed::Redirect),
        EntryKind::Missing => return Err(NotFixed::Failure(404)),
        EntryKind::Denied => return Err(NotFixed::Failure(403)),
        EntryKind::Failed(status) => return Err(NotFixed::Failure(*status)),
        EntryKind::Page(page) => return Err(NotFixed::Failure(page.status)),
        EntryKind::Work | EntryKind::Script(_) | EntryKind::Alias(_) => return Err(NotFixed::Made),
    };
    match found.status {
        200 if found.is_file => Ok(found),
        200 => Err(NotFixed::List),
        status => Err(NotFixed::Failure(status)),
    }
}

/// The form that a client gets.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChosenForm {
    coding: Coding,
    /// The variant; `None` if it must be made.
    index: Option<usize>,
}

/// The forms that clients get, in the order of preference; `None` if there is no such order. It is found
/// by asking for each set of codings, so that the rules of the choice are in one place.
fn in_order(found: &FoundFile) -> Option<Vec<ChosenForm>> {
    if found.identity.coding != Coding::Identity {
        return None;
    }
    let chosen = |named: &[Coding]| match choose_by(found, &Preference::naming(named.to_vec())) {
        ChosenVariant::Variant(index) => {
            Some(ChosenForm { coding: found.variant(index)?.coding, index: Some(index) })
        }
        ChosenVariant::Make(place) => {
            let coding = found.on_demand.as_ref()?.coding(place)?;
            Some(ChosenForm { coding, index: None })
        }
        ChosenVariant::None => None,
    };
    let mut named = Coding::ALL.to_vec();
    let mut forms: Vec<ChosenForm> = Vec::new();
    while !named.is_empty() {
        let next = chosen(&named)?;
        // the identity is sent unnamed only where no named coding exists
        let Some(at) = named.iter().position(|coding| *coding == next.coding) else { break };
        named.remove(at);
        forms.push(next);
    }
    let of_identity = forms.iter().find(|form| form.coding == Coding::Identity).copied()?;
    let agrees = |bits: u8| {
        let named = Coding::ALL.into_iter().filter(|coding| bits & 1 << *coding as u8 != 0);
        let named: Vec<_> = named.collect();
        let first = forms.iter().find(|form| named.contains(&form.coding));
        chosen(&named) == Some(*first.unwrap_or(&of_identity))
    };
    (0..1 << Coding::ALL.len()).all(agrees).then_some(forms)
}

impl FixedBytes {
    fn of(variant: &Variant) -> Result<FixedBytes, NotFixed> {
        let body = variant.memory().ok_or(NotFixed::OnDisk)?;
        if variant.is_young() {
            return Err(NotFixed::Young);
        }
        if has_values(variant.head()) || has_values(&variant.not_modified) {
            return Err(NotFixed::Variables);
        }
        Ok(FixedBytes {
            head: variant.head().into(),
            not_modified: variant.not_modified.clone(),
            body: body.into(),
            tag: variant.tag.text.clone(),
        })
    }
}
