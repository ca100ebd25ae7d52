//! The request as the steps of a site pass it on.

use crate::answering::body::Body;
use forebay_conn::{Reply, Request};

/// A request whose site is known, and the reply that its answer goes to.
pub(crate) struct SiteRequest<'s, 'r> {
    /// The site, as its place in [`ContentSettings::sites`](crate::ContentSettings::sites).
    pub(crate) site: u32,
    pub(crate) request: &'s Request<'s>,
    pub(crate) reply: &'s mut Reply<'r, Body>,
}
