//! Warnings for the operator, now and then, that a limit of connections is reached.
//!
//! A client that is refused before there is a request has no line in the access log.

use forebay_sys::stderr::say;
use std::net::IpAddr;
use std::sync::Mutex;

/// The time between two warnings about the same limit, in milliseconds.
const REST_MS: u64 = 60_000;

/// The limits that were warned of, with the time of the last warning.
#[derive(Debug, Default)]
pub(crate) struct LimitsTold(Mutex<Vec<(&'static str, u64)>>);

/// The warnings of this process.
pub(crate) static TOLD: LimitsTold = LimitsTold(Mutex::new(Vec::new()));

impl LimitsTold {
    /// Notes that a connection of this client is refused by this limit, and warns if it is time.
    pub(crate) fn refused(&self, setting: &'static str, client: IpAddr, now_ms: u64) {
        if self.is_due(setting, now_ms) {
            say(format_args!(
                "{setting} is reached: a connection of {client} is refused, and others may be; \
                 forebay_connections_refused_total counts them (said once a minute)"
            ));
        }
    }

    fn is_due(&self, setting: &'static str, now_ms: u64) -> bool {
        // a thread that finds this locked need not warn, too
        let Ok(mut told) = self.0.try_lock() else { return false };
        match told.iter_mut().find(|(known, _)| *known == setting) {
            Some((_, at_ms)) if now_ms.saturating_sub(*at_ms) < REST_MS => false,
            Some((_, at_ms)) => {
                *at_ms = now_ms;
                true
            }
            None => {
                told.push((setting, now_ms));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told_of_once_a_minute() {
        let told = LimitsTold::default();
        assert!(told.is_due("limits.connections", 5));
        assert!(!told.is_due("limits.connections", 60_004));
        assert!(told.is_due("limits.connections_per_client", 60_004));
        assert!(told.is_due("limits.connections", 60_005));
        assert!(!told.is_due("limits.connections", 60_006));
    }
}
