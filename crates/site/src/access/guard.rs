//! Rules about clients: which of them concern an answer, and whether a request passes them. They
//! are those for the path that is asked for, and those for the file that is found.
//!
//! Which rules concern a path is decided when its entry is made. So a hit on a path without such
//! rules costs a look at an empty field, and one with rules a comparison of addresses.

use crate::access::auth::{AuthDecision, Own, Realms, Verification};
use crate::heads::pages::RefusalPage;
use crate::routing::inverse::PathName;
use crate::routing::names::{MountedPlace, names};
use crate::rules::{FieldName, FieldValue, GuardedPaths, HeaderRule};
use crate::settings::SiteSettings;
use forebay_conn::Request;
use forebay_http::head::Head;
use std::net::IpAddr;
use std::sync::Arc;

/// The `Retry-After` of a client refused for too many credentials, in seconds.
const RETRY_S: &[u8] = b"1";

/// The text for a client that an access rule does not admit.
const BY_ADDRESS: &str = "This is not for clients with your address";

/// The rules of a site that concern one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    /// The access rules, by their places in the settings, in their order.
    access: Box<[u16]>,
    /// The realms that its paths are in, by their numbers among those of all sites. A client must be
    /// known in each; more than one is rare.
    realms: Box<[u32]>,
    /// The rules that ask another server, by their places in the settings: the first for each path.
    asks: Box<[u16]>,
    /// The answer is sent only at the request of an application.
    is_internal: bool,
}

/// The tables that a guard's numbers point into.
pub(crate) struct GuardRules<'s, A> {
    pub(crate) site: &'s SiteSettings,
    pub(crate) realms: &'s Arc<Realms>,
    /// Whether the access rule with this number is for the request.
    pub(crate) applies: A,
}

/// The reason why an answer is not sent yet, or not at all.
pub(crate) enum Stop {
    /// The client is refused.
    Refuse(RefusalPage),
    /// The client's credentials must be verified.
    Verify(Verification),
    /// Another server must be asked, by the rule with this number.
    Ask(u16),
}

impl Guard {
    /// The guard of the answer with these paths: the one that is asked for, and those under which
    /// the file is looked for and found. `None` if no rule concerns them. The realms of the site
    /// are numbered from `first_realm` on.
    pub(crate) fn of(
        site: &SiteSettings,
        directories: &[MountedPlace<'_>],
        first_realm: u32,
        paths: &[&[u8]],
    ) -> Option<Box<Guard>> {
        let (mut access, mut realms, mut asks) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_internal = false;
        for name in paths.iter().flat_map(|path| names(site, directories, path)) {
            let rules = (0..=u16::MAX).zip(&site.access);
            let fitting = rules.filter(|(_, rule)| name.is_closed_by(&rule.paths));
            access.extend(fitting.map(|(number, _)| number));
            let closed = site.auth.iter().map(|rule| &rule.paths);
            add_first(&mut realms, (first_realm..).zip(closed), &name);
            add_first(&mut asks, (0..=u16::MAX).zip(&site.asks), &name);
            is_internal |= site.internal.iter().any(|scope| name.is_in(scope));
        }
        access.sort_unstable();
        access.dedup();
        let is_needed = is_internal || !(realms.is_empty() && access.is_empty() && asks.is_empty());
        let (access, realms, asks) = (access.into(), realms.into(), asks.into());
        is_needed.then(|| Box::new(Guard { access, realms, asks, is_internal }))
    }

    /// Whether a client that passes this one passes `other`, too.
    pub(crate) fn covers(&self, other: &Guard) -> bool {
        other.access.iter().all(|number| self.access.contains(number))
            && other.realms.iter().all(|realm| self.realms.contains(realm))
            && other.asks.iter().all(|number| self.asks.contains(number))
            && (self.is_internal || !other.is_internal)
    }

    /// Whether some realm reads its users from a file.
    pub(crate) fn reads_files(&self, realms: &Realms) -> bool {
        self.realms.iter().any(|realm| realms.has_file(*realm))
    }

    /// Whether the answer is only for clients that name themselves.
    pub(crate) fn is_private(&self) -> bool {
        !(self.realms.is_empty() && self.asks.is_empty())
    }

    /// Checks everything but the servers that must be asked: the address first, as it costs
    /// nothing, by the access rules that apply to the request, then the credentials.
    #[inline]
    pub(crate) fn check(
        &self,
        rules: GuardRules<'_, impl Fn(u16) -> bool>,
        request: &Request<'_>,
        client: impl FnOnce() -> IpAddr,
        own: &mut Own,
        now_ms: u64,
    ) -> Result<(), Stop> {
        let passed = request.passed;
        if self.is_internal && passed.is_none_or(|passed| passed.sent.is_none()) {
            return Err(Stop::Refuse(RefusalPage::of(404)));
        }
        self.check_with(rules, request.head, client(), own, now_ms)
    }

    /// Checks that every server that must be asked has let the request through; `is_allowed` says
    /// so of a rule.
    #[inline]
    pub(crate) fn check_asked(&self, is_allowed: impl Fn(u16) -> bool) -> Result<(), Stop> {
        match self.asks.iter().find(|&&number| !is_allowed(number)) {
            Some(number) => Err(Stop::Ask(*number)),
            None => Ok(()),
        }
    }

    #[inline]
    fn check_with(
        &self,
        rules: GuardRules<'_, impl Fn(u16) -> bool>,
        head: &Head<'_>,
        client: IpAddr,
        own: &mut Own,
        now_ms: u64,
    ) -> Result<(), Stop> {
        let GuardRules { site, realms, applies } = rules;
        let has_passed = std::mem::take(&mut own.has_passed);
        let numbers = self.access.iter().filter(|number| applies(**number));
        let mut rules = numbers.filter_map(|number| site.access.get(usize::from(*number)));
        if let Some(rule) = rules.find(|rule| !rule.admits(client)) {
            return Err(Stop::Refuse(RefusalPage::new(403, rule.refusal.unwrap_or(BY_ADDRESS))));
        }
        for realm in &self.realms {
            stop(realms.decide(*realm, head, own, now_ms, client), realms, *realm)?;
        }
        own.has_passed = has_passed || !self.realms.is_empty();
        Ok(())
    }
}

/// Adds the number of the first rule for a name.
fn add_first<'s, N: PartialEq>(
    numbers: &mut Vec<N>,
    mut rules: impl Iterator<Item = (N, &'s GuardedPaths)>,
    name: &PathName,
) {
    let first = rules.find(|(_, paths)| name.is_closed_by(paths)).map(|(number, _)| number);
    numbers.extend(first.filter(|number| !numbers.contains(number)));
}

/// The refusal, or the verification, that a decision leads to.
pub(crate) fn stop(decision: AuthDecision, realms: &Realms, realm: u32) -> Result<(), Stop> {
    let (status, text) = match decision {
        AuthDecision::Pass => return Ok(()),
        AuthDecision::Verify(verification) => return Err(Stop::Verify(verification)),
        AuthDecision::Refuse => (401, "A name and a password are needed here"),
        AuthDecision::Broken => (500, "Nobody can be let in, because nobody is known"),
        AuthDecision::LimitReached(status) => (status, "Too many passwords are being checked"),
    };
    let mut refusal = RefusalPage::new(status, text);
    match status {
        401 => refusal.fields.push(("WWW-Authenticate", realms.challenge(realm).to_vec())),
        429 | 503 => refusal.fields.push(("Retry-After", RETRY_S.to_vec())),
        _ => {}
    }
    Err(Stop::Refuse(refusal))
}

/// The header rule that marks answers behind a password as private. It goes before all others, so
/// that the operator's rules have the last word. The other directives of `cache_control` stay.
/// `None` if `cache_control` already says for whom answers may be stored.
pub(crate) fn private_rule(site: &SiteSettings) -> Option<HeaderRule> {
    let said = site.cache_control.as_deref().unwrap_or_default();
    let directives = || said.split(',').map(|at| at.split('=').next().unwrap_or_default().trim());
    let decided = ["private", "public", "no-store", "s-maxage"];
    let is_decided = |at: &str| decided.iter().any(|known| at.eq_ignore_ascii_case(known));
    if (site.auth.is_empty() && site.asks.is_empty()) || directives().any(is_decided) {
        return None;
    }
    let value = if said.is_empty() { "private".to_owned() } else { format!("private, {said}") };
    let name = FieldName::parse("Cache-Control").ok()?;
    let value = FieldValue::parse(&value).or_else(|_| FieldValue::parse("private")).ok()?;
    HeaderRule::new(None, None, vec![(name, value)], Vec::new()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{AccessRule, Auth, Network, Pattern, Realm, Rewrite, Scope, Template};

    fn scope(text: &str) -> Scope {
        Scope::parse(text).unwrap()
    }

    fn access(path: &str, allow: &[&str], deny: &[&str]) -> AccessRule {
        let networks =
            |texts: &[&str]| texts.iter().map(|at| Network::parse(at).unwrap()).collect();
        AccessRule {
            paths: scope(path).into(),
            allow: networks(allow),
            deny: networks(deny),
            conditions: Default::default(),
            refusal: None,
        }
    }

    fn auth(path: &str) -> Auth {
        Auth { paths: scope(path).into(), realm: Realm::default(), users: Vec::new(), file: None }
    }

    #[test]
    fn the_rules_of_a_path_are_all_for_access_and_the_first_for_auth() {
        let site = SiteSettings {
            access: vec![access("*", &[], &[]), access("/a/*", &[], &[]), access("*.x", &[], &[])],
            auth: vec![auth("/b/*"), auth("/a/b/*"), auth("/a/*")],
            ..SiteSettings::default()
        };
        for (path, numbers, realm) in [
            ("/", &[0][..], None),
            ("/a/b/c", &[0, 1], Some(11)),
            ("/a/c.x", &[0, 1, 2], Some(12)),
            ("/b/", &[0], Some(10)),
            ("/b", &[0], None),
        ] {
            let guard = *Guard::of(&site, &[], 10, &[path.as_bytes()]).unwrap();
            let realms = Vec::from_iter(realm);
            assert_eq!((&*guard.access, &*guard.realms), (numbers, &*realms), "{path}");
        }
        assert_eq!(Guard::of(&SiteSettings::default(), &[], 0, &[b"/"]), None);
        let guard = *Guard::of(&site, &[], 10, &[b"/b/", b"/a/b/c.x", b"/b/d"]).unwrap();
        assert_eq!((&*guard.access, &*guard.realms), (&[0, 1, 2][..], &[10, 11][..]));
        let other = Guard::of(&site, &[], 10, &[b"/b/"]).unwrap();
        assert!(guard.covers(&other) && !other.covers(&guard));
    }

    #[test]
    fn compressed_forms_are_protected_like_their_file() {
        let mut site = SiteSettings {
            access: vec![access("/pub.txt", &["10.0.0.0/8"], &[])],
            auth: vec![auth("/secret.html"), auth("*.php")],
            ..SiteSettings::default()
        };
        let protected =
            |site: &SiteSettings, path: &[u8]| Guard::of(site, &[], 0, &[path]).is_some();
        for path in
            ["/secret.html", "/secret.html.gz", "/secret.html.br", "/a.php.zst", "/pub.txt.gz"]
        {
            assert!(protected(&site, path.as_bytes()), "{path}");
        }
        assert!(!protected(&site, b"/other.html.gz"));
        site.precompressed = false;
        assert!(!protected(&site, b"/secret.html.gz"), "a file of its own");
    }

    #[test]
    fn where_a_path_is_not_known_rules_hold_that_are_for_all_it_may_be() {
        let pattern = Pattern::parse("/n/*/*").unwrap();
        let rewrite = Rewrite::new(pattern, Template::parse("/store/$2").unwrap()).unwrap();
        let site = SiteSettings {
            access: vec![access("/n/a", &[], &[]), access("/o", &[], &[]), access("*.x", &[], &[])],
            auth: vec![auth("/n/a"), auth("/o"), auth("/n"), auth("/n/b")],
            rewrites: vec![rewrite],
            ..SiteSettings::default()
        };
        let guard = *Guard::of(&site, &[], 10, &[b"/store/file"]).unwrap();
        assert_eq!((&*guard.access, &*guard.realms), (&[][..], &[12][..]));
        let guard = *Guard::of(&site, &[], 10, &[b"/store/file.x"]).unwrap();
        assert_eq!((&*guard.access, &*guard.realms), (&[2][..], &[12][..]));
        assert_eq!(Guard::of(&site, &[], 10, &[b"/stores/file"]), None);
    }

    #[test]
    fn an_exception_opens_what_is_open_under_all_its_names() {
        let guarded = |path: &str, except: &[&str]| GuardedPaths {
            path: scope(path),
            except: except.iter().map(|text| scope(text)).collect(),
        };
        let rewrite = |from, to| {
            Rewrite::new(Pattern::parse(from).unwrap(), Template::parse(to).unwrap()).unwrap()
        };
        let mut site = SiteSettings {
            auth: vec![
                Auth { paths: guarded("/in", &["/in/open"]), ..auth("*") },
                Auth { paths: guarded("/", &["/_ping", "/in/open/er", "=/", "/n/a"]), ..auth("*") },
            ],
            asks: vec![guarded("*", &["/_ping", "=/", "=/index.html"])],
            rewrites: vec![rewrite("/n/*/*", "/store/$2"), rewrite("/_ping/*", "/pages/$1")],
            ..SiteSettings::default()
        };
        type Closed<'c> = (&'c [u8], &'c [&'c [u8]], &'c [u32], &'c [u16]);
        let cases: [Closed<'_>; 8] = [
            (b"ping", &[b"/_ping"], &[], &[]),
            (b"both names", &[b"/_ping/x", b"/pages/x"], &[11], &[0]),
            (b"an index has its own name", &[b"/", b"/index.html"], &[11], &[]),
            (b"the next rule decides", &[b"/in/open"], &[11], &[0]),
            (b"or none", &[b"/in/open/er"], &[], &[0]),
            (b"the first", &[b"/in/x"], &[10], &[0]),
            (b"some of many", &[b"/n/a/x", b"/store/x"], &[11], &[0]),
            (b"not plain", &[b"/_ping/%2e%2e/x"], &[11], &[0]),
        ];
        for (what, paths, realms, asks) in cases {
            let guard = Guard::of(&site, &[], 10, paths);
            let found = guard.as_deref().map(|guard| (&*guard.realms, &*guard.asks));
            let what = String::from_utf8_lossy(what);
            assert_eq!(found.unwrap_or_default(), (realms, asks), "{what}");
        }
        // a compressed form is open with its file, and closed with it
        site = SiteSettings { asks: vec![guarded("*", &["=/a.css"])], ..SiteSettings::default() };
        assert!(Guard::of(&site, &[], 0, &[b"/a.css"]).is_none());
        assert!(Guard::of(&site, &[], 0, &[b"/a.css.gz"]).is_some());
    }

    #[test]
    fn every_rule_must_admit() {
        let site = SiteSettings {
            access: vec![
                access("*", &[], &["192.0.2.0/24"]),
                access("/in/*", &["10.0.0.0/8"], &[]),
            ],
            ..SiteSettings::default()
        };
        let realms = Arc::new(Realms::new(std::iter::empty()).unwrap());
        for (path, client, expected) in [
            ("/", "192.0.2.1", Some(403)),
            ("/", "10.0.0.1", None),
            ("/", "8.8.8.8", None),
            ("/in/", "8.8.8.8", Some(403)),
            ("/in/", "10.0.0.1", None),
            ("/in/", "::ffff:10.0.0.1", None),
            ("/in/", "192.0.2.1", Some(403)),
        ] {
            let guard = Guard::of(&site, &[], 0, &[path.as_bytes()]).unwrap();
            let client = client.parse().unwrap();
            let mut own = Own::default();
            let rules = || GuardRules { site: &site, realms: &realms, applies: |_| true };
            let check = |head: &Head<'_>| guard.check_with(rules(), head, client, &mut own, 0);
            let status = match crate::testing::with_head("", check) {
                Ok(()) => None,
                Err(Stop::Refuse(refusal)) => Some(refusal.status),
                Err(Stop::Verify(_) | Stop::Ask(_)) => panic!("there is no realm"),
            };
            assert_eq!(status, expected, "{path} {client}");
        }
    }

    #[test]
    fn what_is_protected_is_private_unless_set_otherwise() {
        let value = |cache_control: Option<&str>| {
            let site = SiteSettings {
                cache_control: cache_control.map(str::to_owned),
                auth: vec![auth("/a/*")],
                ..SiteSettings::default()
            };
            private_rule(&site).map(|rule| rule.set()[0].1.as_str().to_owned())
        };
        for (said, expected) in [
            (None, Some("private")),
            (Some("no-cache"), Some("private, no-cache")),
            (Some("max-age=60"), Some("private, max-age=60")),
            (Some("max-age=60, Public"), None),
            (Some("no-store"), None),
            (Some("s-maxage=9"), None),
        ] {
            assert_eq!(value(said).as_deref(), expected, "{said:?}");
        }
    }
}
