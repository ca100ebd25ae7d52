//! Routes of a site to handlers: code of the program that the server is a part of. No file can name one; who builds
//! the program does.

use crate::sections::upstreams::UpstreamsConfig;
use forebay_site::rules::{Route, Scope};
use forebay_upstream::inside::{HandlerLimits, InsideCode};
use forebay_upstream::settings::InsideSettings;

/// A route to a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerRoute {
    /// Which paths it answers.
    pub path: Scope,
    /// The handler.
    pub code: InsideCode,
    /// Its bounds.
    pub limits: HandlerLimits,
}

impl HandlerRoute {
    /// What the site is told of it.
    pub(crate) fn route(&self) -> Route {
        Route::all(self.path.clone())
    }

    /// What the handler of requests is told of it.
    pub(crate) fn settings(&self) -> InsideSettings {
        let group = UpstreamsConfig::default().group(Vec::new(), Vec::new(), None);
        InsideSettings { group, code: self.code.clone(), limits: self.limits }
    }
}
