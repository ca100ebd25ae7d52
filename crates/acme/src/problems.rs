//! Converts the authority's errors into failures with a description.

use crate::https::HttpsError;
use crate::order_failure::{OrderFailure, Why};
use instant_acme::{Error, Problem};

impl OrderFailure {
    /// The failure for an error of the library.
    pub(crate) fn of(error: &Error) -> OrderFailure {
        match error {
            Error::Api(problem) => OrderFailure::new(why(problem), words(problem)),
            Error::Other(other) if other.is::<HttpsError>() => {
                OrderFailure::new(Why::Unreachable, other.to_string())
            }
            Error::Json(_) => OrderFailure::new(
                Why::Unreachable,
                format!("the authority talks nonsense: {error}"),
            ),
            _ => OrderFailure::new(Why::Refused, error.to_string()),
        }
    }
}

/// The last part of a problem's type (RFC 8555 §6.7).
pub(crate) fn kind(problem: &Problem) -> &str {
    let name = problem.r#type.as_deref().unwrap_or("");
    name.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(name)
}

fn why(problem: &Problem) -> Why {
    match kind(problem) {
        "rateLimited" => Why::RateLimited,
        "accountDoesNotExist" => Why::AccountUnknown,
        "serverInternal" => Why::Unreachable,
        "badNonce" => Why::StaleNonce,
        "connection" | "dns" | "incorrectResponse" | "tls" | "unauthorized" => Why::Unproven,
        _ if problem.status.is_some_and(|status| status >= 500) => Why::Unreachable,
        _ => Why::Refused,
    }
}

/// The description of a problem. Line breaks are removed, because the text goes to the log.
pub(crate) fn words(problem: &Problem) -> String {
    let detail = problem.detail.as_deref().unwrap_or("no reason is given");
    let mut words = format!("{detail} ({})", kind(problem));
    for part in &problem.subproblems {
        words.push_str(&format!("; {part}"));
    }
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_by_whose_they_are() {
        let failure = |kind: &str, status| {
            OrderFailure::of(&Error::Api(Problem {
                r#type: Some(format!("urn:ietf:params:acme:error:{kind}")),
                detail: Some("too\nmuch".to_owned()),
                status: Some(status),
                subproblems: Vec::new(),
            }))
        };
        assert_eq!(failure("rateLimited", 429).why, Why::RateLimited);
        assert_eq!(failure("rateLimited", 429).reason, "too much (rateLimited)");
        assert_eq!(failure("serverInternal", 500).why, Why::Unreachable);
        assert_eq!(failure("badNonce", 400).why, Why::StaleNonce);
        assert_eq!(failure("other", 503).why, Why::Unreachable);
        assert_eq!(failure("rejectedIdentifier", 400).why, Why::Refused);
        assert_eq!(failure("accountDoesNotExist", 400).why, Why::AccountUnknown);
        assert_eq!(failure("connection", 400).why, Why::Unproven);
        let lost = HttpsError::Address("ftp://a".to_owned());
        assert_eq!(OrderFailure::of(&Error::Other(Box::new(lost))).why, Why::Unreachable);
    }
}
