//! The [`Protocol`] of HTTP/2: how an engine drives such a connection.

use super::{BATCH_BYTES, GOODBYE, Http2, KeptFor, Live, LiveState};
use crate::context::Context;
use crate::handler::{HandlerRoles, Relay, Settled};
use crate::input::Input;
use crate::peer::Peer;
use crate::protocol::{Awaited, Protocol};
use crate::rank::Rank;
use crate::request::RequestId;
use crate::socket::{SocketId, Wants};
use crate::step::{Await, Closing, Step};
use crate::wake::WakeSlot;
use forebay_http2::ErrorCode;
use forebay_metrics::Stopwatch;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

impl<H: HandlerRoles> Protocol<H> for Http2<H> {
    fn advance<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        input: &mut Input,
    ) -> Step<H::Job> {
        // else the client takes nothing, and only other work is done
        let is_fresh = cx.out.is_empty();
        self.is_stuck = false;
        if cx.draining || self.served >= cx.limits.requests {
            self.say_goodbye(cx.now_ms);
        }
        if self.input_ended && self.relays > 0 {
            self.abort_relays(cx);
        }
        if cx.handler.takes_turns(cx.peer) {
            cx.budget = cx.budget.min(1);
        }
        let step = loop {
            if let Some(event) = cx.event.take() {
                self.happened(cx, event);
            }
            if let Some(step) = self.go_on(cx, is_fresh) {
                break step;
            }
            // received frames may be more urgent than what is being sent, or may end it
            if self.may_receive(cx, input) {
                match self.receive(cx, input) {
                    None => continue,
                    // only a part of a frame is there
                    Some(Step::Receive | Step::Wait | Step::Close(_)) => {}
                    Some(step) => break step,
                }
            }
            self.fill(cx);
            // a file may have to be read first
            if !self.asking.is_empty() {
                continue;
            }
            if cx.out.bytes.len() >= BATCH_BYTES {
                // nothing is received until the client takes something, so exchanges must begin here
                if !is_fresh && !self.beginning.is_empty() {
                    self.begin_exchanges(cx);
                    continue;
                }
                self.is_stuck = !is_fresh;
                break if is_fresh { Step::Send } else { Step::Wait };
            }
            match self.receive(cx, input) {
                None => {}
                Some(step) => break step,
            }
        };
        self.machine.flush(&mut cx.out.bytes);
        match step {
            Step::Receive | Step::Wait | Step::Yield | Step::Close(_)
                if is_fresh && !cx.out.is_empty() =>
            {
                Step::Send
            }
            step => step,
        }
    }

    fn resume(&mut self, input: &mut Input) {
        input.resume(&mut self.held);
    }

    fn suspend(&mut self, input: &mut Input) {
        input.hold(&mut self.held);
    }

    fn end_input(&mut self) {
        self.input_ended = true;
    }

    fn wants_input(&self) -> bool {
        !self.input_ended && !self.is_stuck && self.closing.is_none()
    }

    fn goes_on(&self) -> bool {
        true
    }

    fn body_sent(&mut self, _: u64) {}

    fn sent(&mut self, handler: &mut H) {
        self.end_all(handler, Settled::Answered);
    }

    fn abandon(&mut self, handler: &mut H, peer: &Peer) {
        self.end_all(handler, Settled::Cut);
        let streams: Vec<u32> = self.live.iter().map(|(stream, _)| stream).collect();
        if !streams.is_empty() {
            // the client is charged whichever side has ended the connection, which is over already
            handler.charge_given_up(peer, streams.len());
        }
        for stream in streams {
            if let Some(live) = self.live.remove(stream) {
                self.give_up(handler, peer, stream, live);
            }
        }
    }

    fn expire<S: Stopwatch>(
        &mut self,
        cx: &mut Context<'_, H, S>,
        _: &mut Input,
        awaited: Awaited,
    ) -> Option<Closing> {
        let stream = awaited.id.0;
        match awaited.what {
            Await::Body => {
                self.refuse_kept(cx, stream, 408, "the request body took too long to arrive");
            }
            Await::Job | Await::Admission => {
                self.expire_kept(cx, stream);
            }
            Await::Send if awaited.id == RequestId::SENDING => {
                self.fail(ErrorCode::ENHANCE_YOUR_CALM, "the connection's window stays closed");
                self.machine.flush(&mut cx.out.bytes);
                return Some(Closing::Linger);
            }
            Await::Link if awaited.id == GOODBYE => self.machine.drain_now(),
            Await::Send => self.reset(cx.handler, cx.peer, stream, ErrorCode::CANCEL),
            Await::Place
            | Await::Slot
            | Await::Connect
            | Await::Answer
            | Await::Flow
            | Await::Ending
            | Await::Link
            | Await::Rest => {
                self.expire_relay(cx, stream);
            }
            Await::Idle | Await::Head => {
                self.machine.drain_now();
                self.machine.flush(&mut cx.out.bytes);
                return Some(Closing::Linger);
            }
        }
        self.machine.flush(&mut cx.out.bytes);
        None
    }

    fn awaits(&self) -> Awaited {
        if let Some(awaited) = self.waiting().next() {
            return awaited;
        }
        let what = if self.closing.is_some() || !self.live.is_empty() {
            // the window is closed, or the client has not taken the last bytes
            return Awaited { what: Await::Send, id: RequestId::SENDING };
        } else if self.held.is_empty() && self.served > 0 && !self.machine.is_within_head() {
            if self.machine.is_announced() {
                return Awaited { what: Await::Link, id: GOODBYE };
            }
            if self.machine.is_draining() { Await::Head } else { Await::Idle }
        } else {
            Await::Head
        };
        Awaited { what, id: RequestId(self.served) }
    }

    fn also_awaits(&self, tell: &mut dyn FnMut(Awaited)) {
        self.waiting().for_each(&mut *tell);
        if self.machine.is_announced() {
            tell(Awaited { what: Await::Link, id: GOODBYE });
        }
        if self.machine.is_closed() && self.live.iter().any(|(_, live)| live.is_sending()) {
            tell(Awaited { what: Await::Send, id: RequestId::SENDING });
        }
    }

    fn taken(&mut self, id: RequestId) -> u64 {
        if id == RequestId::SENDING {
            return std::mem::take(&mut self.body_bytes);
        }
        let (told_bytes, body_bytes) = match self.live.get_mut(id.0).map(|live| &mut live.phase) {
            Some(LiveState::Answered(sending)) => (&mut sending.told_bytes, sending.body_bytes),
            Some(LiveState::Relaying(relaying)) => return relaying.newly_written(),
            _ => return 0,
        };
        body_bytes - std::mem::replace(told_bytes, body_bytes)
    }

    fn left(&self) -> u64 {
        let of_answer = |live: &Live<H>| match &live.phase {
            LiveState::Answered(sending) => sending.left,
            LiveState::Relaying(relaying) => relaying.left(),
            LiveState::Asked(_) => 0,
        };
        self.live.iter().map(|(_, live)| of_answer(live)).fold(0, u64::saturating_add)
    }

    fn deadline_ms(&self, awaited: Awaited) -> u64 {
        if awaited.id == GOODBYE {
            return self.goodbye_ms;
        }
        match self.live.get(awaited.id.0).map(|live| &live.phase) {
            Some(LiveState::Relaying(relaying)) => relaying.relay.deadline_ms(),
            _ => u64::MAX,
        }
    }

    fn sockets<'s>(&'s self, tell: &mut dyn FnMut(RequestId, SocketId, BorrowedFd<'s>, Wants)) {
        if self.relays == 0 {
            return;
        }
        for (stream, live) in self.live.iter() {
            let LiveState::Relaying(relaying) = &live.phase else { continue };
            let relay = &relaying.relay;
            for (socket_id, socket, wants) in relay.socket().into_iter().chain(relay.other_socket())
            {
                tell(RequestId(stream), socket_id, socket, wants);
            }
        }
    }

    fn wake_slots<'s>(&'s self, tell: &mut dyn FnMut(RequestId, &'s WakeSlot)) {
        for (stream, live) in self.live.iter().filter(|_| self.relays > 0) {
            if let LiveState::Relaying(relaying) = &live.phase
                && let Some(slot) = relaying.relay.wake_slot()
            {
                tell(RequestId(stream), slot);
            }
        }
    }

    fn has_sockets(&self) -> bool {
        self.relays > 0
    }

    fn rank_and_client(&self, id: RequestId) -> (Rank, Option<IpAddr>) {
        match self.live.get(id.0).map(|live| &live.phase) {
            Some(LiveState::Asked(kept)) => (kept.grant.rank, kept.grant.client),
            Some(LiveState::Answered(sending)) => (sending.rank, sending.client),
            Some(LiveState::Relaying(relaying)) => {
                let grant = &relaying.kept.grant;
                (grant.rank, grant.client)
            }
            None => (self.rank, self.client),
        }
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn set_rank(&mut self, rank: Rank) {
        self.rank = rank;
    }

    fn is_queued(&self) -> bool {
        let is_queued = |live: &Live<H>| {
            let LiveState::Asked(kept) = &live.phase else { return false };
            !matches!(
                kept.stage,
                KeptFor::Body(_)
                    | KeptFor::Begin
                    | KeptFor::Deciding(None)
                    | KeptFor::Job(None)
                    | KeptFor::Again(None)
            )
        };
        self.live.iter().any(|(_, live)| is_queued(live))
    }

    fn is_at_rest(&self) -> bool {
        self.live.is_empty() && self.held.is_empty() && !self.machine.is_within_head()
    }

    fn announced_s(&self) -> u32 {
        0
    }

    fn take_handed(&mut self, input: &mut Input) -> (Vec<u8>, H::Ticket) {
        // HTTP/2 connections are shared by requests, so no request is handed over
        input.clear();
        (Vec::new(), H::Ticket::default())
    }
}
