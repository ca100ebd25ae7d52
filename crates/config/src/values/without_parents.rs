//! A path without `..`, for programs that take none.

use std::path::{Component, PathBuf};

/// The same place without `..`. `end` gives the directory that a path leads to, from which `..` goes up:
/// only the disk knows that, not the text. A relative path that leads above its beginning still does.
pub fn without_parents(path: PathBuf, end: impl Fn(PathBuf) -> PathBuf) -> PathBuf {
    let mut place = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if place.file_name().is_some() || place.has_root() => {
                place = end(place);
                place.pop();
            }
            part => place.push(part),
        }
    }
    place
}

/// The same as far as the text shows: by the names of directories, wherever they lead.
pub(crate) fn without_named_parents(path: PathBuf) -> PathBuf {
    without_parents(path, |place| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn ways_up_are_taken_by_name() {
        for (path, expected) in [
            ("/srv/app/../public", "/srv/public"),
            ("/srv/../../public", "/public"),
            ("/srv/public/..", "/srv"),
            ("/srv/public", "/srv/public"),
            ("/..", "/"),
            ("app/../public", "public"),
            ("app/..", ""),
            ("../../public", "../../public"),
            ("app/../../public/..", ".."),
        ] {
            assert_eq!(without_named_parents(path.into()), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn a_way_up_begins_where_a_directory_leads() {
        let end = |place: PathBuf| match place.to_str() {
            Some("/srv/app") => "/releases/7".into(),
            _ => place,
        };
        for (path, expected) in [
            ("/srv/app/../public", "/releases/public"),
            ("/srv/app/public/..", "/srv/app"),
            ("/srv/app", "/srv/app"),
        ] {
            assert_eq!(without_parents(path.into(), end), Path::new(expected), "{path}");
        }
    }
}
