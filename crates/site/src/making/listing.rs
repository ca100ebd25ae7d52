//! A directory's files as a page or as JSON.

use crate::cache::listing_format::{SortColumn, SortOrder};
use crate::rules::AliasFile;
use crate::vhost::VirtualHost;
use crate::vhost::root::Root;
use forebay_http::{date, path};
use forebay_sys::file::{self, FileKind, Stamp};
use std::cmp::Ordering;
use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;

/// The largest number of names that are listed; the page says how many others there are.
const MOST_NAMES: usize = 10_000;

const STYLE: &str = include_str!("listing.css");

/// The contents of a directory.
pub(crate) struct Listing {
    /// The path from the root on, with a slash at both ends.
    path: Vec<u8>,
    items: Vec<ListingEntry>,
    order: SortOrder,
    is_whole: bool,
}

struct ListingEntry {
    name: Vec<u8>,
    is_directory: bool,
    size_bytes: u64,
    modified: u64,
}

impl Listing {
    /// Reads the directory that is at `path` of the site, and at `inside` of a root. The list has
    /// no names that are not served: special files, links out of the root, and hidden names unless
    /// the site shows them. Nor has it names that rules about clients protect better than the list,
    /// as the list is the same for every client.
    pub(crate) fn read(
        root: &Root,
        inside: &[u8],
        vhost: &VirtualHost,
        path: &[u8],
        order: SortOrder,
    ) -> io::Result<Listing> {
        let is_hidden = |path: &[u8]| !vhost.settings.hidden && path::is_hidden(path);
        let root = root.directory.as_fd();
        let opened = file::open_beneath(root, inside)?;
        let (names, is_whole) = file::names(opened.as_fd(), MOST_NAMES)?;
        let mut items = Vec::with_capacity(names.len());
        for name in names {
            let place = [inside, name.as_slice()].concat();
            let is_hidden = is_hidden(&[path, name.as_slice()].concat());
            if is_hidden || name.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\') {
                continue;
            }
            let found = file::find_beneath(root, &place);
            // it may be gone by now, or lead out of what is served
            let Ok(stamp) = found.and_then(|found| file::stamp(found.as_fd())) else { continue };
            let is_directory = match stamp.kind {
                FileKind::Directory => true,
                FileKind::Regular => false,
                FileKind::Link | FileKind::Special => continue,
            };
            items.push(ListingEntry {
                name,
                is_directory,
                size_bytes: stamp.size,
                modified: seconds(&stamp),
            });
        }
        // directories that are served right beneath this one take the place of what is there
        for mount in &vhost.mounts {
            let name = mount.path.strip_prefix(path).filter(|name| !name.contains(&b'/'));
            let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
            items.retain(|item| item.name != name);
            if let Some(AliasFile { name: file, .. }) = mount.files.first() {
                let root = mount.place.current();
                let found = file::find_beneath(root.directory.as_fd(), file);
                let stamp = found.and_then(|found| file::stamp(found.as_fd()));
                let stamp = stamp.ok().filter(|stamp| stamp.kind == FileKind::Regular);
                if let Some(stamp) = stamp.filter(|_| !is_hidden(&mount.path)) {
                    let (name, modified) = (name.to_vec(), seconds(&stamp));
                    let size_bytes = stamp.size;
                    items.push(ListingEntry { name, is_directory: false, size_bytes, modified });
                }
                continue;
            }
            if !is_hidden(&mount.path)
                && let Ok(stamp) = file::stamp(mount.place.current().directory.as_fd())
            {
                let (name, modified) = (name.to_vec(), seconds(&stamp));
                items.push(ListingEntry { name, is_directory: true, size_bytes: 0, modified });
            }
        }
        let protection = vhost.protection();
        let own = protection.of(&[path]);
        items.retain(|item| {
            let slash: &[u8] = if item.is_directory { b"/" } else { b"" };
            match (&own, protection.of(&[&[path, &item.name, slash].concat()])) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(own), Some(other)) => own.covers(&other),
            }
        });
        items.sort_by(|a, b| order.compare(a, b));
        Ok(Listing { path: path.to_vec(), items, order, is_whole })
    }

    /// The list as a page.
    pub(crate) fn html(&self) -> String {
        let mut page = String::with_capacity(4096 + self.items.len() * 256);
        let title = escaped(&self.path);
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>Files in {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        );
        self.trail(&mut page);
        page.push_str("<table>\n<thead><tr>");
        SortColumn::ALL.into_iter().for_each(|column| self.order.head(column, &mut page));
        page.push_str("</tr></thead>\n<tbody>\n");
        if self.path != b"/" {
            page.push_str(
                "<tr class=\"up\"><td><a href=\"../\">Parent directory</a></td>\
                 <td></td><td></td></tr>\n",
            );
        }
        self.items.iter().for_each(|item| item.row(&mut page));
        page.push_str("</tbody>\n</table>\n");
        if self.items.is_empty() {
            page.push_str("<p class=\"note\">This directory is empty.</p>\n");
        }
        if !self.is_whole {
            let _ = writeln!(
                page,
                "<p class=\"note\">There are more files; {MOST_NAMES} were looked at.</p>"
            );
        }
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    /// Writes the path, each directory on it as a link.
    fn trail(&self, page: &mut String) {
        let names: Vec<&[u8]> = self.path.split(|&b| b == b'/').filter(|n| !n.is_empty()).collect();
        page.push_str("<h1>");
        match names.split_last() {
            None => page.push('/'),
            Some((last, above)) => {
                let _ = write!(page, "<a href=\"{}\">/</a>", "../".repeat(names.len()));
                for (depth, name) in above.iter().enumerate() {
                    let up = "../".repeat(names.len() - 1 - depth);
                    let _ = write!(page, "<a href=\"{up}\">{}</a>/", escaped(name));
                }
                let _ = write!(page, "{}/", escaped(last));
            }
        }
        page.push_str("</h1>\n");
    }

    /// The list as JSON.
    pub(crate) fn json(&self) -> String {
        let mut text = String::with_capacity(256 + self.items.len() * 160);
        text.push_str("{\"path\":");
        push_json(&mut text, &self.path);
        text.push_str(",\"entries\":[");
        for (number, item) in self.items.iter().enumerate() {
            if number > 0 {
                text.push(',');
            }
            text.push_str("\n{\"name\":");
            push_json(&mut text, &item.name);
            let _ = match item.is_directory {
                true => write!(text, ",\"type\":\"directory\""),
                false => write!(text, ",\"type\":\"file\",\"size\":{}", item.size_bytes),
            };
            let modified = date::rfc3339(item.modified);
            let _ = write!(text, ",\"modified\":\"{modified}\",\"href\":\"{}\"}}", item.link());
        }
        let _ = write!(text, "\n],\"complete\":{}}}\n", self.is_whole);
        text
    }
}

impl ListingEntry {
    /// The link to the name, relative to the directory. The dot keeps a colon in the name from
    /// ending a scheme.
    fn link(&self) -> String {
        let mut link = b"./".to_vec();
        path::encode(&self.name, &mut link);
        if self.is_directory {
            link.push(b'/');
        }
        // what encode writes is ASCII
        String::from_utf8_lossy(&link).replace('\'', "%27")
    }

    fn row(&self, page: &mut String) {
        let (class, slash) = if self.is_directory { ("dir", "/") } else { ("file", "") };
        let size = if self.is_directory { String::new() } else { size(self.size_bytes) };
        let time = date::rfc3339(self.modified);
        let shown = time.get(..16).unwrap_or_default().replace('T', " ");
        let _ = writeln!(
            page,
            "<tr class=\"{class}\"><td><a href=\"{}\">{}{slash}</a></td><td>{size}</td>\
             <td><time datetime=\"{time}\">{shown}</time></td></tr>",
            self.link().replace('&', "&amp;"),
            escaped(&self.name),
        );
    }
}

impl SortOrder {
    fn compare(self, a: &ListingEntry, b: &ListingEntry) -> Ordering {
        let by_column = match self.by {
            SortColumn::Name => natural_order(&a.name, &b.name),
            // the size of a directory itself means nothing
            SortColumn::Size if a.is_directory => Ordering::Equal,
            SortColumn::Size => a.size_bytes.cmp(&b.size_bytes),
            SortColumn::Date => a.modified.cmp(&b.modified),
        };
        let by_column = if self.is_descending { by_column.reverse() } else { by_column };
        let by_name = || natural_order(&a.name, &b.name);
        b.is_directory.cmp(&a.is_directory).then(by_column).then_with(by_name)
    }

    /// Writes the head of a column, which leads to the list sorted by it, and the other way round
    /// if it is sorted by it already. Size and date begin with the largest and the youngest.
    fn head(self, column: SortColumn, page: &mut String) {
        let is_it = self.by == column;
        let goes_down = if is_it { !self.is_descending } else { column != SortColumn::Name };
        let (sorted, mark) = match (is_it, self.is_descending) {
            (false, _) => ("", ""),
            (true, false) => (" aria-sort=\"ascending\"", " ↑"),
            (true, true) => (" aria-sort=\"descending\"", " ↓"),
        };
        let order = if goes_down { "desc" } else { "asc" };
        let (word, title) = (column.word(), column.title());
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "<th{sorted}><a href=\"?sort={word}&amp;order={order}\">{title}{mark}</a></th>"
        );
    }
}

/// Compares names without regard to case, and numbers by their value: `page 9` before `Page 10`.
fn natural_order(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let order = match (left.first(), right.first()) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (x, y) = (take_number(&mut left), take_number(&mut right));
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            (Some(x), Some(y)) => {
                let order = x.to_ascii_lowercase().cmp(&y.to_ascii_lowercase());
                (left, right) = (&left[1..], &right[1..]);
                order
            }
            // names that differ in case or in zeros only keep an order, too
            (None, None) => return a.cmp(b),
            (x, y) => return x.cmp(&y),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes the digits at the start of `text`, without leading zeros.
fn take_number<'t>(text: &mut &'t [u8]) -> &'t [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    &digits[zeros..]
}

/// The size as people read it: three digits and a unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.95 { 1 } else { 0 };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A name as text or as the value of an attribute.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for character in String::from_utf8_lossy(name).chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            // an override of the writing direction could make a name appear with another ending
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => text.push('\u{fffd}'),
            character => text.push(character),
        }
    }
    text
}

fn push_json(text: &mut String, name: &[u8]) {
    text.push('"');
    for character in String::from_utf8_lossy(name).chars() {
        match character {
            '"' | '\\' => {
                text.push('\\');
                text.push(character);
            }
            character if character.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            character => text.push(character),
        }
    }
    text.push('"');
}

/// The time of the last change, since 1970.
fn seconds(stamp: &Stamp) -> u64 {
    u64::try_from(stamp.mtime_ns / 1_000_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(path: &str, names: &[(&str, bool, u64)]) -> Listing {
        let item = |(name, is_directory, size_bytes): &(&str, bool, u64)| ListingEntry {
            name: name.as_bytes().to_vec(),
            is_directory: *is_directory,
            size_bytes: *size_bytes,
            modified: 784_111_777,
        };
        let items = names.iter().map(item).collect();
        let order = SortOrder::default();
        Listing { path: path.as_bytes().to_vec(), items, order, is_whole: true }
    }

    #[test]
    fn a_query_says_how_a_list_is_sorted() {
        for (query, expected) in [
            ("", "a d b c"),
            ("sort=name", "a d b c"),
            ("sort=name&order=asc", "a d b c"),
            ("order=desc", "d a c b"),
            ("sort=size", "a d c b"),
            ("sort=size&order=desc", "a d b c"),
            ("x=1&sort=date", "d a c b"),
            ("order=desc&sort=date", "a d b c"),
            ("sort=colour&order=up", "a d b c"),
            ("sort=%73ize", "a d b c"),
        ] {
            let order = SortOrder::of(query.as_bytes());
            let file = |name: &str, is_directory, size_bytes, modified| ListingEntry {
                name: name.as_bytes().to_vec(),
                is_directory,
                size_bytes,
                modified,
            };
            let mut items = [
                file("c", false, 1, 30),
                file("a", true, 9, 20),
                file("b", false, 2, 40),
                file("d", true, 8, 10),
            ];
            items.sort_by(|a, b| order.compare(a, b));
            let names: Vec<&str> =
                items.iter().map(|item| std::str::from_utf8(&item.name).unwrap()).collect();
            assert_eq!(names.join(" "), expected, "{query}");
        }
    }

    #[test]
    fn heads_of_columns_lead_to_the_other_order() {
        let page = |query: &str| {
            let order = SortOrder::of(query.as_bytes());
            Listing { order, ..listing("/", &[]) }.html()
        };
        let plain = page("");
        for expected in [
            "<th aria-sort=\"ascending\"><a href=\"?sort=name&amp;order=desc\">Name ↑</a></th>",
            "<th><a href=\"?sort=size&amp;order=desc\">Size</a></th>",
            "<th><a href=\"?sort=date&amp;order=desc\">Modified (UTC)</a></th>",
        ] {
            assert!(plain.contains(expected), "{plain}");
        }
        let sorted = page("sort=size&order=desc");
        let expected =
            "<th aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\">Size ↓</a>";
        assert!(sorted.contains(expected), "{sorted}");
        assert!(sorted.contains("<th><a href=\"?sort=name&amp;order=asc\">Name</a>"), "{sorted}");
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let name = "<b>&\"'\u{202e}:é #?%.txt";
        let page = listing("/a<b/c/", &[(name, false, 1)]).html();
        assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;\u{fffd}:é #?%.txt</a>"), "{page}");
        let link = "href=\"./%3Cb%3E&amp;%22%27%E2%80%AE:%C3%A9%20%23%3F%25.txt\"";
        assert!(page.contains(link), "{page}");
        let trail = "<h1><a href=\"../../\">/</a><a href=\"../\">a&lt;b</a>/c/</h1>";
        assert!(page.contains(trail), "{page}");
        assert!(page.contains("<a href=\"../\">Parent directory</a>"));
        assert!(!listing("/", &[]).html().contains("Parent"));
        assert!(listing("/", &[]).html().contains("<h1>/</h1>"));
    }

    #[test]
    fn json_for_programs() {
        let text = listing("/d/", &[("sub", true, 4096), ("a\"\\\u{1f}b", false, 5)]).json();
        let expected = "{\"path\":\"/d/\",\"entries\":[\n\
            {\"name\":\"sub\",\"type\":\"directory\",\"modified\":\"1994-11-06T08:49:37Z\",\"href\":\"./sub/\"},\n\
            {\"name\":\"a\\\"\\\\\\u001fb\",\"type\":\"file\",\"size\":5,\
            \"modified\":\"1994-11-06T08:49:37Z\",\"href\":\"./a%22%5C%1Fb\"}\n\
            ],\"complete\":true}\n";
        assert_eq!(text, expected);
        assert_eq!(
            listing("/", &[]).json(),
            "{\"path\":\"/\",\"entries\":[\n],\"complete\":true}\n"
        );
    }

    #[test]
    fn names_are_in_the_order_people_expect() {
        let sorted =
            ["", "a", "A1", "a1", "a 2", "a 10", "b", "IMG_2.jpg", "img_09.jpg", "IMG_10.jpg"];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|a, b| natural_order(a.as_bytes(), b.as_bytes()));
        assert_eq!(
            names,
            ["", "a", "a 2", "a 10", "A1", "a1", "b", "IMG_2.jpg", "img_09.jpg", "IMG_10.jpg"]
        );
    }

    proptest::proptest! {
        /// Sorting needs a total order.
        #[test]
        fn the_order_is_total(a in "[aA0-2 ]{0,6}", b in "[aA0-2 ]{0,6}", c in "[aA0-2 ]{0,6}") {
            let order = |x: &str, y: &str| natural_order(x.as_bytes(), y.as_bytes());
            proptest::prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            proptest::prop_assert_eq!(order(&a, &b).is_eq(), a == b);
            if order(&a, &b).is_le() && order(&b, &c).is_le() {
                proptest::prop_assert!(order(&a, &c).is_le());
            }
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10_239, "10 KiB"),
            (1_023_000, "999 KiB"),
            (1_023_900, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
