//! The sending half of a case: text with escapes to bytes and actions.

use super::Mistake;
use std::time::Duration;

/// One step of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The value captured under this name.
    Variable(String),
    /// All bytes so far are sent, then none for this long.
    Pause(Duration),
    /// Every byte from here on is a write of its own, this long after the one before.
    Drip(Duration),
    /// The sending direction is closed; reading goes on.
    HalfClose,
    /// Nothing is read until everything of this block is sent.
    Deaf,
    /// The connection is dropped, and the rest goes over a new one.
    Reconnect,
}

/// The most bytes that one `\repeat` may make.
const MOST_REPEATED: usize = 16 << 20;

/// Parses the lines of one sending block. Every line ends in CR LF, unless it ends in a single
/// backslash or holds nothing but commands.
pub(super) fn parse(lines: &[(usize, &str)]) -> Result<Vec<SendStep>, Mistake> {
    let mut actions = Vec::new();
    for (number, line) in lines {
        let (text, ends) = match line.strip_suffix('\\') {
            // an even number of backslashes is an escaped one at the end
            Some(text) if trailing_backslashes(text).is_multiple_of(2) => (text, false),
            _ => (*line, true),
        };
        let pieces = pieces(text).map_err(|what| Mistake::new(*number, what))?;
        let only_commands = !pieces.is_empty()
            && !pieces.iter().any(|a| matches!(a, SendStep::Bytes(_) | SendStep::Variable(_)));
        for piece in pieces {
            push(&mut actions, piece);
        }
        if ends && !only_commands {
            push(&mut actions, SendStep::Bytes(b"\r\n".to_vec()));
        }
    }
    Ok(actions)
}

fn trailing_backslashes(text: &str) -> usize {
    text.len() - text.trim_end_matches('\\').len()
}

/// The pieces of one text: bytes, variables and commands.
pub(super) fn pieces(text: &str) -> Result<Vec<SendStep>, String> {
    let mut actions = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '$']) {
        push(&mut actions, SendStep::Bytes(rest[..at].into()));
        let (action, used) = if rest[at..].starts_with('$') {
            variable(&rest[at..])?
        } else {
            escape(&rest[at + 1..]).map(|(action, used)| (action, used + 1))?
        };
        push(&mut actions, action);
        rest = &rest[at + used..];
    }
    push(&mut actions, SendStep::Bytes(rest.into()));
    Ok(actions)
}

/// Adds an action; bytes join the bytes before them.
fn push(actions: &mut Vec<SendStep>, action: SendStep) {
    match (actions.last_mut(), action) {
        (_, SendStep::Bytes(more)) if more.is_empty() => {}
        (Some(SendStep::Bytes(bytes)), SendStep::Bytes(more)) => bytes.extend(more),
        (_, action) => actions.push(action),
    }
}

fn variable(text: &str) -> Result<(SendStep, usize), String> {
    let name: String = text[1..].chars().take_while(char::is_ascii_alphanumeric).collect();
    if name.is_empty() {
        return Err("`$` needs a name after it; write `\\$` for the sign itself".to_owned());
    }
    let used = 1 + name.len();
    Ok((SendStep::Variable(name), used))
}

/// Parses the text behind a backslash. Returns the step and the length of the text that it used.
fn escape(text: &str) -> Result<(SendStep, usize), String> {
    let single = |byte| Ok((SendStep::Bytes(vec![byte]), 1));
    match text.bytes().next() {
        Some(b'\\') => single(b'\\'),
        Some(b'$') => single(b'$'),
        Some(b'"') => single(b'"'),
        Some(b'0') => single(0),
        Some(b'x') => {
            let digits = text.get(1..3).ok_or("`\\x` needs two hexadecimal digits")?;
            let byte = u8::from_str_radix(digits, 16);
            Ok((
                SendStep::Bytes(vec![byte.map_err(|_| format!("`\\x{digits}` is not a byte"))?]),
                3,
            ))
        }
        Some(_) => command(text),
        None => Err("a backslash stands alone".to_owned()),
    }
}

/// Parses `name` or `name(arguments)`; `\r`, `\n` and `\t` are commands without a bracket.
fn command(text: &str) -> Result<(SendStep, usize), String> {
    if let Some((name, arguments, used)) = call(text) {
        let action = match name {
            "repeat" => repeat(arguments)?,
            "pause" => SendStep::Pause(duration(arguments)?),
            "drip" => SendStep::Drip(duration(arguments)?),
            _ => return Err(format!("unknown command `\\{name}(…)`")),
        };
        return Ok((action, used));
    }
    let words = [
        ("half-close", SendStep::HalfClose),
        ("reconnect", SendStep::Reconnect),
        ("deaf", SendStep::Deaf),
    ];
    for (word, action) in words {
        if text.starts_with(word) {
            return Ok((action, word.len()));
        }
    }
    let byte = match text.as_bytes()[0] {
        b'r' => b'\r',
        b'n' => b'\n',
        b't' => b'\t',
        _ => return Err(format!("unknown escape `\\{}`", text.chars().next().unwrap_or(' '))),
    };
    Ok((SendStep::Bytes(vec![byte]), 1))
}

/// Splits `name(arguments)…`; brackets do not nest, and arguments may be escaped.
fn call(text: &str) -> Option<(&str, &str, usize)> {
    let (name, rest) = text.split_once('(')?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase()) {
        return None;
    }
    let end = rest.find(')')?;
    Some((name, &rest[..end], name.len() + 1 + end + 1))
}

fn repeat(arguments: &str) -> Result<SendStep, String> {
    let (count, text) = arguments.split_once(',').ok_or("`\\repeat(COUNT,TEXT)`")?;
    let count: usize = count.trim().parse().map_err(|_| format!("`{count}` is not a count"))?;
    let pieces = pieces(text)?;
    let [SendStep::Bytes(unit)] = pieces.as_slice() else {
        return Err("only bytes can be repeated".to_owned());
    };
    if count.saturating_mul(unit.len()) > MOST_REPEATED {
        return Err(format!("more than {MOST_REPEATED} bytes are repeated"));
    }
    Ok(SendStep::Bytes(unit.repeat(count)))
}

fn duration(text: &str) -> Result<Duration, String> {
    let millis = text.strip_suffix("ms").and_then(|number| number.parse().ok());
    millis.map(Duration::from_millis).ok_or_else(|| format!("`{text}` is not like `50ms`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        match pieces(text).unwrap().as_slice() {
            [] => Vec::new(),
            [SendStep::Bytes(bytes)] => bytes.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn escapes_are_exact() {
        assert_eq!(bytes(r"a\r\n\t\0\x7f\\\$"), b"a\r\n\t\0\x7f\\$");
        assert_eq!(bytes(r"\repeat(3,a\n)!"), b"a\na\na\n!");
        assert_eq!(bytes("é"), "é".as_bytes());
        assert!(pieces(r"\xg0").is_err());
        assert!(pieces(r"$").is_err());
    }

    #[test]
    fn a_line_may_end_without_cr_lf() {
        let sent = |line| parse(&[(1, line)]).unwrap();
        assert_eq!(sent("a"), [SendStep::Bytes(b"a\r\n".to_vec())]);
        assert_eq!(sent(r"a\"), [SendStep::Bytes(b"a".to_vec())]);
        assert_eq!(sent(r"a\\"), [SendStep::Bytes(b"a\\\r\n".to_vec())]);
        assert_eq!(sent(r"a\\\"), [SendStep::Bytes(b"a\\".to_vec())]);
        assert_eq!(sent(r"\half-close"), [SendStep::HalfClose]);
        assert_eq!(sent(""), [SendStep::Bytes(b"\r\n".to_vec())]);
    }
}
