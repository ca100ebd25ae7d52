//! The limits of a rule, as they are written.

use crate::problems::problem::Wrong;
use crate::values::optional::Optional;
use crate::values::value::{Form, Value, status};
use crate::{OverChoice, PerChoice, Refuse};
use forebay_policy::rate::Rate;
use std::time::Duration;

/// A limit on the rate of connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionLimit {
    /// `connections.rate`; without it there is no limit
    pub rate: Option<Rate>,
    /// `connections.burst`
    pub burst: Optional<u64>,
    /// `connections.per`
    pub per: Optional<PerChoice>,
    /// `connections.over`
    pub over: Optional<Refuse>,
    /// `connections.status`
    pub status: Optional<ErrorStatus>,
    /// `connections.ignore`
    pub ignore: Optional<Duration>,
}

/// A limit on the rate of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestLimit {
    /// `requests.rate`; without it there is no limit
    pub rate: Option<Rate>,
    /// `requests.rate_min`
    pub rate_min: Option<Rate>,
    /// `requests.rate_max`
    pub rate_max: Option<Rate>,
    /// `requests.burst`
    pub burst: Optional<u64>,
    /// `requests.per`
    pub per: Optional<PerChoice>,
    /// `requests.over`
    pub over: Optional<OverChoice>,
    /// `requests.status`
    pub status: Optional<ErrorStatus>,
    /// `requests.deadline`
    pub deadline: Optional<Duration>,
    /// `requests.most`
    pub most: Optional<u64>,
    /// `requests.ignore`
    pub ignore: Optional<Duration>,
}

/// A limit on requests under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InFlightConfig {
    /// `in_flight.most`; without it there is no limit
    pub most: Optional<u64>,
    /// `in_flight.per`
    pub per: Optional<PerChoice>,
    /// `in_flight.over`
    pub over: Optional<OverChoice>,
    /// `in_flight.status`
    pub status: Optional<ErrorStatus>,
    /// `in_flight.deadline`
    pub deadline: Optional<Duration>,
    /// `in_flight.queue`
    pub queue: Optional<u64>,
}

impl ConnectionLimit {
    /// The first setting besides the rate, if there is one.
    pub(crate) fn says_more(&self) -> Option<&'static str> {
        let ConnectionLimit { rate: _, burst, per, over, status, ignore } = self;
        first(&[
            ("burst", burst.0.is_some()),
            ("per", per.0.is_some()),
            ("over", over.0.is_some()),
            ("status", status.0.is_some()),
            ("ignore", ignore.0.is_some()),
        ])
    }
}

impl RequestLimit {
    /// The first setting besides the rate, if there is one.
    pub(crate) fn says_more(&self) -> Option<&'static str> {
        let RequestLimit {
            rate: _,
            rate_min,
            rate_max,
            burst,
            per,
            over,
            status,
            deadline,
            most,
            ignore,
        } = self;
        first(&[
            ("rate_min", rate_min.is_some()),
            ("rate_max", rate_max.is_some()),
            ("burst", burst.0.is_some()),
            ("per", per.0.is_some()),
            ("over", over.0.is_some()),
            ("status", status.0.is_some()),
            ("deadline", deadline.0.is_some()),
            ("most", most.0.is_some()),
            ("ignore", ignore.0.is_some()),
        ])
    }
}

/// The first key that is set.
fn first(keys: &[(&'static str, bool)]) -> Option<&'static str> {
    keys.iter().find(|(_, is_said)| *is_said).map(|(key, _)| *key)
}

/// The status that a request is refused with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorStatus(pub u16);

impl Value for ErrorStatus {
    fn form(&self) -> Form {
        Form::Number
    }
    fn expected(&self) -> &'static str {
        "a status of an error such as 403, 429 or 503"
    }
    fn set(&mut self, text: &str) -> Result<(), Wrong> {
        let is_error = |status: &u16| match status {
            // these promise a field that no rule has
            401 | 407 | 426 => false,
            400..600 => forebay_http::status::reason(*status) != "Unknown",
            _ => false,
        };
        self.0 = status(self, text, is_error)?;
        Ok(())
    }
    fn show(&self) -> String {
        self.0.to_string()
    }
}
