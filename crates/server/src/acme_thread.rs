//! The thread that gets the certificates that are wanted by ACME.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use forebay_acme::{CertificateEvent, CertificateKeeper, Why};
use forebay_handler::certificates::acme::AcmePlan;
use forebay_handler::live::LiveSnapshot;
use forebay_metrics::{Counter, Local};
use forebay_sys::stderr::say;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The thread that gets certificates. It ends when this is dropped.
pub struct AcmeThread(Sender<bool>);

impl AcmeThread {
    /// Something has changed; `at_once`: what has failed is tried again.
    pub fn look(&self, at_once: bool) {
        let _ = self.0.send(at_once);
    }
}

/// Starts the thread, which gets what the snapshot in force wants and calls `tell` when there is a new
/// certificate. Only it counts in `metrics`.
///
/// # Errors
/// Lack of threads.
pub fn start(
    live: Arc<LiveSnapshot>,
    metrics: Arc<Local>,
    tell: impl Fn() + Send + 'static,
) -> io::Result<AcmeThread> {
    let (to_thread, orders) = unbounded();
    let thread = std::thread::Builder::new().name("acme".to_owned());
    thread.spawn(move || keep(&live, &metrics, &orders, tell))?;
    Ok(AcmeThread(to_thread))
}

fn keep(live: &LiveSnapshot, metrics: &Local, orders: &Receiver<bool>, tell: impl Fn()) {
    let mut keeper = CertificateKeeper::default();
    let mut at_once = false;
    loop {
        let plan = live.get().certificates.acme().cloned();
        let pause = match plan.as_deref() {
            None => Duration::MAX,
            Some(AcmePlan { authority, wanted, answers, .. }) => {
                keeper.round(authority, wanted, answers, at_once, &mut |event| {
                    note(&event, metrics);
                    if let CertificateEvent::Issued { .. } = event {
                        tell();
                    }
                })
            }
        };
        at_once = match orders.recv_timeout(pause) {
            Ok(at_once) => at_once || orders.try_iter().any(|other| other),
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

/// Says and then counts what has happened: the line of what was counted is there.
fn note(event: &CertificateEvent<'_>, metrics: &Local) {
    match event {
        CertificateEvent::Issued { site, .. } => {
            say(format_args!("acme: there is a new certificate for the site {site:?}"));
            metrics.add(Counter::AcmeIssued, 1);
        }
        CertificateEvent::Failed { site, failure, again } => {
            say(format_args!(
                "acme: no certificate for the site {site:?}: {failure}; tried again in {}",
                words(*again)
            ));
            metrics.add(
                match failure.why {
                    Why::Unreachable | Why::StaleNonce => Counter::AcmeUnreachable,
                    Why::RateLimited => Counter::AcmeRateLimited,
                    Why::Unproven => Counter::AcmeUnproven,
                    Why::Refused | Why::AccountUnknown => Counter::AcmeRefused,
                    Why::Storage => Counter::AcmeStorage,
                },
                1,
            );
        }
    }
}

/// A time as people say it.
fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_round_numbers() {
        let told = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([told(1), told(149), told(7300)], ["1 s", "2 min", "2 h"]);
    }
}
