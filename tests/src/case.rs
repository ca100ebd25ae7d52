//! A conformance case: bytes in, a line `---`, what must come back. `conformance/README.md` describes the
//! notation for authors of cases; this module reads it.

mod expect;
mod send;

pub use expect::{
    ExpectedAnswer, ExpectedBody, ExpectedPart, ExpectedState, ExpectedTurn, ExpectedValue,
};
pub use send::SendStep;

use std::fmt;

/// One case file.
#[derive(Debug)]
pub struct Case {
    /// The section that the case checks: `RFC 9110 §13.1.2`.
    pub section: String,
    /// The subject of the case, in words.
    pub title: String,
    /// TOML lines the server is configured with; empty for most cases.
    pub config: String,
    /// Whether the sent bytes may be cut anywhere without a change in the answers.
    pub may_be_cut: bool,
    /// Whether the case is about HTTP/1 alone: its text, or connections with one request at a time.
    pub is_of_http1: bool,
    /// The sent bytes and the expected answers, in turn.
    pub turns: Vec<CaseTurn>,
}

/// One exchange of a case.
#[derive(Debug)]
pub struct CaseTurn {
    /// The steps that are sent.
    pub send: Vec<SendStep>,
    /// The answers that must come.
    pub expect: ExpectedTurn,
}

/// A mistake in a case file, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The line, from 1.
    pub line: usize,
    /// The mistake.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Mistake {
    fn new(line: usize, what: impl Into<String>) -> Mistake {
        Mistake { line, what: what.into() }
    }
}

impl Case {
    /// Reads a case file.
    ///
    /// # Errors
    /// The first [`Mistake`] in it.
    pub fn parse(text: &str) -> Result<Case, Mistake> {
        let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(n, l)| (n + 1, l)).collect();
        let comments = lines.iter().take_while(|(_, line)| line.starts_with('#')).count();
        let (head, rest) = lines.split_at(comments);
        let mut case = Case::from_comments(head)?;
        let mut blocks = rest.split(|(_, line)| *line == "---");
        while let Some(send) = blocks.next() {
            let Some(expected) = blocks.next() else {
                return Err(Mistake::new(
                    lines.len(),
                    "the last `---` and what must come back are missing",
                ));
            };
            case.turns
                .push(CaseTurn { send: send::parse(send)?, expect: expect::parse(expected)? });
        }
        case.check_states(lines.len())?;
        Ok(case)
    }

    fn from_comments(lines: &[(usize, &str)]) -> Result<Case, Mistake> {
        let mut comments = lines.iter().map(|(number, line)| (*number, line[1..].trim()));
        let (Some((_, section)), Some((_, title))) = (comments.next(), comments.next()) else {
            return Err(Mistake::new(1, "a case begins with `# SECTION` and `# TITLE`"));
        };
        let mut case = Case {
            section: section.to_owned(),
            title: title.to_owned(),
            config: String::new(),
            may_be_cut: true,
            is_of_http1: false,
            turns: Vec::new(),
        };
        for (number, comment) in comments {
            match comment.split_once(": ") {
                Some(("config", line)) => {
                    case.config.push_str(line);
                    case.config.push('\n');
                }
                Some(("pieces", "never")) => case.may_be_cut = false,
                Some(("only", "HTTP/1")) => case.is_of_http1 = true,
                Some((word, _)) if !word.contains(' ') => {
                    return Err(Mistake::new(number, format!("unknown setting `{word}`")));
                }
                _ => {}
            }
        }
        Ok(case)
    }

    /// Checks that the state of the connection is stated once, at the end.
    fn check_states(&self, last_line: usize) -> Result<(), Mistake> {
        let Some((last, others)) = self.turns.split_last() else {
            return Err(Mistake::new(last_line, "the case sends nothing"));
        };
        if last.expect.state.is_none() {
            let what = "the case must end with open, closed or reset";
            return Err(Mistake::new(last_line, what));
        }
        for turn in others {
            if turn.expect.state == Some(ExpectedState::Open) {
                let what = "`open` goes to the end of the case; here the next bytes show it";
                return Err(Mistake::new(last_line, what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SAMPLE: &str = r#"# RFC 9110 §13.1.2
# a title
# config: a = 1
GET / HTTP/1.1
If-None-Match: $etag
\pause(50ms)

half\
---
HTTP/1.1 200 OK
Date: *
ETag: "$etag"
! Vary
body: "a\r\n"
body: file small.txt 0-3

HTTP/1.1 404 Not Found
body: ~^not
closed
"#;

    #[test]
    fn a_whole_case_is_read() {
        let case = Case::parse(SAMPLE).unwrap();
        assert_eq!((case.section.as_str(), case.config.as_str()), ("RFC 9110 §13.1.2", "a = 1\n"));
        let [turn] = case.turns.as_slice() else { panic!("{case:?}") };
        let expected = [
            SendStep::Bytes(b"GET / HTTP/1.1\r\nIf-None-Match: ".to_vec()),
            SendStep::Variable("etag".to_owned()),
            SendStep::Bytes(b"\r\n".to_vec()),
            SendStep::Pause(Duration::from_millis(50)),
            SendStep::Bytes(b"\r\nhalf".to_vec()),
        ];
        assert_eq!(turn.send, expected);
        let [first, second] = turn.expect.answers.as_slice() else { panic!("{turn:?}") };
        assert_eq!(first.fields.len(), 2);
        assert_eq!(first.absent, ["Vary"]);
        assert!(matches!(&first.body, ExpectedBody::Exactly(parts) if parts.len() == 2));
        assert!(matches!(&second.body, ExpectedBody::Matching(_)));
        assert_eq!(turn.expect.state, Some(ExpectedState::Closed));
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, line) in [
            ("# a\n", 1),
            ("# a\n# b\nGET\n", 3),
            ("# a\n# b\n# confg: x\nGET\n---\nopen\n", 3),
            ("# a\n# b\nGET \\q\n---\nopen\n", 3),
            ("# a\n# b\nGET\n---\nHTTP/1.1 200 OK\n", 5),
            ("# a\n# b\nGET\n---\nHTTP/1.1 200 OK\nContent-Length 3\nopen\n", 6),
            ("# a\n# b\nGET\n---\nHTTP/1.1 200 OK\nbody: nonsense\nopen\n", 6),
        ] {
            let mistake = Case::parse(text).expect_err(text);
            assert_eq!(mistake.line, line, "{text}: {mistake}");
        }
    }
}
