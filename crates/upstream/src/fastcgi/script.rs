//! Which part of a path is the script.

/// A script, and what follows it in a path. All of it decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'s> {
    /// The path of the script in the site.
    pub name: &'s [u8],
    /// What follows; empty, or begins with a slash.
    pub path_info: &'s [u8],
}

/// The script that a path names: up to the first segment with this ending. Whether it is there is for
/// others to find out, and must be: a program that looks for it itself would run a picture
/// as a script if asked for `/picture.png/x.php`.
///
/// ```
/// use forebay_upstream::fastcgi::script_of;
///
/// let script = script_of(b"/blog/index.php/2026/may", ".php").unwrap();
/// assert_eq!(script.name, b"/blog/index.php");
/// assert_eq!(script.path_info, b"/2026/may");
/// assert_eq!(script_of(b"/blog/2026", ".php"), None);
/// ```
pub fn script_of<'s>(path: &'s [u8], ending: &str) -> Option<Script<'s>> {
    let mut end = 0;
    loop {
        let slash = path[end..].iter().position(|&b| b == b'/');
        let next = slash.map_or(path.len(), |at| end + at);
        let (name, path_info) = path.split_at(next);
        // a segment that is nothing but the ending has no name
        let last = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if last.len() > ending.len() && last.ends_with(ending.as_bytes()) {
            return Some(Script { name, path_info });
        }
        slash?;
        end = next + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_script_of_a_path() {
        for (path, expected) in [
            ("/index.php", Some(("/index.php", ""))),
            ("/index.php/", Some(("/index.php", "/"))),
            ("/a/b.php/c/d.php", Some(("/a/b.php", "/c/d.php"))),
            ("/picture.png/x.php", Some(("/picture.png/x.php", ""))),
            ("/a.php.png", None),
            ("/a.phpx/b", None),
            ("/.php", None),
            ("/a/.php/b.php", Some(("/a/.php/b.php", ""))),
            ("/", None),
            ("", None),
            ("/a.PHP", None),
        ] {
            let found = script_of(path.as_bytes(), ".php").map(|Script { name, path_info }| {
                (std::str::from_utf8(name).unwrap(), std::str::from_utf8(path_info).unwrap())
            });
            assert_eq!(found, expected, "{path}");
        }
    }
}
