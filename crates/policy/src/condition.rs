//! The conditions of a rule, one by one: whether each holds.

use crate::certificate::CertificatePattern;
use crate::endpoint::Endpoint;
use crate::facts::RequestFacts;
use crate::field::FieldCondition;
use crate::identity::IdentityPattern;
use crate::matcher::RegexError;
use crate::pattern::{FileType, MethodPattern, PathPattern, SitePattern, original};
use crate::query::Parameter;
use std::fmt;

/// The requests that a rule applies to. All conditions must hold; the values of one are alternatives; a
/// condition without values always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The client's address and port.
    pub client: Vec<Endpoint>,
    /// The server's address and port that the client has reached.
    pub local: Vec<Endpoint>,
    /// The host of the request.
    pub site: Vec<SitePattern>,
    /// The method.
    pub method: Vec<MethodPattern>,
    /// The path; for a compressed form of a file, also the path of that file.
    pub path: Vec<PathPattern>,
    /// A parameter of the query.
    pub query: Vec<Parameter>,
    /// The file type: the text after the last dot of the path.
    pub file_type: Vec<FileType>,
    /// The client's certificate.
    pub certificate: Vec<CertificatePattern>,
    /// The identity that the client has proven.
    pub identity: Vec<IdentityPattern>,
    /// The header fields, each line by itself.
    pub header: Vec<FieldCondition>,
    /// The request's cookies.
    pub cookie: Vec<FieldCondition>,
    /// Whether case is ignored in path, query, and values of fields and cookies.
    pub ignore_case: bool,
}

impl Conditions {
    /// Whether all conditions hold.
    pub fn hold<'f, F>(&self, facts: &RequestFacts<'f, F>) -> bool
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        ConditionSet::of(self).failed(self, facts).is_none()
    }

    /// The same conditions, with every pattern made to ignore case if `ignore_case` is set.
    ///
    /// # Errors
    /// A pattern takes too much memory then; the error names its condition.
    pub fn folded(mut self) -> Result<Conditions, (ConditionKind, RegexError)> {
        if !self.ignore_case {
            return Ok(self);
        }
        let of = |condition| move |error| (condition, error);
        for path in &mut self.path {
            *path = path.ignoring_case().map_err(of(ConditionKind::Path))?;
        }
        for query in &mut self.query {
            *query = query.ignoring_case().map_err(of(ConditionKind::Query))?;
        }
        for header in &mut self.header {
            *header = header.ignoring_case().map_err(of(ConditionKind::Header))?;
        }
        for cookie in &mut self.cookie {
            *cookie = cookie.ignoring_case().map_err(of(ConditionKind::Cookie))?;
        }
        Ok(self)
    }
}

/// A kind of condition. The order is that in which they are tried: what costs least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionKind {
    /// The method.
    Method,
    /// The address and port that the client has reached.
    Local,
    /// The client's address and port.
    Client,
    /// The host.
    Site,
    /// The file type.
    Type,
    /// The path.
    Path,
    /// A parameter of the query.
    Query,
    /// The client's certificate.
    Certificate,
    /// The identity that the client has proven.
    Identity,
    /// A header field.
    Header,
    /// A cookie.
    Cookie,
}

impl ConditionKind {
    /// All kinds, in the order in which they are tried.
    pub const ALL: [ConditionKind; 11] = [
        ConditionKind::Method,
        ConditionKind::Local,
        ConditionKind::Client,
        ConditionKind::Site,
        ConditionKind::Type,
        ConditionKind::Path,
        ConditionKind::Query,
        ConditionKind::Certificate,
        ConditionKind::Identity,
        ConditionKind::Header,
        ConditionKind::Cookie,
    ];

    /// The key of the condition in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionKind::Method => "method",
            ConditionKind::Local => "local",
            ConditionKind::Client => "client",
            ConditionKind::Site => "site",
            ConditionKind::Type => "file_type",
            ConditionKind::Path => "path",
            ConditionKind::Query => "query",
            ConditionKind::Certificate => "certificate",
            ConditionKind::Identity => "identity",
            ConditionKind::Header => "header",
            ConditionKind::Cookie => "cookie",
        }
    }

    /// Whether the conditions of a rule have values of this kind.
    pub fn is_asked(self, conditions: &Conditions) -> bool {
        match self {
            ConditionKind::Method => !conditions.method.is_empty(),
            ConditionKind::Local => !conditions.local.is_empty(),
            ConditionKind::Client => !conditions.client.is_empty(),
            ConditionKind::Site => !conditions.site.is_empty(),
            ConditionKind::Type => !conditions.file_type.is_empty(),
            ConditionKind::Path => !conditions.path.is_empty(),
            ConditionKind::Query => !conditions.query.is_empty(),
            ConditionKind::Certificate => !conditions.certificate.is_empty(),
            ConditionKind::Identity => !conditions.identity.is_empty(),
            ConditionKind::Header => !conditions.header.is_empty(),
            ConditionKind::Cookie => !conditions.cookie.is_empty(),
        }
    }

    /// Whether one of the alternatives of this kind holds. The rule must have some.
    pub(crate) fn holds<'f, F>(self, conditions: &Conditions, facts: &RequestFacts<'f, F>) -> bool
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        let RequestFacts { ends, host, method, path, query, certificate, identity, fields } = facts;
        match self {
            ConditionKind::Method => conditions.method.iter().any(|one| one.as_str() == *method),
            ConditionKind::Local => conditions.local.iter().any(|one| one.holds(ends.local)),
            ConditionKind::Client => conditions.client.iter().any(|one| one.holds(ends.client)),
            ConditionKind::Site => conditions.site.iter().any(|one| one.matches(host)),
            ConditionKind::Type => conditions.file_type.iter().any(|one| one.matches(path)),
            ConditionKind::Path => {
                let fits = |path| conditions.path.iter().any(|one| one.matches(path));
                fits(path) || original(path).is_some_and(fits)
            }
            ConditionKind::Query => conditions.query.iter().any(|one| one.matches(query)),
            ConditionKind::Certificate => certificate.as_ref().is_some_and(|certificate| {
                conditions.certificate.iter().any(|one| one.matches(certificate))
            }),
            ConditionKind::Identity => {
                identity.is_some_and(|name| conditions.identity.iter().any(|one| one.matches(name)))
            }
            ConditionKind::Header => fields.clone().any(|(name, value)| {
                conditions.header.iter().any(|one| one.matches_header(name, value))
            }),
            ConditionKind::Cookie => fields
                .clone()
                .filter(|(name, _)| name.eq_ignore_ascii_case("cookie"))
                .any(|(_, value)| conditions.cookie.iter().any(|one| one.matches_cookies(value))),
        }
    }
}

impl fmt::Display for ConditionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of kinds of conditions, such as those that must still be tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConditionSet(u16);

impl ConditionSet {
    pub(crate) fn of(conditions: &Conditions) -> ConditionSet {
        let asked = ConditionKind::ALL.into_iter().filter(|one| one.is_asked(conditions));
        ConditionSet(asked.fold(0, |set, one| set | 1 << one as u8))
    }

    pub(crate) fn without(self, condition: ConditionKind) -> ConditionSet {
        ConditionSet(self.0 & !(1 << condition as u8))
    }

    pub(crate) fn has(self, condition: ConditionKind) -> bool {
        self.0 & 1 << condition as u8 != 0
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The first kind in the set.
    #[inline]
    pub(crate) fn first(self) -> Option<ConditionKind> {
        ConditionKind::ALL.get(self.0.trailing_zeros() as usize).copied()
    }

    /// The kinds in the set whose conditions do not hold.
    pub(crate) fn failing<'f, F>(
        self,
        conditions: &Conditions,
        facts: &RequestFacts<'f, F>,
    ) -> ConditionSet
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        let holds = |one: &ConditionKind| self.has(*one) && one.holds(conditions, facts);
        ConditionKind::ALL.into_iter().filter(holds).fold(self, ConditionSet::without)
    }

    /// The first kind in the set whose condition does not hold.
    #[inline]
    pub(crate) fn failed<'f, F>(
        self,
        conditions: &Conditions,
        facts: &RequestFacts<'f, F>,
    ) -> Option<ConditionKind>
    where
        F: Iterator<Item = (&'f str, &'f [u8])> + Clone,
    {
        let mut rest = self;
        while let Some(condition) = rest.first() {
            if !condition.holds(conditions, facts) {
                return Some(condition);
            }
            rest = ConditionSet(rest.0 & (rest.0 - 1));
        }
        None
    }
}
