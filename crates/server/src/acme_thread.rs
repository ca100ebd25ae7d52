//! The thread that obtains the certificates that sites want by ACME.

use crate::launcher::Launcher;
use crate::launcher::commands::DNS_HOOK;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use forebay_acme::{
    CertificateEvent, CertificateKeeper, ChallengeRecord, RecordAction, RecordHook, Why,
};
use forebay_handler::certificates::acme::AcmePlan;
use forebay_handler::live::LiveSnapshot;
use forebay_metrics::{Counter, Local};
use forebay_sys::stderr::say;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The last lines of a failed command's output that are logged, and the longest part of each.
const MOST_LINES: usize = 20;
const MOST_LINE_CHARS: usize = 300;

/// The thread that obtains certificates. The thread ends when this handle is dropped.
pub struct AcmeThread(Sender<bool>);

impl AcmeThread {
    /// Has the thread look for certificates to obtain. With `at_once`, those that have failed are
    /// tried again without delay.
    pub fn look(&self, at_once: bool) {
        let _ = self.0.send(at_once);
    }
}

/// Starts the thread. The thread obtains the certificates that the snapshot in force wants, and
/// calls `tell` when there is a new one. The launcher makes the DNS records. No other thread counts
/// in `metrics`.
///
/// # Errors
/// Lack of threads.
pub fn start(
    live: Arc<LiveSnapshot>,
    metrics: Arc<Local>,
    launcher: Option<Arc<Launcher>>,
    tell: impl Fn() + Send + 'static,
) -> io::Result<AcmeThread> {
    let (to_thread, orders) = unbounded();
    let thread = std::thread::Builder::new().name("acme".to_owned());
    thread.spawn(move || keep(&live, &metrics, launcher.as_deref(), &orders, tell))?;
    Ok(AcmeThread(to_thread))
}

fn keep(
    live: &LiveSnapshot,
    metrics: &Local,
    launcher: Option<&Launcher>,
    orders: &Receiver<bool>,
    tell: impl Fn(),
) {
    let mut keeper = CertificateKeeper::default();
    let mut at_once = false;
    loop {
        let plan = live.get().certificates.acme().cloned();
        let pause = match plan.as_deref() {
            None => Duration::MAX,
            Some(AcmePlan { authority, wanted, answers, .. }) => {
                let launcher = launcher.filter(|_| authority.has_hook);
                let hook = launcher.map(|launcher| {
                    move |action, record: &ChallengeRecord| change(launcher, action, record)
                });
                let hook = hook.as_ref().map(|hook| hook as RecordHook<'_>);
                keeper.round(authority, wanted, answers, hook, at_once, &mut |event| {
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

/// Has the launcher create or remove a DNS record.
fn change(
    launcher: &Launcher,
    action: RecordAction,
    record: &ChallengeRecord,
) -> Result<(), String> {
    let ChallengeRecord { host, name, value, token, account } = record;
    let values = [action.word(), host, name, value, token, account].map(str::to_owned).to_vec();
    let (why, said) = match launcher.run(DNS_HOOK, values) {
        Ok(reply) => match reply.failure {
            None => return Ok(()),
            Some(why) => (why, reply.said),
        },
        Err(error) => (error.to_string(), String::new()),
    };
    if action == RecordAction::CleanUp {
        // the caller does not log this failure
        say(format_args!(
            "acme.dns_hook has not removed {name} with {value:?}: {why}; tried again later"
        ));
    }
    let lines = said_lines(&said);
    lines.iter().for_each(|line| say(format_args!("acme.dns_hook said: {line}")));
    Err(why)
}

/// The last lines of what a command has said, fit for a log.
fn said_lines(said: &str) -> Vec<String> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let lines = said.lines().map(|line| line.chars().map(plain).collect::<String>());
    let lines = lines.map(|line| line.trim_end().chars().take(MOST_LINE_CHARS).collect());
    let mut lines: Vec<String> = lines.filter(|line: &String| !line.is_empty()).collect();
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.drain(..more);
    lines
}

/// Logs an event and then counts it, so that the line is there once the counter has moved.
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
                    Why::Hook => Counter::AcmeHook,
                    Why::Storage => Counter::AcmeStorage,
                },
                1,
            );
        }
    }
}

/// A duration in words: in seconds below two minutes, in minutes below two hours.
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
    fn the_end_of_what_a_command_says_is_told() {
        let said: String = (0..30).map(|number| format!("line {number}\n\n")).collect();
        let lines = said_lines(&said);
        assert_eq!((lines.len(), &*lines[0], &*lines[19]), (20, "line 10", "line 29"));
        assert_eq!(said_lines("a\u{1b}[31mb\r\n"), ["a [31mb"]);
        assert_eq!(said_lines(&"x".repeat(4096))[0].len(), 300);
        assert!(said_lines("").is_empty());
    }

    #[test]
    fn times_are_told_in_round_numbers() {
        let told = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([told(1), told(149), told(7300)], ["1 s", "2 min", "2 h"]);
    }
}
