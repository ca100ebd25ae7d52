//! Answers by the kernel in this server's place: which answers it learns, and the thread that
//! counts and logs those it has given.
//!
//! In: the gate, the configuration, the content. Out: the [`Learner`] of a snapshot, and counts and
//! lines of the log, through a request handler that no client reaches. Once a second the thread
//! gives the kernel the time, as a heartbeat. Without it the kernel stops answering, so that
//! requests reach a server that hangs, and its failure shows.

use crate::command::CommandAnswer;
use crate::engines::Common;
use forebay_config::{Config, answers};
use forebay_engine::worker;
use forebay_handler::RequestHandler;
use forebay_handler::kernel_answers::learner::{Learner, LearnerReport, LearnerSettings};
use forebay_handler::policy::KernelGate;
use forebay_handler::policy::enforced::GivenAnswers;
use forebay_site::Content;
use forebay_sys::stderr::say;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The intervals at which records are read: the first, which is also the delay of a line in the
/// log, and the second after a while without answers.
const READ_EVERY: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the kernel answers after a heartbeat.
const LASTS: Duration = Duration::from_secs(2);

/// How long the kernel may take to finish an answer that it has begun.
const SETTLES: Duration = Duration::from_millis(2);

/// The limits for learned answers: their number, and their bytes.
const MOST_ANSWERS: usize = 1000;
const MOST_BYTES: usize = 4 << 20;

/// The learner for this content from now on: `before`, if nothing changes for it; otherwise another
/// one, and the kernel has dropped all its answers. The result is `None` if the kernel gives no
/// answers, and while there are bans, which only the server checks.
pub(crate) fn learner(
    gate: Option<&Arc<KernelGate>>,
    config: &Config,
    content: &Arc<Content>,
    listeners: &[SocketAddr],
    has_bans: bool,
    before: Option<&Arc<Learner>>,
) -> Option<Arc<Learner>> {
    let gate = gate.filter(|gate| gate.answers_requests() && config.gate_answers);
    let gate = gate.filter(|_| !has_bans && answers::of_process(config).is_empty());
    let wanted = gate.map(|_| settings(config, content, listeners));
    if let Some(before) = before {
        if wanted.as_ref() == Some(before.settings()) {
            return Some(Arc::clone(before));
        }
        before.close();
    }
    let (gate, settings) = gate.zip(wanted)?;
    Some(Learner::new(Arc::clone(gate) as _, settings))
}

fn settings(config: &Config, content: &Arc<Content>, listeners: &[SocketAddr]) -> LearnerSettings {
    let requests = match config.limits.requests_per_connection {
        0 => u32::MAX,
        most => most.try_into().unwrap_or(u32::MAX),
    };
    LearnerSettings {
        listeners: listeners.to_vec(),
        hindered: config.sites.iter().map(|site| !answers::of_site(site).is_empty()).collect(),
        requests,
        most_answers: MOST_ANSWERS,
        most_bytes: MOST_BYTES,
        content: content.number(),
    }
}

/// The thread that counts and logs the answers that the kernel has given.
pub(crate) struct AnswersThread {
    ends: Sender<()>,
    thread: JoinHandle<()>,
}

impl AnswersThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// Lack of threads, or an error of the kernel.
    pub(crate) fn start(gate: &Arc<KernelGate>, common: &Common) -> io::Result<AnswersThread> {
        let given = gate.given_answers().map_err(io::Error::other)?;
        let handler = common.handler_apart();
        let (ends, end) = channel();
        let gate = Arc::clone(gate);
        let run = move || run(&gate, given, handler, &end);
        let thread = std::thread::Builder::new().name("answers".to_owned()).spawn(run)?;
        Ok(AnswersThread { ends, thread })
    }

    /// Ends the kernel's answers. Those it has given are counted and logged when this returns.
    pub(crate) fn end(self) {
        drop(self.ends);
        // a panic has been reported already
        let _ = self.thread.join();
    }
}

fn run(
    gate: &KernelGate,
    mut given: GivenAnswers,
    mut handler: RequestHandler,
    end: &Receiver<()>,
) {
    let (mut renewed_s, mut rest) = (0, READ_EVERY);
    loop {
        let is_over = !matches!(end.recv_timeout(rest), Err(RecvTimeoutError::Timeout));
        let now = worker::read_clocks();
        let now_s = now.unix_ms / 1000;
        if is_over {
            let _ = gate.renew_answers(now_s, Duration::ZERO);
            // a program in the kernel that has begun before ends within this time
            std::thread::sleep(SETTLES);
        } else if now_s != renewed_s {
            renewed_s = now_s;
            if let Err(why) = gate.renew_answers(now_s, LASTS) {
                say(format_args!("gate_answers: {why}; the server answers"));
            }
        }
        handler.record(now, |each| {
            rest = match given.read(each) {
                Ok(0) => LOOK_EVERY,
                Ok(_) => READ_EVERY,
                Err(error) => {
                    say(format_args!("gate_answers: records: {error}"));
                    LOOK_EVERY
                }
            };
        });
        if is_over {
            return handler.end_records();
        }
    }
}

/// The output of `forebay answers`.
pub(crate) fn report(
    learner: Option<&Arc<Learner>>,
    config: &Config,
    has_bans: bool,
) -> CommandAnswer {
    let mut text = String::new();
    let Some(learner) = learner else {
        let hinders = answers::of_process(config).into_iter().map(|why| why.to_string());
        let bans = has_bans.then(|| "clients are banned, whom the kernel does not know".to_owned());
        let off = (!config.gate_answers).then(|| "gate_answers is off".to_owned());
        let why: Vec<_> = off.into_iter().chain(hinders).chain(bans).collect();
        return CommandAnswer {
            code: 0,
            text: format!("nothing is answered: {}\n", why.join("; ")),
        };
    };
    let LearnerReport { learned, refused } = learner.report();
    let bytes: usize = learned.iter().map(|row| row.bytes).sum();
    let _ = writeln!(text, "{} answers, {bytes} bytes", learned.len());
    for row in &learned {
        let (key, given, bytes) = (&row.key, row.given, row.bytes);
        let _ = writeln!(text, "{given:>10} {bytes:>6} bytes  {}  {key}", key.listener);
    }
    for (key, why) in &refused {
        let _ = writeln!(text, "       not               {}  {key}: {why}", key.listener);
    }
    CommandAnswer { code: 0, text }
}
