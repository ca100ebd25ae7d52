//! One site as it is served: its settings, its root, its small pages.

use crate::fields::{Dress, dress_of};
use crate::guard::{self, Guard};
use crate::pages::Pages;
use crate::root::Place;
use crate::settings::{OpenError, SiteSettings};
use forebay_sys::file::{self, Failure};
use std::os::fd::AsFd;

/// One site.
#[derive(Debug)]
pub(crate) struct VirtualHost {
    pub(crate) settings: SiteSettings,
    /// `None` if it has no files.
    pub(crate) place: Option<Place>,
    /// The number of its first realm among those of all sites.
    first_realm: u32,
    /// Whether the first header rule is the one for what is protected by passwords.
    has_private_rule: bool,
    pub(crate) pages: Pages,
}

impl VirtualHost {
    pub(crate) fn open(
        settings: &SiteSettings,
        first_realm: u32,
        is_server_named: bool,
    ) -> Result<VirtualHost, OpenError> {
        let place = match &settings.root {
            Some(root) => {
                let failed = |error| OpenError::Root { root: root.clone(), error };
                let place = Place::open(root).map_err(failed)?;
                let found = file::find_beneath(place.current().directory.as_fd(), b"");
                found.map_err(|error| match file::failure(&error) {
                    Failure::Denied => failed(error),
                    _ => OpenError::Beneath { error },
                })?;
                Some(place)
            }
            None => None,
        };
        let mut settings = settings.clone();
        let private = guard::private_rule(&settings);
        let has_private_rule = private.is_some();
        settings.headers.splice(..0, private);
        let pages = Pages::new(is_server_named);
        Ok(VirtualHost { settings, place, first_realm, has_private_rule, pages })
    }

    /// The rules about clients that are for an answer with these paths.
    #[inline]
    pub(crate) fn guard_of(&self, paths: &[&[u8]]) -> Option<Box<Guard>> {
        let has_rules = !self.settings.auth.is_empty() || !self.settings.access.is_empty();
        has_rules.then(|| Guard::of(&self.settings, self.first_realm, paths)).flatten()
    }

    /// The numbers of the header rules for an answer with these rules about clients: those for its
    /// path, and the one for what is private.
    pub(crate) fn dress_with(&self, dress: &[u16], guard: Option<&Guard>) -> Box<[u16]> {
        let is_private = self.has_private_rule && guard.is_some_and(Guard::is_private);
        let private = (is_private && dress.first() != Some(&0)).then_some(0);
        private.into_iter().chain(dress.iter().copied()).collect()
    }

    /// The header rules with these numbers.
    pub(crate) fn dress<'v>(&'v self, numbers: &'v [u16]) -> Dress<'v> {
        Dress::new(&self.settings.headers, numbers)
    }

    /// The numbers of the header rules for a path.
    pub(crate) fn dress_of(&self, path: &[u8]) -> Box<[u16]> {
        let is_private = || self.guard_of(&[path]).is_some_and(|guard| guard.is_private());
        let first = u16::from(self.has_private_rule && !is_private());
        dress_of(&self.settings.headers, first, path)
    }

    /// The file that stands for an error, if it may be shown to a client that has passed these rules
    /// and perhaps no others.
    pub(crate) fn error_page(&self, status: u16, passed: Option<&Guard>) -> Option<&str> {
        let mut pages = self.settings.errors.iter();
        let page = pages.find(|page| page.status() == status)?.path();
        let guard = self.guard_of(&[page.as_bytes()]);
        let is_open = |guard: &Guard| passed.is_some_and(|passed| passed.covers(guard));
        guard.as_deref().is_none_or(is_open).then_some(page)
    }
}
