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

    /// The rules about clients that are for a path; none are for the key of an
    /// [`Inner`](crate::entry::Inner), which is asked for by those who passed.
    #[inline]
    pub(crate) fn guard_of(&self, path: &[u8]) -> Option<Box<Guard>> {
        let has_rules = !self.settings.auth.is_empty() || !self.settings.access.is_empty();
        let is_path = path.first() == Some(&b'/');
        (has_rules && is_path).then(|| Guard::of(&self.settings, self.first_realm, path)).flatten()
    }

    /// The header rules with these numbers.
    pub(crate) fn dress<'v>(&'v self, numbers: &'v [u16]) -> Dress<'v> {
        Dress::new(&self.settings.headers, numbers)
    }

    /// The numbers of the header rules for a path.
    pub(crate) fn dress_of(&self, path: &[u8]) -> Box<[u16]> {
        let is_private = || self.guard_of(path).is_some_and(|guard| guard.is_private());
        let first = u16::from(self.has_private_rule && !is_private());
        dress_of(&self.settings.headers, first, path)
    }

    /// The file that stands for an error.
    pub(crate) fn error_page(&self, status: u16) -> Option<&str> {
        let mut pages = self.settings.errors.iter();
        pages.find(|page| page.status() == status).map(|page| page.path())
    }
}
