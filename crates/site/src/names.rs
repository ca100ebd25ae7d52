//! Under which paths the file at a path can be asked for.
//!
//! Rules about clients hold for the path that is asked for and for the file that answers. A file has
//! more names than its own: that of its folder if it is an index, those under which other directories of
//! the site have it, too, those that `try_files` and rewrites lead from, and that of the file it is a
//! compressed form of. A rule for one of them is meant for the file, however it is asked for. What is the
//! same for many paths, like the page of an application, is not named by them.

use crate::forms;
use crate::route::{self, inside};
use crate::rules::{Rewrite, Route, Template, TemplatePart, TryFile};
use crate::settings::SiteSettings;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Beneath which path of the site, and where on the disk, without links.
pub(crate) type MountedDirectory<'p> = (&'p [u8], PathBuf);

/// The path itself, and every other that is answered with the file there. `directories` are those of the
/// site, the ones beneath longer paths first. Rules with regular expressions cannot be followed
/// backwards.
pub(crate) fn names(
    site: &SiteSettings,
    directories: &[MountedDirectory<'_>],
    path: &[u8],
) -> Vec<Vec<u8>> {
    let mut names = of_file(site, directories, path);
    add(&mut names, |name| folder(site, name).into_iter().collect());
    add(&mut names, |name| {
        let templates =
            site.try_files.candidates().iter().filter_map(|candidate| match candidate {
                // it only leads to the address with the slash
                TryFile::Path(template) if template.as_str() == "$path/" => None,
                TryFile::Path(template) => Some(template),
                TryFile::Status(_) => None,
            });
        templates.flat_map(|template| leading_to(template, name)).collect()
    });
    add(&mut names, |name| {
        let paths = site.rewrites.iter().flat_map(|rule| rewritten_to(rule, name));
        // another rule may come first
        paths.filter(|path| route::rewrite(site, path).as_deref() == Some(name)).collect()
    });
    names
}

/// The path itself, that of the file it is a compressed form of, and those at which other directories of
/// the site have either.
pub(crate) fn of_file(
    site: &SiteSettings,
    directories: &[MountedDirectory<'_>],
    path: &[u8],
) -> Vec<Vec<u8>> {
    let mut names = vec![path.to_vec()];
    if site.precompressed {
        names.extend(forms::original(path).map(<[u8]>::to_vec));
    }
    add(&mut names, |name| elsewhere(directories, name));
    names
}

/// Adds what each of the names leads to, once.
fn add(names: &mut Vec<Vec<u8>>, more: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    for at in 0..names.len() {
        for name in more(&names[at]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
}

/// The paths of the same file where directories of the site lie within one another. Links within them
/// are not looked through.
fn elsewhere(directories: &[MountedDirectory<'_>], name: &[u8]) -> Vec<Vec<u8>> {
    let mut mounts = directories.iter();
    let found = mounts.find_map(|(beneath, directory)| Some((directory, inside(beneath, name)?)));
    let Some((directory, inside)) = found else { return Vec::new() };
    let file = directory.join(OsStr::from_bytes(inside));
    let slash: &[u8] = if name.ends_with(b"/") { b"/" } else { b"" };
    let path = |(beneath, directory): &MountedDirectory<'_>| {
        let below = file.strip_prefix(directory).ok()?.as_os_str().as_bytes();
        let end = if below.is_empty() { b"" } else { slash };
        Some([beneath, b"/".as_slice(), below, end].concat())
    };
    directories.iter().filter_map(path).collect()
}

/// The folder that the file, or the script, is the index of.
fn folder(site: &SiteSettings, name: &[u8]) -> Option<Vec<u8>> {
    let start = name.iter().rposition(|byte| *byte == b'/')? + 1;
    let is_index = site.index.iter().any(|index| index.as_bytes() == &name[start..]);
    let is_run = |route: &Route| {
        let index = route.scripts.as_ref().map(|scripts| scripts.index.as_bytes());
        index == Some(&name[start..]) && route.path.contains(name)
    };
    let is_index = is_index || site.routes.iter().any(is_run);
    is_index.then(|| name[..start].to_vec())
}

/// The paths for which a template with one `$path` and nothing else variable stands for `name`.
fn leading_to(template: &Template, name: &[u8]) -> Vec<Vec<u8>> {
    let (before, after) = match template.parts() {
        [TemplatePart::Path] => ("", ""),
        [TemplatePart::Text(before), TemplatePart::Path] => (&**before, ""),
        [TemplatePart::Path, TemplatePart::Text(after)] => ("", &**after),
        [TemplatePart::Text(before), TemplatePart::Path, TemplatePart::Text(after)] => {
            (&**before, &**after)
        }
        _ => return Vec::new(),
    };
    let rest = name.strip_prefix(before.as_bytes());
    // where a slash of the path met one of the template, one is left
    let rest = rest.or_else(|| name.strip_prefix(before.strip_suffix('/')?.as_bytes()));
    let Some(rest) = rest.and_then(|rest| rest.strip_suffix(after.as_bytes())) else {
        return Vec::new();
    };
    let slash = b"/".as_slice();
    let paths = [&[rest][..], &[slash, rest], &[rest, slash], &[slash, rest, slash]];
    let is_led = |path: &Vec<u8>| {
        path.starts_with(b"/")
            && !path.starts_with(b"//")
            && route::file_path(template, path, &Default::default()) == name
    };
    paths.map(<[&[u8]]>::concat).into_iter().filter(is_led).collect()
}

/// The paths that a rewrite with stars may lead from to `name`.
fn rewritten_to(rule: &Rewrite, name: &[u8]) -> Vec<Vec<u8>> {
    if rule.pattern().is_regex() {
        return Vec::new();
    }
    let parts = rule.to().parts();
    if parts.contains(&TemplatePart::Path) {
        return leading_to(rule.to(), name);
    }
    let Some(captured) = captured(parts, name) else { return Vec::new() };
    let mut path = Vec::new();
    for (piece, number) in rule.pattern().as_str().split('*').zip(1u8..) {
        if number > 1 {
            // a star that the template does not name may have stood for anything
            let Some((_, text)) = captured.iter().find(|(at, _)| *at + 1 == number) else {
                return Vec::new();
            };
            path.extend_from_slice(text);
        }
        path.extend_from_slice(piece.as_bytes());
    }
    vec![path]
}

/// What the captures of a template stand for if it stands for `name`, by their numbers.
fn captured<'n>(parts: &[TemplatePart], name: &'n [u8]) -> Option<Vec<(u8, &'n [u8])>> {
    let mut captured = Vec::new();
    let (mut rest, mut open) = (name, None);
    for part in parts {
        match (part, open.take()) {
            (TemplatePart::Text(text), None) => rest = rest.strip_prefix(text.as_bytes())?,
            (TemplatePart::Text(text), Some(number)) => {
                let mut places = rest.windows(text.len());
                let at = places.position(|place| place == text.as_bytes())?;
                captured.push((number, &rest[..at]));
                rest = &rest[at + text.len()..];
            }
            (TemplatePart::Capture(number), None) => open = Some(*number),
            // two beside each other: where one ends cannot be told
            _ => return None,
        }
    }
    match open {
        Some(number) => captured.push((number, rest)),
        None if !rest.is_empty() => return None,
        None => {}
    }
    Some(captured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Pattern, Scope, ScriptSuffix, Scripts, TryFiles};

    fn rewrite(from: &str, to: &str) -> Rewrite {
        Rewrite::new(Pattern::parse(from).unwrap(), Template::parse(to).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(site: &SiteSettings, path: &str, others: &[&str]) {
        check_with(site, &[], path, others);
    }

    #[track_caller]
    fn check_with(
        site: &SiteSettings,
        directories: &[MountedDirectory<'_>],
        path: &str,
        others: &[&str],
    ) {
        let names = names(site, directories, path.as_bytes());
        let names: Vec<_> = names.iter().map(|name| std::str::from_utf8(name).unwrap()).collect();
        assert_eq!((names[0], &names[1..]), (path, others));
    }

    #[test]
    fn an_index_is_its_folder_and_a_form_its_file() {
        let mut site = SiteSettings::default();
        check(&site, "/in/page.html", &[]);
        check(&site, "/in/index.html", &["/in/"]);
        check(&site, "/index.html.gz", &["/index.html", "/"]);
        check(&site, "/in/", &[]);
        site.precompressed = false;
        check(&site, "/index.html.gz", &[]);
        let scripts = Scripts {
            ending: ScriptSuffix::parse(".php").unwrap(),
            index: "index.php".into(),
            fallback: None,
        };
        let path = Scope::parse("/app").unwrap();
        site.routes = vec![Route { path, scripts: Some(scripts), sends: Vec::new() }];
        check(&site, "/app/in/index.php", &["/app/in/"]);
        check(&site, "/in/index.php", &[]);
    }

    #[test]
    fn directories_within_one_another_share_their_files() {
        let directory = |path: &'static str, to: &str| (path.as_bytes(), PathBuf::from(to));
        let directories = [
            directory("/other", "/elsewhere"),
            directory("/docs", "/srv/www/in/docs"),
            directory("/up", "/srv"),
            directory("", "/srv/www"),
        ];
        let site = SiteSettings::default();
        for (path, others) in [
            ("/docs/a.txt", &["/up/www/in/docs/a.txt", "/in/docs/a.txt"][..]),
            ("/in/docs/a.txt", &["/docs/a.txt", "/up/www/in/docs/a.txt"]),
            ("/up/www/in/docs/", &["/docs/", "/in/docs/"]),
            ("/up/www/x/", &["/x/"]),
            ("/up/www/", &["/"]),
            ("/up", &["/up/"]),
            ("/other/a.txt", &[]),
            ("/in/index.html", &["/up/www/in/index.html", "/in/", "/up/www/in/"]),
        ] {
            check_with(&site, &directories, path, others);
        }
    }

    #[test]
    fn try_files_is_followed_backwards() {
        let try_files = |items: &[&str]| SiteSettings {
            try_files: TryFiles::parse(items).unwrap(),
            ..SiteSettings::default()
        };
        let site = try_files(&["$path", "$path.html", "$path/", "/index.html", "=404"]);
        check(&site, "/secret.html", &["/secret"]);
        check(&site, "/index.html", &["/", "/index"]);
        check(&site, "/a/b", &[]);
        let site = try_files(&["/static$path", "/pages/$path/page.html"]);
        check(&site, "/static/x", &["/x"]);
        check(&site, "/static/", &["/"]);
        check(&site, "/pages/x/page.html", &["/x", "/x/"]);
        check(&site, "/pages", &[]);
    }

    #[test]
    fn a_rewrite_is_followed_backwards() {
        let rewrites = |rewrites| SiteSettings { rewrites, ..SiteSettings::default() };
        let site = rewrites(vec![rewrite("/v1/*", "/app/$1"), rewrite("/once", "/twice")]);
        check(&site, "/app/x/y", &["/v1/x/y"]);
        check(&site, "/app/index.html", &["/app/", "/v1/index.html", "/v1/"]);
        check(&site, "/twice", &["/once"]);
        check(&site, "/other", &[]);
        let site = rewrites(vec![rewrite("/u/*/p/*", "/data/$2-$1.txt")]);
        check(&site, "/data/a-b.txt", &["/u/b/p/a"]);
        let site = rewrites(vec![rewrite("/x*", "/all$path")]);
        check(&site, "/all/xy", &["/xy"]);
        check(&site, "/all/y", &[]);
        // the first rule decides, and one page for many paths is not named by them
        let site = rewrites(vec![rewrite("/v1/a", "/b"), rewrite("/v1/*", "/app/$1")]);
        check(&site, "/app/a", &[]);
        let site = rewrites(vec![rewrite("/app/*", "/app.html")]);
        check(&site, "/app.html", &[]);
    }
}
