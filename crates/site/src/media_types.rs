//! Which media type a file has, by the ending of its name.

use crate::rules::FileMediaType;

/// The media type of a file by the end of its name, with the charset where it is text: what `types`
/// says of it, else what is known.
pub(crate) fn content_type(types: &[FileMediaType], path: &[u8]) -> Box<str> {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    let extension = name.iter().rposition(|&b| b == b'.').map(|dot| &name[dot + 1..]);
    let media_type = extension
        .and_then(|extension| std::str::from_utf8(extension).ok())
        .and_then(|extension| {
            let is_it = |at: &&FileMediaType| extension.eq_ignore_ascii_case(at.ending());
            let set = types.iter().find(is_it).map(FileMediaType::media_type);
            set.or_else(|| known_type(extension))
        })
        .unwrap_or("application/octet-stream");
    let is_text = media_type.starts_with("text/")
        || media_type.ends_with("+json")
        || media_type.ends_with("+xml")
        || ["application/json", "application/xml"].contains(&media_type);
    let charset = if is_text && !media_type.contains(';') { "; charset=utf-8" } else { "" };
    format!("{media_type}{charset}").into_boxed_str()
}

fn known_type(extension: &str) -> Option<&'static str> {
    match extension.to_ascii_lowercase().as_str() {
        // RFC 9239; the table behind mime_guess is older
        "mjs" => Some("text/javascript"),
        // it has films for what are programs nearly everywhere, and no type is registered for these
        "ts" | "mts" | "cts" | "tsx" => Some("text/plain"),
        _ => mime_guess::from_ext(extension).first_raw(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_text_have_a_charset() {
        for (name, expected) in [
            ("/index.html", "text/html; charset=utf-8"),
            ("/a.JS", "text/javascript; charset=utf-8"),
            ("/a.mjs", "text/javascript; charset=utf-8"),
            ("/a.json", "application/json; charset=utf-8"),
            ("/a.svg", "image/svg+xml; charset=utf-8"),
            ("/a.png", "image/png"),
            ("/a.woff2", "font/woff2"),
            ("/a.d/file", "application/octet-stream"),
            ("/noext", "application/octet-stream"),
            ("/a.\u{fe}", "application/octet-stream"),
        ] {
            assert_eq!(&*content_type(&[], name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_site_has_types_of_its_own() {
        let types = [("ts", "video/mp2t"), ("Log", "text/x-log"), ("old", "text/html; charset=x")]
            .map(|(ending, media_type)| FileMediaType::parse(ending, media_type).unwrap());
        for (name, expected) in [
            ("/a.ts", "video/mp2t"),
            ("/a.TS", "video/mp2t"),
            ("/a.log", "text/x-log; charset=utf-8"),
            ("/a.old", "text/html; charset=x"),
            ("/ts", "application/octet-stream"),
            ("/a.tsx", "text/plain; charset=utf-8"),
            ("/a.css", "text/css; charset=utf-8"),
        ] {
            assert_eq!(&*content_type(&types, name.as_bytes()), expected, "{name}");
        }
        assert_eq!(&*content_type(&[], b"/a.d.TS"), "text/plain; charset=utf-8");
    }
}
