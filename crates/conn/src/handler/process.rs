//! The role that knows what the answer is.

use super::{HandlerTypes, Job, NoRelay, Refusal, Relayed};
use crate::reply::Reply;
use crate::request::Request;
use forebay_http::head::Head;

/// Answers requests.
pub trait Process: HandlerTypes {
    /// What answers a request that has a body: this handler, another process, an application. Asked when
    /// the head is there and the request was admitted, before any of the body is read and before `100
    /// Continue` is sent; asked again with the result of a job.
    fn decide(
        &mut self,
        _request: &Request<'_>,
        _ticket: &mut Self::Ticket,
        _done: Option<<Self::Job as Job>::Done>,
    ) -> BodyDecision<Self::Job> {
        BodyDecision::Here
    }

    /// Whether another process is likely to answer the request, with its socket. Such a request is
    /// decided and [processed](Process::process) where its head was received, and waits for nothing here
    /// before that.
    #[inline]
    fn hands_over(&mut self, _request: &Request<'_>) -> bool {
        false
    }

    /// Answers `request` by writing into `reply`, or says what must happen first.
    ///
    /// `ticket` came with its admission; `done` is the result of the job this request was waiting for.
    /// A request may be processed more than once, but is answered exactly once.
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Self::Ticket,
        done: Option<<Self::Job as Job>::Done>,
        reply: &mut Reply<'_, Self::Body>,
    ) -> ProcessOutcome<Self::Job, Self::Relay>;

    /// Answers `request` by what an exchange has brought: its head is there, or it has failed.
    fn relayed(
        &mut self,
        _request: &Request<'_>,
        _ticket: &mut Self::Ticket,
        _relay: &mut Self::Relay,
        reply: &mut Reply<'_, Self::Body>,
    ) -> Relayed<Self::Job> {
        self.refuse(502, "the other server did not answer", reply);
        Relayed::Own
    }

    /// Whether the sender of a request that must wait gets an interim answer (102) which says that the
    /// request is here, in HTTP/1.1. Only servers that ask for it get one: others do not expect interim
    /// answers.
    fn acknowledges(&self, _head: &Head<'_>) -> bool {
        false
    }

    /// Reports that the exchange of a request is about to begin: the exchange was asked for nothing
    /// before. Called once or several times.
    fn begin_exchange(&mut self, _relay: &mut Self::Relay) {}

    /// Takes an exchange back that is over: both sides have got everything.
    fn release(&mut self, _relay: Self::Relay) {}

    /// Answers what never became a request or may not be served: a malformed head, a limit. The
    /// connection is closed afterwards if the caller said so in `reply`.
    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Self::Body>);

    /// Answers what was [not admitted](super::Verdict::Refuse): a request, or a connection before there is
    /// one. In overload nothing is done more often.
    fn turn_away(
        &mut self,
        refusal: Refusal,
        _request: Option<&Request<'_>>,
        reply: &mut Reply<'_, Self::Body>,
    ) {
        reply.retry_after_s = refusal.retry_after_s;
        self.refuse(refusal.status, "refused by policy", reply);
    }
}

/// The party that answers a request, and so what becomes of its body.
#[derive(Debug)]
pub enum BodyDecision<J> {
    /// This handler: the body is discarded, then the request is [processed](Process::process).
    Here,
    /// No party yet: this job must be done first; then the handler decides again with the result.
    Job(J),
    /// Another server does, or the body is not needed: the request goes on at once, and its body of at most
    /// so many bytes of data, stays in the socket. An [exchange](ProcessOutcome::Relay) takes it as it
    /// comes; with any other answer the connection ends, unless all of the body is there.
    Stream(u64),
    /// Another process. The body stays in the socket, which goes there with all that was received;
    /// see [`Hooks::hand_over`](super::Hooks::hand_over).
    HandOver,
}

/// What [`Process::process`] decided.
#[derive(Debug)]
pub enum ProcessOutcome<J, R = NoRelay> {
    /// The answer is written.
    Replied,
    /// This job must be done first; then the request is processed again with its result.
    Job(J),
    /// Another server is asked, once the exchange [begins](Process::begin_exchange), and gives the
    /// answer. An exchange is small, because each of many waiting requests keeps one; its large parts are
    /// in boxes of their own.
    Relay(R),
    /// Another process answers the request; see [`Hooks::hand_over`](super::Hooks::hand_over).
    HandOver,
}
