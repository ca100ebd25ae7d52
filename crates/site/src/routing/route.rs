//! Effects of rules on a path, before any file is looked for.

use crate::heads::fields::HeaderRuleSet;
use crate::heads::pages::Pages;
use crate::routing::location::{LocationPart, address};
use crate::routing::redirection::Redirection;
use crate::rules::{Alias, Captures, ConditionBits, Reach, Redirect, Template, TemplatePart};
use crate::settings::{SiteSettings, ToHttps};
use forebay_http::path;

/// The longest name in any file system (`NAME_MAX`).
const MOST_NAME_BYTES: usize = 255;

/// The redirect for a path, if there is one among those whose places `may_be` accepts.
pub(crate) fn redirect(
    site: &SiteSettings,
    pages: &Pages,
    header_rules: HeaderRuleSet<'_>,
    path: &[u8],
    may_be: impl Fn(usize) -> bool,
) -> Option<Redirection> {
    let found = |rule| Redirect::pattern(rule).captures(path).map(|captures| (rule, captures));
    let mut rules = site.redirects.iter().enumerate().filter(|(place, _)| may_be(*place));
    let (rule, captures) = rules.find_map(|(_, rule)| found(rule))?;
    Some(Redirection {
        status: rule.status(),
        is_for_slash: false,
        head: pages.moved_head(rule.status(), false, header_rules),
        to: address(rule, path, &captures),
    })
}

/// The redirect of a directory to its own address, which is `path` with a slash.
pub(crate) fn add_slash(
    pages: &Pages,
    header_rules: HeaderRuleSet<'_>,
    path: &[u8],
) -> Redirection {
    let mut to = Vec::new();
    path::encode(path, &mut to);
    to.push(b'/');
    Redirection {
        status: 301,
        is_for_slash: true,
        head: pages.moved_head(301, true, header_rules),
        to: Box::new([LocationPart::Text(to.into()), LocationPart::Query]),
    }
}

/// The redirect of clients that do not come through TLS to their own addresses, with https: with the path in its normal
/// form, or as it was `sent`.
pub(crate) fn to_https(
    pages: &Pages,
    header_rules: HeaderRuleSet<'_>,
    to: ToHttps,
    sent: Option<&[u8]>,
) -> Redirection {
    let mut pieces = vec![LocationPart::Text(b"https://".as_slice().into()), LocationPart::Host];
    if to.port != ToHttps::USUAL_PORT {
        pieces.push(LocationPart::Text(format!(":{}", to.port).into_bytes().into()));
    }
    pieces.push(match sent {
        Some(raw) => LocationPart::Text(raw.into()),
        None => LocationPart::Path,
    });
    pieces.push(LocationPart::Query);
    Redirection {
        status: to.status,
        is_for_slash: false,
        head: pages.moved_head(to.status, false, header_rules),
        to: pieces.into(),
    }
}

/// The conditions that a site's rewrites and routes need, and those that hold for a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldRules<'h> {
    /// The conditions that each rewrite needs.
    pub(crate) rewrites: &'h [ConditionBits],
    /// The conditions that each route needs.
    pub(crate) routes: &'h [ConditionBits],
    /// The conditions that hold.
    pub(crate) outcome: ConditionBits,
}

impl HeldRules<'_> {
    /// All rewrites and routes, whatever they depend on.
    pub(crate) const ALL: HeldRules<'static> =
        HeldRules { rewrites: &[], routes: &[], outcome: ConditionBits(0) };

    fn holds(self, needed: &[ConditionBits], place: usize) -> bool {
        self.outcome.has(needed.get(place).copied().unwrap_or_default())
    }
}

/// The path under which files are looked for.
pub(crate) fn rewrite(site: &SiteSettings, path: &[u8], held: HeldRules<'_>) -> Option<Vec<u8>> {
    let rules = site.rewrites.iter().enumerate();
    let mut rules = rules.filter(|(place, _)| held.holds(held.rewrites, *place));
    rules.find_map(|(_, rule)| {
        let captures = rule.pattern().captures(path)?;
        Some(file_path(rule.to(), path, &captures))
    })
}

/// The paths under which files may be looked for, whatever conditions hold: those of each rewrite
/// that may decide, and the path itself if no rewrite always decides.
pub(crate) fn rewrites<'s>(
    site: &'s SiteSettings,
    path: &'s [u8],
) -> impl Iterator<Item = Vec<u8>> + 's {
    let mut is_decided = false;
    site.rewrites.iter().filter_map(move |rule| {
        let captures = rule.pattern().captures(path).filter(|_| !is_decided)?;
        is_decided = rule.conditions().is_empty();
        Some(file_path(rule.to(), path, &captures))
    })
}

/// The application that answers `path`, which is decoded and free of detours, if all conditions
/// hold: its place in [`SiteSettings::routes`]. `None` if files answer.
///
/// A route for one path alone (`=/x`) goes first, then the first pattern with a star before its
/// end, then the longest beginning; an alias beneath a longer path has all paths below it. So has a
/// link out of the root, except where the application runs files: there it is a part of the root.
///
/// ```
/// use forebay_site::rules::{Route, Scope};
/// use forebay_site::{SiteSettings, route_of};
///
/// let route = |path| Route::all(Scope::parse(path).unwrap());
/// let routes = ["/", "/api", "*.php"].map(route).into();
/// let site = SiteSettings { routes, ..SiteSettings::default() };
/// assert_eq!(route_of(&site, b"/api/users"), Some(1));
/// assert_eq!(route_of(&site, b"/api/users.php"), Some(2));
/// assert_eq!(route_of(&site, b"/about"), Some(0));
/// ```
pub fn route_of(site: &SiteSettings, path: &[u8]) -> Option<u32> {
    route_for(site, path, HeldRules::ALL)
}

/// The same among the routes whose conditions hold.
pub(crate) fn route_for(site: &SiteSettings, path: &[u8], held: HeldRules<'_>) -> Option<u32> {
    let (number, len) = first_route(site, path, held)?;
    let is_longer = |mount: &Alias| {
        let beneath = mount.path().as_str().as_bytes();
        len.is_some_and(|len| beneath.len() > len) && mount.inside(path).is_some()
    };
    let links = site.links.iter().filter(|_| site.scripts(number).is_none());
    (!site.aliases.iter().chain(links).any(is_longer)).then_some(number)
}

/// The application that would have a path if no alias lay there.
pub(crate) fn route_around(site: &SiteSettings, path: &[u8], held: HeldRules<'_>) -> Option<u32> {
    first_route(site, path, held).map(|(number, _)| number)
}

/// The route that goes first, and the length of its path if a longer one may go before it.
fn first_route(
    site: &SiteSettings,
    path: &[u8],
    held: HeldRules<'_>,
) -> Option<(u32, Option<usize>)> {
    let fitting = (0..).zip(&site.routes).filter(|(_, route)| route.path.contains(path));
    let fitting = fitting.filter(|(number, _)| held.holds(held.routes, *number as usize));
    let mut pattern = None;
    let mut longest: Option<(u32, Option<usize>)> = None;
    for (number, route) in fitting {
        match route.path.reach() {
            Reach::Exact => return Some((number, None)),
            Reach::Pattern => pattern = pattern.or(Some((number, None))),
            Reach::Beginning(len) => {
                if longest.is_none_or(|(_, most)| Some(len) > most) {
                    longest = Some((number, Some(len)));
                }
            }
        }
    }
    pattern.or(longest)
}

/// A template of a path of the site, filled in. Slashes are merged.
pub(crate) fn file_path(template: &Template, path: &[u8], captures: &Captures<'_>) -> Vec<u8> {
    let mut to = Vec::new();
    for part in template.parts() {
        match part {
            TemplatePart::Text(text) => to.extend_from_slice(text.as_bytes()),
            TemplatePart::Capture(number) => to.extend_from_slice(captures.get(*number)),
            TemplatePart::Path => to.extend_from_slice(path),
            // rules for files have no such parts
            TemplatePart::Query | TemplatePart::Host | TemplatePart::Of(_) => {}
        }
    }
    to.dedup_by(|next, before| *next == b'/' && *before == b'/');
    to
}

/// Whether files may be looked for under a path.
pub(crate) fn is_servable(site: &SiteSettings, path: &[u8]) -> bool {
    let mut names = path.split(|&b| b == b'/');
    let is_name = |name: &[u8]| name.len() <= MOST_NAME_BYTES && name != b"." && name != b"..";
    names.all(is_name) && (site.hidden || !path::is_hidden(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{MountPath, Pattern, Rewrite, Route, Scope, ScriptSuffix, Scripts};

    #[test]
    fn the_longest_path_has_a_request() {
        let site = |routes: &[&str], aliases: &[&str]| SiteSettings {
            routes: routes.iter().map(|path| Route::all(Scope::parse(path).unwrap())).collect(),
            aliases: aliases
                .iter()
                .map(|path| Alias::new(MountPath::parse(path).unwrap(), "/srv"))
                .collect(),
            ..SiteSettings::default()
        };
        for (routes, aliases, path, expected) in [
            (&["/api"][..], &[][..], "/api", Some(0)),
            (&["/api"], &[], "/api/a", Some(0)),
            (&["/api"], &[], "/apis", None),
            (&["/api"], &[], "/", None),
            // whatever their order
            (&["/", "/api", "/api/v2"], &[], "/api/v2/a", Some(2)),
            (&["/api/v2", "/api", "/"], &[], "/api/v2/a", Some(0)),
            (&["/api/v2", "/api", "/"], &[], "/api/v1", Some(1)),
            (&["/api/v2", "/api", "/"], &[], "/x", Some(2)),
            // one path alone goes first, then patterns, in their order
            (&["*", "*.php", "=/a.php"], &[], "/a.php", Some(2)),
            (&["/a", "*.php", "*/b.php"], &[], "/a/b.php", Some(1)),
            (&["/a", "*.php"], &[], "/a/b", Some(0)),
            // a star at the end is no more than a beginning
            (&["/api/*", "/api/v2"], &[], "/api/v2/a", Some(1)),
            (&["/api/*", "/api/v2"], &[], "/api/v1", Some(0)),
            (&["/api/*"], &[], "/api", None),
            (&["*"], &[], "/", Some(0)),
            // files beneath a longer path
            (&["/"], &["/static"], "/static/a.css", None),
            (&["/"], &["/static"], "/static", None),
            (&["/"], &["/static"], "/statics", Some(0)),
            (&["/a/b"], &["/a"], "/a/b/c", Some(0)),
            (&["/a"], &["/a"], "/a/b", Some(0)),
            (&["*.php"], &["/a/b"], "/a/b/c.php", Some(0)),
            (&["=/a/b"], &["/a/b"], "/a/b", Some(0)),
        ] {
            let found = route_of(&site(routes, aliases), path.as_bytes());
            assert_eq!(found, expected, "{routes:?} {aliases:?} {path}");
        }
    }

    #[test]
    fn a_link_is_a_part_of_the_root_where_files_are_run() {
        let scripts = Scripts {
            ending: ScriptSuffix::parse(".php").unwrap(),
            index: "index.php".into(),
            fallback: None,
            only: None,
        };
        let mount = |path| Alias::new(MountPath::parse(path).unwrap(), "/srv");
        let mut site = SiteSettings {
            routes: vec![Route {
                scripts: Some(scripts),
                ..Route::all(Scope::parse("/").unwrap())
            }],
            links: vec![mount("/media")],
            aliases: vec![mount("/static")],
            ..SiteSettings::default()
        };
        assert_eq!(route_of(&site, b"/media/a.php"), Some(0));
        assert_eq!(route_of(&site, b"/static/a.php"), None);
        assert_eq!(route_around(&site, b"/static/a.php", HeldRules::ALL), Some(0));
        site.routes[0].scripts = None;
        assert_eq!(route_of(&site, b"/media/a.php"), None);
    }

    #[test]
    fn a_rewritten_path_has_no_detours() {
        let rule = |pattern, to| {
            let to = Template::parse(to).unwrap();
            Rewrite::new(Pattern::regex(pattern).unwrap(), to).unwrap()
        };
        let site = SiteSettings {
            rewrites: vec![rule("^/a(/.*)", "/app/$1"), rule(r"^/dots(\.)(.*)", "/$1$1$2")],
            ..SiteSettings::default()
        };
        assert_eq!(rewrite(&site, b"/a/b", HeldRules::ALL).unwrap(), b"/app/b");
        assert_eq!(rewrite(&site, b"/b", HeldRules::ALL), None);
        let up = rewrite(&site, b"/dots./etc/passwd", HeldRules::ALL).unwrap();
        assert_eq!(up, b"/../etc/passwd");
        assert!(!is_servable(&site, &up));
        assert!(is_servable(&site, b"/a/.well-known") != is_servable(&site, b"/.well-known/a"));
        assert!(!is_servable(&site, &[b'a'; 300]));
    }
}
