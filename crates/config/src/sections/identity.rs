//! The settings of identities that clients prove by a signed cookie.

use crate::problems::problem::Wrong;
use crate::values::value::Written;
use forebay_policy::field::FieldCondition;
use std::path::PathBuf;

/// Identities that clients prove by a signed cookie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdentitySettings {
    /// `identity.keys`
    pub keys: Option<PathBuf>,
    /// `identity.cookie`
    pub cookie: Option<CookieName>,
    /// `identity.remove`
    pub remove: bool,
    /// Whether another stage has the keys, and verifies.
    pub is_verified_before: bool,
}

impl IdentitySettings {
    /// The name of the cookie.
    pub fn cookie(&self) -> &str {
        self.cookie.as_ref().map_or("forebay_id", |name| &name.0)
    }

    /// The cookie that is hidden from applications, if there is one.
    pub fn hidden_cookie(&self) -> Option<&str> {
        let is_hidden = self.remove && (self.keys.is_some() || self.is_verified_before);
        is_hidden.then(|| self.cookie())
    }
}

/// The name of a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieName(String);

impl Written for CookieName {
    const EXPECTED: &'static str = "the name of a cookie such as \"__Host-id\"";
    fn read(text: &str) -> Result<CookieName, Wrong> {
        // a name as rules have it, and no value
        match FieldCondition::parse(text) {
            Ok(field) if field.name() == text => Ok(CookieName(text.to_owned())),
            _ => Err(CookieName::misread(text)),
        }
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}
