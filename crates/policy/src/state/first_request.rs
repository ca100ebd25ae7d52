//! Charging a request that the kernel may have charged already.

use super::{ChargeOutcome, State};
use crate::decision::{Decisions, RefusalReason};
use forebay_http::client::ClientKey;
use std::net::IpAddr;

impl State {
    /// Charges a request like [`charge_request`](State::charge_request), except that it may have been
    /// `charged` already to the limit on requests of a rule, in a [given word](State::with_words): then that
    /// limit is not charged again. A charge that turns out not to be needed is given back: another rule
    /// decides by now, or the request is refused for another reason.
    pub fn charge_first_request(
        &self,
        decisions: &Decisions,
        client: IpAddr,
        now_ns: u64,
        charged: Option<u32>,
    ) -> ChargeOutcome {
        let outcome = self.charge_but(decisions, client, now_ns, charged);
        let is_used = decisions.requests == charged
            && match &outcome {
                ChargeOutcome::Admit(_) => true,
                // the agent's check is the last, and has given back what this rule was charged
                ChargeOutcome::Refuse(refused) => refused.reason == RefusalReason::Agent,
            };
        if !is_used && let Some(rule) = charged {
            self.refund_request(rule, ClientKey::of(client), now_ns);
        }
        outcome
    }
}
