//! Paths that applications may read in more than one way.

use crate::routing::route;
use crate::rules::Redirect;
use crate::settings::SiteSettings;
use forebay_conn::Request;
use forebay_http::head::Method;
use forebay_http::readings::PathReadings;
use std::cell::Ref;

const NOT_PASSED: &str =
    "The path has an encoded slash or backslash, or //, and `ambiguous` is not \"pass\" here";
const DIVIDED: &str =
    "Readings of the path are for different applications or files, which `ambiguous` never passes";
const CHANGED: &str =
    "A rule redirects or rewrites a reading of the path, which `ambiguous` does not pass then";

/// Whether a request may be an application's, whatever its path.
pub(crate) fn is_for_applications(request: &Request<'_>) -> bool {
    let is_for_one = !matches!(request.head.method, Method::Connect | Method::Trace);
    is_for_one && request.head.path.starts_with(b"/")
}

/// The handling of a path with several readings.
pub(crate) enum Ambiguity<'r> {
    /// Rules judge the path of the request: it has one reading, or it is for files, or the
    /// application gets its normal form or is not asked.
    None,
    /// This application gets the path as it was sent, if rules allow every reading.
    Passed { route: u32, readings: Ref<'r, PathReadings> },
    /// The path is for an application that must not get it, for this reason. 400.
    Refused(&'static str),
}

impl Ambiguity<'_> {
    /// The number of readings of the path that rules must allow.
    pub(crate) fn readings(&self) -> usize {
        match self {
            Ambiguity::Passed { readings, .. } => readings.iter().count(),
            _ => 1,
        }
    }
}

impl SiteSettings {
    /// The handling of the path of a request.
    pub(crate) fn ambiguity<'r>(&self, request: &Request<'r>) -> Ambiguity<'r> {
        if self.routes.is_empty() || !is_for_applications(request) {
            return Ambiguity::None;
        }
        let Some(readings) = request.readings() else { return Ambiguity::None };
        let routes = || readings.iter().map(|reading| route::route_of(self, reading));
        let passes = |route: Option<u32>| {
            route.is_some_and(|route| self.routes.get(route as usize).is_some_and(|at| at.passes))
        };
        // slashes that follow each other are merged for files and for applications that want it
        let concerns_one = match request.path().is_ok() {
            true => routes().any(passes),
            false => routes().any(|route| route.is_some()),
        };
        if !concerns_one {
            return Ambiguity::None;
        }
        if !routes().any(passes) {
            return Ambiguity::Refused(NOT_PASSED);
        }
        if let Some(problem) = readings.problem() {
            return Ambiguity::Refused(problem);
        }
        let first = route::route_of(self, readings.main());
        let Some(route) = first.filter(|_| routes().all(|route| route == first)) else {
            return Ambiguity::Refused(DIVIDED);
        };
        if readings.iter().any(|reading| self.changes(reading)) {
            return Ambiguity::Refused(CHANGED);
        }
        Ambiguity::Passed { route, readings }
    }

    /// Whether a rule replaces a path, or answers in the place of an application.
    fn changes(&self, path: &[u8]) -> bool {
        self.redirects.iter().any(|rule| Redirect::pattern(rule).captures(path).is_some())
            || route::rewrites(self, path).next().is_some()
            || self.work.iter().any(|rule| rule.path.matches(path))
    }
}
