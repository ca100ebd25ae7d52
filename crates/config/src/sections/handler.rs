//! Routes of a site to handlers: code of the program that the server is a part of. A file cannot name a
//! handler; the program passes it to the builder.

use crate::sections::upstreams::UpstreamsConfig;
use forebay_site::rules::{Route, Scope};
use forebay_upstream::inside::{HandlerLimits, InsideCode};
use forebay_upstream::settings::InsideSettings;

/// A route to a handler.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerRoute {
    /// The paths that the handler answers.
    pub path: Scope,
    /// The handler.
    pub code: InsideCode,
    /// The handler's bounds.
    pub limits: HandlerLimits,
}

impl HandlerRoute {
    /// The route as the site takes it.
    pub(crate) fn route(&self) -> Route {
        Route::all(self.path.clone())
    }

    /// The settings of the handler as the request handler takes them.
    pub(crate) fn settings(&self) -> InsideSettings {
        let group = UpstreamsConfig::default().group(Vec::new(), Vec::new(), None);
        InsideSettings { group, code: self.code.clone(), limits: self.limits }
    }
}
