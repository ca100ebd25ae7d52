//! The paths under which the file at a path can be asked for.
//!
//! Rules about clients hold for the path that is asked for and for the file that answers. A file has
//! more names than its own: that of its folder if it is an index, those under which other directories of
//! the site have it, too, those that `try_files` and rewrites lead from, and that of the file it is a
//! compressed form of. A rule for one of them is meant for the file, however it is asked for. What is the
//! same for many paths, like the page of an application, is not named by them.

use crate::bodies::forms;
use crate::routing::inverse::{self, PathName};
use crate::routing::route;
use crate::rules::{Route, TryFile, inside};
use crate::settings::SiteSettings;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A directory of the site, or a file that is served by itself.
pub(crate) struct MountedPlace<'p> {
    /// The path of the site beneath which the directory is, or at which the file is.
    pub(crate) path: &'p [u8],
    /// The place on the disk, without links.
    pub(crate) at: PathBuf,
    pub(crate) is_file: bool,
}

impl MountedPlace<'_> {
    /// The place on the disk that a path of the site leads to, if it leads here.
    fn file(&self, name: &[u8]) -> Option<PathBuf> {
        match self.is_file {
            true => (self.path == name).then(|| self.at.clone()),
            false => Some(self.at.join(OsStr::from_bytes(inside(self.path, name)?))),
        }
    }

    /// The path of the site at which a file is here, if it is; `slash` ends that of a directory.
    fn path(&self, file: &Path, slash: &[u8]) -> Option<Vec<u8>> {
        if self.is_file {
            return (file == self.at).then(|| self.path.to_vec());
        }
        let below = file.strip_prefix(&self.at).ok()?.as_os_str().as_bytes();
        let end = if below.is_empty() { b"" } else { slash };
        Some([self.path, b"/".as_slice(), below, end].concat())
    }
}

/// The path itself, and every other that is answered with the file there. `directories` are those of the
/// site, the ones beneath longer paths first. Rewrites with regular expressions cannot be followed
/// backwards; of others it may only be known how the paths begin and end that lead here.
pub(crate) fn names(
    site: &SiteSettings,
    directories: &[MountedPlace<'_>],
    path: &[u8],
) -> Vec<PathName> {
    let mut names = of_file(site, directories, path);
    add(&mut names, |name| folder(site, name).into_iter().collect());
    let mut names: Vec<_> = names.into_iter().map(PathName::Exact).collect();
    add(&mut names, |name| name.path().map(|path| tried_for(site, path)).unwrap_or_default());
    add(&mut names, |name| name.path().map(|path| rewritten_to(site, path)).unwrap_or_default());
    names
}

/// The path itself, that of the file it is a compressed form of, and those at which other directories of
/// the site have either.
pub(crate) fn of_file(
    site: &SiteSettings,
    directories: &[MountedPlace<'_>],
    path: &[u8],
) -> Vec<Vec<u8>> {
    let mut names = vec![path.to_vec()];
    if site.precompressed {
        names.extend(forms::original(path).map(<[u8]>::to_vec));
    }
    add(&mut names, |name| elsewhere(directories, name));
    names
}

/// Adds the names that each name leads to, once.
fn add<N: PartialEq>(names: &mut Vec<N>, more: impl Fn(&N) -> Vec<N>) {
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
fn elsewhere(directories: &[MountedPlace<'_>], name: &[u8]) -> Vec<Vec<u8>> {
    let Some(file) = directories.iter().find_map(|place| place.file(name)) else {
        return Vec::new();
    };
    let slash: &[u8] = if name.ends_with(b"/") { b"/" } else { b"" };
    directories.iter().filter_map(|place| place.path(&file, slash)).collect()
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

/// The paths that `try_files` leads from to `name`.
fn tried_for(site: &SiteSettings, name: &[u8]) -> Vec<PathName> {
    let templates = site.try_files.candidates().iter().filter_map(|candidate| match candidate {
        // that candidate only leads to the address with the slash
        TryFile::Path(template) if template.as_str() == "$path/" => None,
        TryFile::Path(template) => Some(template),
        TryFile::Status(_) => None,
    });
    // it is for every path, as a star is
    templates.flat_map(|template| inverse::leading_to(&[b"", b""], template, name)).collect()
}

/// The paths that rewrites with stars may lead from to `name`.
fn rewritten_to(site: &SiteSettings, name: &[u8]) -> Vec<PathName> {
    let rules = site.rewrites.iter().filter(|rule| !rule.pattern().is_regex());
    let paths = rules.flat_map(|rule| {
        let pieces: Vec<_> = rule.pattern().as_str().split('*').map(str::as_bytes).collect();
        inverse::leading_to(&pieces, rule.to(), name)
    });
    // another rule may come first
    let is_led = |path: &[u8]| route::rewrites(site, path).any(|to| to == name);
    paths.filter(|path| path.path().is_none_or(is_led)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Pattern, Rewrite, Scope, ScriptSuffix, Scripts, Template, TryFiles};
    use proptest::prelude::*;

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
        directories: &[MountedPlace<'_>],
        path: &str,
        others: &[&str],
    ) {
        let names = names(site, directories, path.as_bytes());
        let names: Vec<_> = names.iter().map(PathName::written).collect();
        assert_eq!(names, [&[path][..], others].concat());
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
            only: None,
        };
        let path = Scope::parse("/app").unwrap();
        site.routes = vec![Route { scripts: Some(scripts), ..Route::all(path) }];
        check(&site, "/app/in/index.php", &["/app/in/"]);
        check(&site, "/in/index.php", &[]);
    }

    #[test]
    fn directories_within_one_another_share_their_files() {
        let place = |path: &'static str, at: &str, is_file| MountedPlace {
            path: path.as_bytes(),
            at: PathBuf::from(at),
            is_file,
        };
        let directory = |path, at| place(path, at, false);
        let directories = [
            directory("/other", "/elsewhere"),
            place("/icon", "/srv/www/img/a.ico", true),
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
            // a file that is served on its own
            ("/icon", &["/up/www/img/a.ico", "/img/a.ico"]),
            ("/img/a.ico", &["/icon", "/up/www/img/a.ico"]),
            ("/icon/", &["/up/www/icon/"]),
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

    #[test]
    fn a_rewrite_is_followed_backwards_in_every_way() {
        let rewrites = |from, to| SiteSettings {
            rewrites: vec![rewrite(from, to)],
            ..SiteSettings::default()
        };
        let site = rewrites("/members/*", "/data/$1/");
        check(&site, "/data/a/b/", &["/members/a/b", "/members/a/b/"]);
        let by_index = ["/data/a/b/", "/members/a/b", "/members/a/b/"];
        check(&site, "/data/a/b/index.html", &by_index);
        check(&rewrites("/m2*", "/data2/$1"), "/data2/x", &["/m2x", "/m2/x"]);
        let site = rewrites("/m/*", "/data/$1.txt");
        check(&site, "/data/notes.txt.txt", &["/m/notes.txt"]);
        // a star takes as little as it can, so that the other cuts lead elsewhere
        check(&rewrites("/u/*-*", "/data/$1.$2"), "/data/a.b-c", &["/u/a-b-c"]);
        check(&rewrites("/u/*-*", "/data/$2.$1"), "/data/a.b-c", &[]);
        // a star that the template does not name may have matched anything
        check(&rewrites("/n/*/*", "/store/$2"), "/store/x", &["/n/*/x"]);
    }

    proptest! {
        /// Every path that leads to a file is among its names, unless it is one page for many
        /// paths.
        #[test]
        fn what_leads_to_a_file_is_a_name_of_it(
            from in "/a?\\*[/a-]?\\*?[a/]?",
            to in "/a?([/a-]?(\\$1|\\$2|\\$path)[/-]?){1,3}",
            path in "(/[a-]{1,3}){1,4}/?",
        ) {
            let Ok(pattern) = Pattern::parse(&from) else { return Ok(()) };
            let Ok(template) = Template::parse(&to) else { return Ok(()) };
            let Ok(rule) = Rewrite::new(pattern, template) else { return Ok(()) };
            let site = SiteSettings { rewrites: vec![rule], ..SiteSettings::default() };
            let Some(file) = route::rewrite(&site, path.as_bytes(), route::HeldRules::ALL) else { return Ok(()) };
            let is_it = |name: &PathName| match name {
                PathName::Exact(name) => name == path.as_bytes(),
                PathName::Between { start, end } => {
                    path.len() >= start.len() + end.len()
                        && path.as_bytes().starts_with(start)
                        && path.as_bytes().ends_with(end)
                }
            };
            let names = names(&site, &[], &file);
            prop_assert!(names.iter().any(is_it), "{} {} {} {:?}", from, to, path, names);
        }
    }
}
