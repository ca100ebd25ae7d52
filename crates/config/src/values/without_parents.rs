//! A path without `..`, for programs that take none.

use std::path::{Component, PathBuf};

/// The same place without `..`: php-fpm runs nothing whose path has it. Symbolic links stay, so that one which is
/// set to another place leads there at once, unless the way up depends on where one leads. A place that is not
/// here, but where an application is, is taken by its name.
pub(crate) fn without_parents(path: PathBuf) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let mut place = PathBuf::new();
    for part in std::path::absolute(&path).unwrap_or(path).components() {
        match part {
            Component::ParentDir => {
                place = place.canonicalize().unwrap_or(place);
                place.pop();
            }
            part => place.push(part),
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn ways_up_are_gone_and_links_stay() {
        for (path, expected) in [
            ("/nowhere/app/../public", "/nowhere/public"),
            ("/nowhere/../../public", "/public"),
            ("/nowhere/public/..", "/nowhere"),
            ("/nowhere/public", "/nowhere/public"),
            // a link, and the way up from where it leads
            ("/proc/self/exe", "/proc/self/exe"),
            ("/proc/self/root/../exe", "/exe"),
            ("/..", "/"),
        ] {
            assert_eq!(without_parents(path.into()), Path::new(expected), "{path}");
        }
    }
}
