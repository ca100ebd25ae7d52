//! The types of a site and of a rule as settings: `forebay_site` or `forebay_policy` reads each, and says
//! what is wrong with a text.

use crate::problems::problem::Wrong;
use crate::problems::quoted::{quote, show_list};
use crate::values::member::{Member, NOT_CHOSEN};
use crate::values::value::{Form, TableEntry, TableOf, Value, Written, status};
use crate::{LogCondition, Redacted};
use forebay_http::coding::Coding;
use forebay_policy::certificate::CertificatePattern;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::field::FieldCondition;
use forebay_policy::identity::IdentityPattern;
use forebay_policy::pattern::{FileType, MethodPattern, PathPattern, SitePattern};
use forebay_policy::query::Parameter;
use forebay_policy::rate::Rate;
use forebay_site::rules::{
    ErrorPage, FieldName, FieldValue, FileMediaType, Host, MediaPattern, MountPath, Network,
    Pattern, Realm, Redirect, Scope, SiteName, Template, TryFile, TryFiles, User,
};
use std::fmt::Display;

/// The fault of a text, with the reason that its reader gives.
pub(crate) fn unfit(text: &str, reason: impl Display) -> Wrong {
    Wrong::Unfit { found: quote(text), reason: reason.to_string() }
}

/// Implements [`Written`] for a type that has `parse` and `Display`.
macro_rules! written {
    ($type:ty, $expected:literal) => {
        impl Written for $type {
            const EXPECTED: &'static str = $expected;
            fn read(text: &str) -> Result<$type, Wrong> {
                <$type>::parse(text).map_err(|error| $crate::values::written::unfit(text, error))
            }
            fn text(&self) -> String {
                self.to_string()
            }
        }
    };
}

pub(crate) use written;

written!(Host, "a host such as \"shop.example\" or \"*.shop.example\"");
written!(
    Network,
    "an address such as \"::1\", a network such as \"10.0.0.0/8\", \"unix\" or \"all\""
);
written!(Pattern, "a path such as \"/exact\", \"/dir/*\" or \"*.ext\"");
written!(
    Scope,
    "a path with all below it such as \"/dir\", one path such as \"=/exact\", or a pattern such as \
     \"*.ext\""
);
written!(Template, "a text such as \"https://$host/new/$1\"");
written!(MountPath, "a path of the site such as \"/docs\"");
written!(MediaPattern, "a media type such as \"text/css\" or \"image/*\"");
written!(FieldName, "the name of a field such as \"Server\"");
written!(Realm, "a text in ASCII without quotes such as \"private\"");

written!(
    Endpoint,
    "an address such as \"192.0.2.7\", a network such as \"10.0.0.0/8\", a range such as \
     \"10.0.0.5-10.0.0.9\", with a port or ports such as \"[2001:db8::]/32:80\" or \"*:1024-2047\""
);
written!(SitePattern, "a host such as \"shop.example\" or \"*.shop.example\"");
written!(MethodPattern, "a method such as \"GET\"");
written!(
    PathPattern,
    "a path such as \"/exact\", \"/dir/*\" or \"*.php\", or ~ and a regular expression"
);
written!(Parameter, "a parameter such as \"debug\", \"sort=price\" or \"sort=pr*\"");
written!(
    CertificatePattern,
    "\"any\", a subject such as \"subject=CN=worker-*\" or a fingerprint such as \"fingerprint=00:11:…\""
);
written!(IdentityPattern, "a name of an identity such as \"gold\" or \"buyer-*\"");
written!(FileType, "the ending of a file's name such as \"php\"");
written!(
    FieldCondition,
    "a name such as \"X-Beta\" or a name and a value such as \"tier=gold\" or \"tier=go*\""
);
written!(Rate, "a rate such as \"300/s\", \"10/m\" (minute) or \"1/h\", or \"unlimited\"");

written!(Redacted, "a name such as \"query.token\" or \"header.Referer\"");
written!(LogCondition, "a condition such as \"status=5xx\", \"class!=gold\" or \"site=shop\"");

impl Written for Member {
    const EXPECTED: &'static str = "a member of JSON lines such as \"status\"";
    const MAY_BE_EMPTY: bool = false;
    fn read(text: &str) -> Result<Member, Wrong> {
        if let Some((_, lines)) = NOT_CHOSEN.iter().find(|(name, _)| *name == text) {
            let reason = format!("{lines}, whatever is chosen: leave it out");
            return Err(unfit(text, reason));
        }
        let choices = &Member::NAMES;
        Member::named(text).ok_or_else(|| Wrong::Choice { found: text.to_owned(), choices })
    }
    fn text(&self) -> String {
        self.name().to_owned()
    }
}

impl Written for SiteName {
    const EXPECTED: &'static str = "a name of lower-case letters, digits, \".\", \"-\" and \"_\"";
    fn read(text: &str) -> Result<SiteName, Wrong> {
        SiteName::parse(text).map_err(|_| SiteName::misread(text))
    }
    fn text(&self) -> String {
        self.to_string()
    }
    fn guess(text: &str) -> Option<String> {
        let guess = text.trim().to_lowercase().replace([' ', '/'], "-");
        SiteName::parse(&guess).is_ok().then_some(guess)
    }
}

/// A pattern that is a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regex(pub Pattern);

impl Written for Regex {
    const EXPECTED: &'static str = "a regular expression such as '^/blog/(\\d+)$'";
    fn read(text: &str) -> Result<Regex, Wrong> {
        Pattern::regex(text).map(Regex).map_err(|error| unfit(text, error))
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Paths of a rule about clients, as a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeRegex(pub Scope);

impl Written for ScopeRegex {
    const EXPECTED: &'static str = "a regular expression such as '(?i)\\.(bak|sql)$'";
    fn read(text: &str) -> Result<ScopeRegex, Wrong> {
        Scope::regex(text).map(ScopeRegex).map_err(|error| unfit(text, error))
    }
    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The paths for which a setting is on: all, none, or some and those below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSwitch(pub Vec<Scope>);

impl From<bool> for PathSwitch {
    fn from(is_on: bool) -> PathSwitch {
        PathSwitch(is_on.then(Scope::any).into_iter().collect())
    }
}

impl Value for PathSwitch {
    fn form(&self) -> Form {
        Form::SwitchOrList
    }
    fn expected(&self) -> &'static str {
        "true, false or a list of paths such as [\"/pub\"]"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        match text.parse::<bool>() {
            Ok(is_on) => *self = PathSwitch::from(is_on),
            Err(_) => self.0.set(text)?,
        }
        Ok(())
    }
    fn show(&self) -> String {
        match &self.0[..] {
            [] => false.show(),
            [only] if *only == Scope::any() => true.show(),
            paths => show_list(paths.iter().map(Scope::to_string)),
        }
    }
    fn guess(&self, text: &str) -> Option<String> {
        let is_path = Scope::parse(text).is_ok();
        false.guess(text).or_else(|| is_path.then(|| format!("[{}]", quote(text))))
    }
    fn clear(&mut self) {
        self.0.clear();
    }
    fn may_be_empty(&self) -> bool {
        true
    }
}

impl Written for Coding {
    const EXPECTED: &'static str = "a content coding: \"br\", \"zstd\" or \"gzip\"";
    fn read(text: &str) -> Result<Coding, Wrong> {
        const CHOICES: &[&str] = &["br", "zstd", "gzip"];
        let is_choice = |coding: &Coding| CHOICES.contains(&text) && coding.as_str() == text;
        let wrong = || Wrong::Choice { found: text.to_owned(), choices: CHOICES };
        Coding::ALL.into_iter().find(is_choice).ok_or_else(wrong)
    }
    fn text(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Value for TryFiles {
    fn form(&self) -> Form {
        Form::List
    }
    fn expected(&self) -> &'static str {
        "a path such as \"$path.html\" or \"/index.html\", and last perhaps a status such as \"=404\""
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let candidate = TryFile::parse(text).map_err(|error| unfit(text, error))?;
        if self.candidates().contains(&candidate) {
            return Err(Wrong::Repeated { found: text.to_owned() });
        }
        let mut candidates = self.candidates().to_vec();
        candidates.push(candidate);
        *self = TryFiles::new(candidates).map_err(|error| unfit(text, error))?;
        Ok(())
    }
    fn show(&self) -> String {
        show_list(self.candidates().iter().map(TryFile::to_string))
    }
    fn clear(&mut self) {
        *self = TryFiles::default();
    }
    fn may_be_empty(&self) -> bool {
        true
    }
}

/// The error pages of a site, by status.
pub(crate) type ErrorPages = TableOf<ErrorPage>;

impl TableEntry for ErrorPage {
    const EXPECTED: &'static str =
        "statuses with paths of the site such as { 404 = \"/404.html\" }";
    fn read(name: &str, text: &str) -> Result<ErrorPage, Wrong> {
        let found = if ErrorPage::parse(name, "/a").is_err() { name } else { text };
        ErrorPage::parse(name, text).map_err(|error| unfit(found, error))
    }
    fn pair(&self) -> (String, &str) {
        (self.status().to_string(), self.path())
    }
    /// Adds an error page. An inherited one for the same status is replaced.
    fn put(self, pages: &mut Vec<ErrorPage>) {
        match pages.binary_search_by_key(&self.status(), ErrorPage::status) {
            Ok(at) => pages[at] = self,
            Err(at) => pages.insert(at, self),
        }
    }
}

/// The media types of a site's files, by the suffix of their names.
pub(crate) type MediaTypes = TableOf<FileMediaType>;

impl TableEntry for FileMediaType {
    const EXPECTED: &'static str = "endings with media types such as { wat = \"text/plain\" }";
    fn read(name: &str, text: &str) -> Result<FileMediaType, Wrong> {
        let found = if FileMediaType::parse(name, "a/b").is_err() { name } else { text };
        FileMediaType::parse(name, text).map_err(|error| unfit(found, error))
    }
    fn pair(&self) -> (String, &str) {
        (self.ending().to_owned(), self.media_type())
    }
    /// Adds a media type. An inherited one for the same suffix is replaced.
    fn put(self, types: &mut Vec<FileMediaType>) {
        match types.iter_mut().find(|known| known.ending() == self.ending()) {
            Some(known) => *known = self,
            None => types.push(self),
        }
    }
}

/// The fields that a header rule sets.
pub(crate) type HeaderFields = TableOf<(FieldName, FieldValue)>;

impl TableEntry for (FieldName, FieldValue) {
    const EXPECTED: &'static str = "fields with values such as { \"X-Frame-Options\" = \"DENY\" }";
    fn read(name: &str, text: &str) -> Result<(FieldName, FieldValue), Wrong> {
        let field = FieldName::parse(name).map_err(|error| unfit(name, error))?;
        let value = FieldValue::parse(text).map_err(|error| unfit(text, error))?;
        Ok((field, value))
    }
    fn pair(&self) -> (String, &str) {
        (self.0.to_string(), self.1.as_str())
    }
}

/// Users, with the hashes of their passwords.
pub(crate) type UserList = TableOf<User>;

impl TableEntry for User {
    const EXPECTED: &'static str = "names with password hashes such as { alice = \"$argon2id$…\" }";
    /// Reads a user. A message does not repeat the text, because it may be a password.
    fn read(name: &str, text: &str) -> Result<User, Wrong> {
        User::parse(name, text).map_err(|error| unfit(name, error))
    }
    fn pair(&self) -> (String, &str) {
        (self.name().to_owned(), self.hash().as_str())
    }
}

/// The status of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedirectStatus(pub u16);

/// The status of a redirect to https, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsStatus(pub u16);

impl Default for HttpsStatus {
    fn default() -> HttpsStatus {
        HttpsStatus(308)
    }
}

impl Value for HttpsStatus {
    fn form(&self) -> Form {
        Form::Number
    }
    fn expected(&self) -> &'static str {
        "the status of a redirect for good: 301 or 308"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        *self = HttpsStatus(status(self, text, |status| matches!(status, 301 | 308))?);
        Ok(())
    }
    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl Default for RedirectStatus {
    fn default() -> RedirectStatus {
        RedirectStatus(Redirect::DEFAULT_STATUS)
    }
}

impl Value for RedirectStatus {
    fn form(&self) -> Form {
        Form::Number
    }
    fn expected(&self) -> &'static str {
        "a status of a redirect: 301, 302, 303, 307 or 308"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let belongs = |status: &u16| matches!(status, 301..=303 | 307 | 308);
        *self = RedirectStatus(status(self, text, belongs)?);
        Ok(())
    }
    fn show(&self) -> String {
        self.0.to_string()
    }
}
