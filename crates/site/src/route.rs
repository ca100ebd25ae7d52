//! What the rules make of a path, before any file is looked for.

use crate::fields::HeaderRuleSet;
use crate::pages::Pages;
use crate::redirection::{LocationPart, Redirection};
use crate::rules::{Alias, Captures, Reach, Redirect, Template, TemplatePart};
use crate::settings::{SiteSettings, ToHttps};
use forebay_http::path;

/// No file system has longer names (`NAME_MAX`).
const MOST_NAME_BYTES: usize = 255;

/// What a path of the site is within what lies beneath another, if it is there.
pub(crate) fn inside<'p>(beneath: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    match path.strip_prefix(beneath)? {
        [] => Some(&[]),
        [b'/', inside @ ..] => Some(inside),
        _ => None,
    }
}

/// The redirect for a path, if there is one.
pub(crate) fn redirect(
    site: &SiteSettings,
    pages: &Pages,
    header_rules: HeaderRuleSet<'_>,
    path: &[u8],
) -> Option<Redirection> {
    let found = |rule| Redirect::pattern(rule).captures(path).map(|captures| (rule, captures));
    let (rule, captures) = site.redirects.iter().find_map(found)?;
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

/// The redirect of clients that do not come through TLS to their own addresses, with https.
pub(crate) fn to_https(pages: &Pages, header_rules: HeaderRuleSet<'_>, to: ToHttps) -> Redirection {
    let mut pieces = vec![LocationPart::Text(b"https://".as_slice().into()), LocationPart::Host];
    if to.port != 443 {
        pieces.push(LocationPart::Text(format!(":{}", to.port).into_bytes().into()));
    }
    pieces.extend([LocationPart::Path, LocationPart::Query]);
    Redirection {
        status: to.status,
        is_for_slash: false,
        head: pages.moved_head(to.status, false, header_rules),
        to: pieces.into(),
    }
}

/// The path under which files are looked for.
pub(crate) fn rewrite(site: &SiteSettings, path: &[u8]) -> Option<Vec<u8>> {
    site.rewrites.iter().find_map(|rule| {
        let captures = rule.pattern().captures(path)?;
        Some(file_path(rule.to(), path, &captures))
    })
}

/// The application whose path has `path`, decoded and free of detours, by its place in
/// [`SiteSettings::routes`]. `None` if files have it.
///
/// One path alone (`=/x`) goes first, then the first pattern with a star before its end, then the longest
/// beginning; an alias beneath a longer path has what is below it.
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
    let fitting = (0..).zip(&site.routes).filter(|(_, route)| route.path.contains(path));
    let (mut longest, mut pattern) = (None, None);
    for (number, route) in fitting {
        match route.path.reach() {
            Reach::Exact => return Some(number),
            Reach::Pattern => pattern = pattern.or(Some(number)),
            Reach::Beginning(len) => {
                if longest.is_none_or(|(_, most)| len > most) {
                    longest = Some((number, len));
                }
            }
        }
    }
    if pattern.is_some() {
        return pattern;
    }
    let (number, len) = longest?;
    let is_longer = |alias: &Alias| {
        let beneath = alias.path().as_str().as_bytes();
        beneath.len() > len && inside(beneath, path).is_some()
    };
    (!site.aliases.iter().any(is_longer)).then_some(number)
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
            TemplatePart::Query | TemplatePart::Host => {}
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

/// Where in an address a part stands; each takes other bytes as they are.
#[derive(Clone, Copy, PartialEq)]
enum TargetPlace {
    Host,
    Path,
    Query,
}

/// The address a redirect leads to.
fn address(rule: &Redirect, path: &[u8], captures: &Captures<'_>) -> Box<[LocationPart]> {
    let parts = rule.to().parts();
    let begins =
        |start: &str| matches!(parts, [TemplatePart::Text(text), ..] if text.starts_with(start));
    let mut writer = LocationWriter {
        pieces: Vec::new(),
        text: Vec::new(),
        place: if begins("http") { TargetPlace::Host } else { TargetPlace::Path },
        adds_query: rule.adds_query(),
        keeps_slashes: begins("//"),
    };
    for part in parts {
        match part {
            TemplatePart::Text(text) => writer.plain(text),
            TemplatePart::Capture(number) => writer.variable(captures.get(*number)),
            TemplatePart::Path => writer.path(path),
            TemplatePart::Query => writer.piece(LocationPart::Query),
            TemplatePart::Host => writer.piece(LocationPart::Host),
        }
    }
    writer.end()
}

struct LocationWriter {
    pieces: Vec<LocationPart>,
    text: Vec<u8>,
    place: TargetPlace,
    /// The query is still to be added, at the end or before a fragment.
    adds_query: bool,
    /// Whether the address may begin with two slashes, which name a host.
    keeps_slashes: bool,
}

impl LocationWriter {
    /// What the operator wrote; what cannot stand in an address is encoded.
    fn plain(&mut self, text: &str) {
        // the slashes of the scheme do not end the host
        let scheme = if self.pieces.is_empty() && self.text.is_empty() {
            ["http://", "https://"].iter().find(|scheme| text.starts_with(**scheme))
        } else {
            None
        };
        let scheme = scheme.map_or("", |scheme| scheme);
        self.text.extend_from_slice(scheme.as_bytes());
        for &byte in &text.as_bytes()[scheme.len()..] {
            match byte {
                b'?' => self.place = TargetPlace::Query,
                b'#' => {
                    self.query();
                    self.place = TargetPlace::Query;
                }
                b'/' if self.place == TargetPlace::Host => self.place = TargetPlace::Path,
                _ => {}
            }
            match byte {
                b'!'..=b'~' if !b"\"<>\\^`{|}".contains(&byte) => self.push(byte),
                byte => self.encoded(byte),
            }
        }
    }

    fn path(&mut self, path: &[u8]) {
        if self.place == TargetPlace::Host {
            self.place = TargetPlace::Path;
        }
        self.variable(path);
    }

    /// What a client wrote: it never ends the part of the address it is in.
    fn variable(&mut self, bytes: &[u8]) {
        let also: &[u8] = match self.place {
            TargetPlace::Host => b"-.",
            TargetPlace::Path => b"-._~!$&'()*+,;=:@/",
            TargetPlace::Query => b"-._~/:@",
        };
        for &byte in bytes {
            match byte.is_ascii_alphanumeric() || also.contains(&byte) {
                true => self.push(byte),
                false => self.encoded(byte),
            }
        }
    }

    fn push(&mut self, byte: u8) {
        let is_second_slash = byte == b'/' && self.pieces.is_empty() && self.text == b"/";
        if !is_second_slash || self.keeps_slashes {
            self.text.push(byte);
        }
    }

    fn encoded(&mut self, byte: u8) {
        self.text.extend_from_slice(format!("%{byte:02X}").as_bytes());
    }

    fn query(&mut self) {
        if std::mem::take(&mut self.adds_query) {
            self.piece(LocationPart::Query);
        }
    }

    fn piece(&mut self, piece: LocationPart) {
        if !self.text.is_empty() {
            self.pieces.push(LocationPart::Text(std::mem::take(&mut self.text).into()));
        }
        self.pieces.push(piece);
    }

    fn end(mut self) -> Box<[LocationPart]> {
        self.query();
        // a question mark alone says that there is to be no query
        if self.text.ends_with(b"?") {
            self.text.pop();
        }
        if !self.text.is_empty() {
            self.pieces.push(LocationPart::Text(self.text.into()));
        }
        self.pieces.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{MountPath, Pattern, Rewrite, Route, Scope};

    /// The address for a client that asked `host` with `?q`.
    fn address_of(pattern: &str, to: &str, path: &str) -> String {
        let pattern = match pattern.strip_prefix('~') {
            Some(regex) => Pattern::regex(regex).unwrap(),
            None => Pattern::parse(pattern).unwrap(),
        };
        let rule = Redirect::new(pattern, Template::parse(to).unwrap(), 301).unwrap();
        let captures = rule.pattern().captures(path.as_bytes()).unwrap();
        let pieces = address(&rule, path.as_bytes(), &captures);
        let text = |piece: &LocationPart| match piece {
            LocationPart::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            LocationPart::Host => "host".to_owned(),
            LocationPart::Path => "/p".to_owned(),
            LocationPart::Query => "?q".to_owned(),
        };
        pieces.iter().map(text).collect()
    }

    #[test]
    fn variables_stay_in_their_part_of_the_address() {
        for (pattern, to, path, expected) in [
            ("/old/*", "/new/$1", "/old/a b", "/new/a%20b?q"),
            ("/old/*", "https://$host/new/$1", "/old/x/y", "https://host/new/x/y?q"),
            ("*", "https://www.example$path", "/ü", "https://www.example/%C3%BC?q"),
            ("*", "https://$host$path$query", "/a", "https://host/a?q"),
            ("/a/*", "/b?to=$1", "/a/x&y=z?", "/b?to=x%26y%3Dz%3F"),
            ("/a/*", "/b/$1#end", "/a/x#y", "/b/x%23y?q#end"),
            ("/~*", "https://$1.example/", "/~evil.com/", "https://evil.com%2F.example/?q"),
            ("~^/a(/.*)$", "/$1", "/a/evil.com", "/evil.com?q"),
            ("~^/a/(.*)$", "$path", "/a/x", "/a/x?q"),
            ("/a", "/ü?", "/a", "/%C3%BC"),
            ("/a/*", "/b/$1?", "/a/x?", "/b/x%3F"),
            ("/a", "https://b.example?", "/a", "https://b.example"),
            ("/a", "/b?#c", "/a", "/b?#c"),
            ("/a", "/b?c=d", "/a", "/b?c=d"),
            ("/a", "//other.example/", "/a", "//other.example/?q"),
            ("/a", "https://b.example", "/a", "https://b.example?q"),
            ("/a", "/100$$", "/a", "/100$?q"),
        ] {
            assert_eq!(address_of(pattern, to, path), expected, "{pattern} {to} {path}");
        }
    }

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
    fn a_rewritten_path_has_no_detours() {
        let rule = |pattern, to| {
            let to = Template::parse(to).unwrap();
            Rewrite::new(Pattern::regex(pattern).unwrap(), to).unwrap()
        };
        let site = SiteSettings {
            rewrites: vec![rule("^/a(/.*)", "/app/$1"), rule(r"^/dots(\.)(.*)", "/$1$1$2")],
            ..SiteSettings::default()
        };
        assert_eq!(rewrite(&site, b"/a/b").unwrap(), b"/app/b");
        assert_eq!(rewrite(&site, b"/b"), None);
        let up = rewrite(&site, b"/dots./etc/passwd").unwrap();
        assert_eq!(up, b"/../etc/passwd");
        assert!(!is_servable(&site, &up));
        assert!(is_servable(&site, b"/a/.well-known") != is_servable(&site, b"/.well-known/a"));
        assert!(!is_servable(&site, &[b'a'; 300]));
    }
}
