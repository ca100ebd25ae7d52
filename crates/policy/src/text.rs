//! Displays the settings of a rule in the form of a configuration.

use crate::rule::{Action, Bounds, InFlight, Limit, Over, Per};
use std::fmt;

/// Displays a limit, such as `10/m, burst 5 per client, over: reject 429`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { rate, burst, per, over, ignore_ms } = self;
        if rate.is_unlimited() {
            return rate.fmt(f);
        }
        write!(f, "{rate}, burst {burst}{}, over: ", of(*per))?;
        show_over(*over, *per, f)?;
        match ignore_ms {
            Some(ms) => write!(f, ", ignored for {ms} ms"),
            None => Ok(()),
        }
    }
}

/// Displays bounds, such as `between 10/s and 200/s`.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "between {} and {}", self.least, self.most)
    }
}

/// Displays a limit on requests at once, such as `20 at once per client, over: reject 429`.
impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InFlight { most, per, over } = self;
        write!(f, "{most} at once{}, over: ", of(*per))?;
        show_over(*over, *per, f)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Reject(status) => write!(f, "reject {status}"),
            other => f.write_str(other.as_str()),
        }
    }
}

fn of(per: Per) -> &'static str {
    match per {
        Per::Rule => "",
        Per::Client => " per client",
    }
}

fn show_over(over: Over, per: Per, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match over {
        Over::Reject { status } => write!(f, "reject {}", per.status(status)),
        Over::Queue { deadline_ms, most } => {
            write!(f, "queue, at most {most} and {deadline_ms} ms")
        }
        Over::Reset | Over::Drop => f.write_str(over.as_str()),
    }
}

impl Per {
    /// The status for a request over the limit: the stated one, otherwise 503 for a limit on all
    /// clients together, and 429 for one client's own.
    pub(crate) fn status(self, stated: Option<u16>) -> u16 {
        stated.unwrap_or(match self {
            Per::Rule => 503,
            Per::Client => 429,
        })
    }
}
