//! Facts about a request that are found out before it is answered: which conditions hold, and the
//! values of variables.

use super::Site;
use crate::answering::body::Body;
use crate::request_context::RequestContext;
use crate::rules::ConditionBits;
use forebay_conn::{HeadValues, Reply, Request};
use std::sync::Arc;

impl Site {
    /// Finds out which conditions of a site hold for a request, and the values of its variables.
    /// All answers to the request depend on them.
    pub(crate) fn look_at(
        &mut self,
        site: u32,
        request: &Request<'_>,
        context: &impl RequestContext,
    ) {
        context.begin();
        let Site { content, outcome, known, values, .. } = self;
        let Some(vhost) = content.vhosts.get(site as usize) else {
            *outcome = ConditionBits::default();
            return;
        };
        *outcome = vhost.conditions.outcome(request, context);
        if !vhost.has_variables() {
            return;
        }
        known.learn(vhost.variables.iter(), context);
        if !vhost.values.is_empty() {
            // an answer that has them was written since
            let values = Arc::make_mut(values);
            known.fill(&vhost.values, request, &vhost.settings.hosts, &[], values);
        }
    }

    /// Has values put into the places of the head that is written next.
    pub(crate) fn lend_values(&self, site: u32, reply: &mut Reply<'_, Body>) {
        let vhost = self.content.vhosts.get(site as usize);
        if vhost.is_some_and(|vhost| !vhost.values.is_empty()) {
            reply.change.get_or_insert_default().values = Some(Arc::clone(&self.values));
        }
    }

    /// The values of the request that was looked at last.
    pub(crate) fn values(&self) -> &HeadValues {
        &self.values
    }
}
