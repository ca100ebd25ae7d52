//! Answers that the kernel gives in this server's place: which ones are offered to it, and how those that
//! it has given are counted and logged.

use super::RequestHandler;
use crate::kernel_answers::{AnswerKey, GivenAnswer};
use crate::policy::{JudgeContext, Ticket};
use forebay_conn::{
    Admission as _, Answered, ArrivalTimes, Hooks as _, Journal as _, Peer, Request, Settled,
    TurnTime,
};
use forebay_http::head::{Head, HeadLimits, Lines, Method, ParsedHead};
use forebay_http::path::NormalPath;
use forebay_metrics::Counter;

impl RequestHandler {
    /// Offers the answer that was just given to the kernel, if it is asked for again and again.
    #[inline]
    pub(super) fn offer_to_kernel(&mut self, request: &Request<'_>) {
        if self.answers.is_some() {
            self.offer_hot(request);
        }
    }

    #[inline]
    fn offer_hot(&mut self, request: &Request<'_>) {
        let (Some(hot), Some(learner)) = (self.site.take_hot(), &self.answers) else { return };
        let Request { head, peer, .. } = *request;
        // the kernel reads nothing of TLS and of proxies' headers
        let is_plain = peer.secured.is_none() && peer.stated.is_none() && !peer.is_unix();
        let is_read = matches!(head.method, Method::Get | Method::Head);
        if is_plain
            && is_read
            && let Some(listener) = learner.listener_of(peer.local)
            && let Some(key) = AnswerKey::of(listener, head.authority, head.path, head.query)
        {
            learner.offer(key, hot, self.now.monotonic_ms);
        }
    }

    /// Counts and logs the answers of the kernel, which `read` hands out, and has the kernel drop answers
    /// that it may no longer give. Called some times a second, on a thread that serves no clients.
    pub fn record(&mut self, now: TurnTime, read: impl FnOnce(&mut dyn FnMut(&GivenAnswer<'_>))) {
        self.turn(now);
        read(&mut |given| self.given(given));
        if let Some(learner) = &self.answers {
            learner.look(now.monotonic_ms);
        }
    }

    /// Ends the answers of the kernel.
    pub fn end_records(&mut self) {
        self.answers.take().iter().for_each(|learner| learner.close());
        self.logger.flush();
    }

    /// Counts a request that the kernel has answered, and writes its log line, as if it had been answered
    /// here.
    fn given(&mut self, given: &GivenAnswer<'_>) {
        let mut lines = Lines::new();
        let parsed = Head::parse(given.head, &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else {
            debug_assert!(false, "the kernel has answered what is no head: {parsed:?}");
            return;
        };
        let peer = Peer::new(given.client, given.local);
        let normal = NormalPath::default();
        let request = Request::new(&head, &peer, &normal);
        let mut ticket = self.judge_given(&request);
        let at_ns = given.at_ns;
        let stages = ArrivalTimes { begun_ns: at_ns, complete_ns: at_ns };
        let of_line = Answered {
            peer: &peer,
            request: Some(&request),
            ticket: Some(&ticket),
            status: given.status,
            stages,
        };
        if let Some(line) = self.line(&of_line) {
            self.log(line, given.body_bytes);
        }
        self.settle(&mut ticket, Settled::Answered);
        self.metrics.add(Counter::of_status(given.status), 1);
        self.metrics.add(Counter::CacheHits, 1);
        self.metrics.add(Counter::ReceivedBytes, given.head.len() as u64);
        self.metrics.add(Counter::SentBytes, given.sent_bytes);
        if let Some(learner) = &self.answers {
            learner.given(given.number);
        }
    }

    /// The ticket of a request that the kernel has judged: nothing is charged for it here.
    fn judge_given(&mut self, request: &Request<'_>) -> Option<Ticket> {
        let judge = self.judge.as_mut()?;
        let paths = match judge.asks_path() {
            true => self.site.judged_paths(request),
            false => Vec::new(),
        };
        let known = JudgeContext {
            trusted: &self.trusted,
            verifier: self.certificates.verifier.as_ref(),
            unix_ms: self.now.unix_ms,
            rank: None,
            paths: &paths,
        };
        Some(judge.given(request, known))
    }
}
