//! Media types of files, by the endings of their names.

//!
//! The table is that of a crate, which follows those of mime-db and of freedesktop.org. [`OURS`] goes before
//! it where an RFC or a registration at IANA says otherwise, or where it has nothing.

use crate::rules::FileMediaType;
use forebay_http::coding::Coding;

/// Endings, in small letters, and their types.
const OURS: [(&[&str], &str); 15] = [
    // RFC 9239
    (&["js", "mjs", "cjs"], "text/javascript"),
    // the crate has films for endings that are programs nearly everywhere, and no type is
    // registered for these
    (&["ts", "mts", "cts", "tsx"], "text/plain"),
    // RFC 8216 §4
    (&["m3u8"], "application/vnd.apple.mpegurl"),
    // RFC 9512, RFC 6922, RFC 6350
    (&["yaml", "yml"], "application/yaml"),
    (&["sql"], "application/sql"),
    (&["vcf", "vcard"], "text/vcard"),
    // registered by the W3C with the language
    (&["wgsl"], "text/wgsl"),
    // registered
    (&["dll"], "application/vnd.microsoft.portable-executable"),
    (&["arrow"], "application/vnd.apache.arrow.file"),
    (&["sqlite", "sqlite3"], "application/vnd.sqlite3"),
    // text/rtf is registered, too, but has no charset parameter
    (&["rtf"], "application/rtf"),
    // RFC 6713; what is inside has its own
    (&["tgz"], "application/gzip"),
    // no type is registered; these are the ones in their specifications
    (&["ndjson"], "application/x-ndjson"),
    (&["jsonl"], "application/jsonl"),
    // a part of a film, as .mpd and .m3u8 name them; RFC 8216 §4 has none, and IANA has this one
    (&["m4s"], "video/iso.segment"),
];

/// The coding of a file by its name alone, whatever a client accepts: `.svgz` is a picture that was
/// compressed (SVG §1.1), and no other file has it uncompressed.
pub(crate) fn coding_of(types: &[FileMediaType], path: &[u8]) -> Coding {
    const END: &[u8] = b".svgz";
    let at = path.len().checked_sub(END.len());
    let is_svgz = at.and_then(|at| path.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(END));
    // a site whose files are something else says so in its types
    match is_svgz && content_type(types, path).starts_with("image/svg+xml") {
        true => Coding::Gzip,
        false => Coding::Identity,
    }
}

/// The media type of a file by the end of its name, with the charset where it is text. `types` go
/// before the built-in ones.
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
    let is_it = |ending: &&str| extension.eq_ignore_ascii_case(ending);
    let ours = OURS.iter().find(|(endings, _)| endings.iter().any(&is_it));
    ours.map(|(_, media_type)| *media_type)
        .or_else(|| new_mime_guess::from_ext(extension).first_raw())
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
            ("/a.svgz", "image/svg+xml; charset=utf-8"),
            ("/a.png", "image/png"),
            ("/a.rpm", "application/x-rpm"),
            ("/a.woff", "font/woff"),
            ("/a.m3u8", "application/vnd.apple.mpegurl"),
            ("/a.m4a", "audio/mp4"),
            ("/a.mid", "audio/midi"),
            ("/a.usdz", "model/vnd.usdz+zip"),
            ("/a.ktx2", "image/ktx2"),
            ("/a.zst", "application/zstd"),
            ("/a.ndjson", "application/x-ndjson"),
            ("/a.jsonl", "application/jsonl"),
            ("/a.psd", "image/vnd.adobe.photoshop"),
            ("/a.cjs", "text/javascript; charset=utf-8"),
            ("/a.wgsl", "text/wgsl; charset=utf-8"),
            ("/a.otf", "font/otf"),
            ("/a.yml", "application/yaml"),
            ("/a.TGZ", "application/gzip"),
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

    #[test]
    fn a_picture_that_was_compressed_is_in_a_coding() {
        let other = [FileMediaType::parse("svgz", "application/gzip").unwrap()];
        for (types, name, expected) in [
            (&[][..], "/a.svgz", Coding::Gzip),
            (&[], "/d/A.SVGZ", Coding::Gzip),
            (&[], "/a.svg", Coding::Identity),
            (&[], "/a.svg.gz", Coding::Identity),
            (&[], "/svgz", Coding::Identity),
            (&other, "/a.svgz", Coding::Identity),
        ] {
            assert_eq!(coding_of(types, name.as_bytes()), expected, "{name}");
        }
    }
}
