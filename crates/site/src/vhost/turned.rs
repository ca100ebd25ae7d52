//! Answers to clients that the policy refuses: the site's pages for such errors, with its header
//! rules, written once. In overload nothing is answered more often.
//!
//! The files are read when a site is opened and at each reload, not when they change, so that a
//! refusal never waits for a disk.

use crate::heads::media_types::content_type;
use crate::heads::pages::{Page, RefusalPage};
use crate::rules::ConditionBits;
use crate::vhost::VirtualHost;
use forebay_conn::{Reply, Request};
use forebay_sys::file::{self, FileKind};
use std::io;
use std::os::fd::AsFd;

/// Larger pages are not kept for this; a short one stands in for them.
const MOST_PAGE_BYTES: u64 = 64 * 1024;

/// The statuses that rules and the agent refuse with unless another is set.
const USUAL: [u16; 4] = [403, 404, 429, 503];

/// The pages of one site for clients that policy refuses.
#[derive(Debug)]
pub(crate) struct Turned {
    /// The pages by status, with the header rules that are for every path.
    pages: Box<[(Page, Texture)]>,
    /// The header rules that are for every path.
    header_rules: Box<[u16]>,
    /// Whether there are other header rules, for some paths or requests.
    is_by_path: bool,
}

/// The parts of a page besides its status and header rules.
type Texture = Option<(String, Vec<u8>)>;

impl Turned {
    /// Reads the site's error pages. A page that cannot be read, or that is protected or a script,
    /// is left out.
    pub(crate) fn read(vhost: &VirtualHost) -> Turned {
        let headers = &vhost.settings.headers;
        let first = u16::from(vhost.has_private_rule());
        let general: Box<[u16]> = (first..)
            .zip(headers.iter().skip(usize::from(first)))
            .filter(|(_, rule)| rule.path().is_none() && rule.conditions().is_empty())
            .map(|(number, _)| number)
            .collect();
        let mut statuses: Vec<u16> =
            vhost.settings.errors.iter().map(|page| page.status()).collect();
        statuses.extend(USUAL);
        statuses.sort_unstable();
        statuses.dedup();
        let pages = statuses.into_iter().filter(|status| *status >= 400).map(|status| {
            let texture = read_page(vhost, status).ok().flatten();
            (page(vhost, status, &texture, &general), texture)
        });
        Turned {
            pages: pages.collect(),
            is_by_path: first > 0 || general.len() < headers.len(),
            header_rules: general,
        }
    }

    /// Answers a request that is refused with this status; `outcome` are the conditions that hold
    /// for it.
    #[inline]
    pub(crate) fn write<B>(
        &self,
        vhost: &VirtualHost,
        status: u16,
        request: &Request<'_>,
        outcome: ConditionBits,
        reply: &mut Reply<'_, B>,
    ) {
        let known = self.pages.iter().find(|(page, _)| page.status == status);
        if self.is_by_path {
            let of_path = |path: &[u8]| vhost.header_rules_of(path, outcome);
            let header_rules = request.path().map(|path| of_path(&path)).unwrap_or_default();
            if header_rules != self.header_rules {
                let none = None;
                let texture = known.map_or(&none, |(_, texture)| texture);
                return page(vhost, status, texture, &header_rules).write(reply);
            }
        }
        match known {
            Some((page, _)) => page.write(reply),
            None => page(vhost, status, &None, &self.header_rules).write(reply),
        }
    }
}

fn page(vhost: &VirtualHost, status: u16, texture: &Texture, header_rules: &[u16]) -> Page {
    let refusal = RefusalPage::of(status);
    match texture {
        Some((content_type, body)) => vhost.pages.page_of(
            &refusal,
            content_type,
            body.clone(),
            vhost.header_rules(header_rules),
        ),
        None => vhost.pages.page(&refusal, vhost.header_rules(header_rules)),
    }
}

/// The type and the bytes of the site's page for an error, if it has one that every client may see.
/// A script is no such page: none is run for a client that is refused, and its source is never
/// sent.
fn read_page(vhost: &VirtualHost, status: u16) -> io::Result<Texture> {
    let page = vhost.error_page(status, None).filter(|path| !vhost.is_source(path.as_bytes()));
    let Some(path) = page else { return Ok(None) };
    let Some((mount, inside)) = vhost.locate(path.as_bytes()) else { return Ok(None) };
    let Some(mount) = vhost.mounts.get(mount) else { return Ok(None) };
    let root = mount.place.current();
    let inside = inside.strip_prefix(b"/").unwrap_or(inside);
    let found = file::find_beneath(root.directory.as_fd(), inside)?;
    let stamp = file::stamp(found.as_fd())?;
    if stamp.kind != FileKind::Regular || stamp.size > MOST_PAGE_BYTES {
        return Ok(None);
    }
    let open = file::open_beneath(root.directory.as_fd(), inside)?;
    let mut body = vec![0; stamp.size as usize];
    let mut filled = 0;
    while filled < body.len() {
        match file::read_at(open.as_fd(), &mut body[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    body.truncate(filled);
    let content_type = content_type(&vhost.settings.types, path.as_bytes());
    Ok(Some((content_type.to_string(), body)))
}
