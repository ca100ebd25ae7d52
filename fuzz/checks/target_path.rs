//! What must hold for any bytes given as the path of a target.

use forebay_http::path::{self, PathError};

/// Panics if something does not hold for `raw`.
pub(crate) fn check(raw: &[u8]) {
    let mut out = b"/left/over".to_vec();
    let outcome = path::normalise(raw, &mut out);
    assert_eq!(outcome.map(|()| out.clone()), reference(raw));
    if outcome.is_ok() {
        check_normal(&out);
    }
    let mut encoded = Vec::new();
    path::encode(raw, &mut encoded);
    assert!(encoded.iter().all(|&b| b.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&b)));
}

fn check_normal(normal: &[u8]) {
    assert!(normal.starts_with(b"/"));
    assert!(!normal.windows(2).any(|pair| pair == b"//"));
    assert!(!normal.iter().any(|&b| b < b' ' || b == 0x7f || b == b'\\'));
    let segments: Vec<&[u8]> = normal[1..].split(|&b| b == b'/').collect();
    assert!(!segments.iter().any(|segment| matches!(*segment, b"." | b"..")));
    let is_hidden = segments.iter().enumerate().any(|(place, segment)| {
        segment.starts_with(b".") && !(place == 0 && *segment == b".well-known")
    });
    assert_eq!(path::is_hidden(normal), is_hidden);

    let (mut encoded, mut again) = (Vec::new(), Vec::new());
    path::encode(normal, &mut encoded);
    assert_eq!(path::normalise(&encoded, &mut again), Ok(()));
    assert_eq!(again, normal, "what was encoded names the same path");
}

/// The same in the plainest way: a list of decoded segments.
fn reference(raw: &[u8]) -> Result<Vec<u8>, PathError> {
    let rest = raw.strip_prefix(b"/").ok_or(PathError::Forbidden)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut ends_in_slash = true;
    for segment in rest.split(|&b| b == b'/') {
        let name = decode(segment)?;
        ends_in_slash = matches!(&name[..], b"" | b"." | b"..");
        match &name[..] {
            b"" | b"." => {}
            b".." => drop(names.pop().ok_or(PathError::Escapes)?),
            _ => names.push(name),
        }
    }
    let mut path = names.iter().flat_map(|name| [b"/", &name[..]].concat()).collect::<Vec<u8>>();
    if ends_in_slash || path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}

fn decode(segment: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut name = Vec::new();
    let mut at = 0;
    while at < segment.len() {
        let mut byte = segment[at];
        at += 1;
        if byte == b'%' {
            let digits =
                segment.get(at..at + 2).filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
            let digits = digits.and_then(|pair| std::str::from_utf8(pair).ok());
            let digits = digits.ok_or(PathError::Encoding)?;
            byte = u8::from_str_radix(digits, 16).map_err(|_| PathError::Encoding)?;
            at += 2;
        }
        if byte < b' ' || byte == 0x7f || byte == b'/' || byte == b'\\' {
            return Err(PathError::Forbidden);
        }
        name.push(byte);
    }
    Ok(name)
}
