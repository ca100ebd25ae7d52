//! Texts as they stand in TOML, and in messages.

/// A text as a TOML basic string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A key of a table as TOML.
pub(crate) fn bare_or_quoted(name: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quote(name) }
}

/// An array of strings as TOML.
pub(crate) fn show_list(items: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = items.map(|item| quote(&item)).collect();
    format!("[{}]", quoted.join(", "))
}
