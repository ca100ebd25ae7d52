//! The expecting half of a case.

use super::Mistake;
use super::send::{self, SendStep};
use regex_lite::Regex;

/// The expectations of one turn.
#[derive(Debug, Default)]
pub struct ExpectedTurn {
    /// The answers, in order; none means silence.
    pub answers: Vec<ExpectedAnswer>,
    /// The state of the connection afterwards. The last turn always has one.
    pub state: Option<ExpectedState>,
}

/// The state of a connection after the last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedState {
    /// The connection answers the next request.
    Open,
    /// The server closed it in order.
    Closed,
    /// The server reset it.
    Reset,
}

/// The expectations of one answer.
#[derive(Debug)]
pub struct ExpectedAnswer {
    /// The line of the case file where the answer begins.
    pub line: usize,
    /// The number of times that this answer comes.
    pub times: usize,
    /// The status line, exactly.
    pub status_line: String,
    /// Fields that must be there, once.
    pub fields: Vec<(String, ExpectedValue)>,
    /// Fields that must not be there.
    pub absent: Vec<String>,
    /// An earlier answer of this case (from 1) whose fields this one must repeat.
    pub same_fields_as: Option<usize>,
    /// The body.
    pub body: ExpectedBody,
}

/// The expectation of a field's value.
#[derive(Debug)]
pub enum ExpectedValue {
    /// Anything.
    Any,
    /// Text in which this expression is found.
    Regex(Regex),
    /// This text. A variable without a value captures what stands in its place.
    Exactly(Vec<SendStep>),
}

/// The expectation of a body.
#[derive(Debug)]
pub enum ExpectedBody {
    /// Any body of the announced length.
    Unsaid,
    /// No body, whatever Content-Length says: the answer to HEAD.
    None,
    /// These parts, one after the other.
    Exactly(Vec<ExpectedPart>),
    /// A body with this number of bytes.
    Length(usize),
    /// Text in which this expression is found.
    Matching(Regex),
}

/// A part of an exact body.
#[derive(Debug)]
pub enum ExpectedPart {
    /// Text, perhaps with variables.
    Text(Vec<SendStep>),
    /// A file below the fixture's root, or the bytes from the first to the last position of it.
    File(String, Option<(usize, usize)>),
}

/// Parses the lines of one expecting block.
pub(super) fn parse(lines: &[(usize, &str)]) -> Result<ExpectedTurn, Mistake> {
    let mut expectation = ExpectedTurn::default();
    let mut silence = false;
    for (number, line) in lines.iter().filter(|(_, line)| !line.is_empty()) {
        let fail = |what: &str| Err(Mistake::new(*number, what));
        if expectation.state.is_some() {
            return fail("nothing can follow the state of the connection");
        }
        match *line {
            "open" => expectation.state = Some(ExpectedState::Open),
            "closed" => expectation.state = Some(ExpectedState::Closed),
            "reset" => expectation.state = Some(ExpectedState::Reset),
            "nothing" => silence = true,
            start if start.starts_with("HTTP/") => {
                expectation.answers.push(ExpectedAnswer::new(*number, start));
            }
            detail => match expectation.answers.last_mut() {
                Some(answer) => answer.add(detail).map_err(|what| Mistake::new(*number, what))?,
                None => return fail("an answer begins with its status line"),
            },
        }
    }
    if silence != expectation.answers.is_empty() {
        let line = lines.first().map_or(1, |(number, _)| *number);
        let what = "either answers or the word `nothing` must be there, not both";
        return Err(Mistake::new(line, what));
    }
    Ok(expectation)
}

impl ExpectedAnswer {
    fn new(line: usize, status_line: &str) -> ExpectedAnswer {
        let status_line = status_line.to_owned();
        let (fields, absent) = (Vec::new(), Vec::new());
        let (same_fields_as, body) = (None, ExpectedBody::Unsaid);
        ExpectedAnswer { line, times: 1, status_line, fields, absent, same_fields_as, body }
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        if let Some(name) = line.strip_prefix("! ") {
            self.absent.push(name.to_owned());
            return Ok(());
        }
        match line.split_once(": ") {
            Some(("body", text)) => self.add_body(text),
            Some(("times", count)) => {
                self.times = count.parse().map_err(|_| format!("`{count}` is not a number"))?;
                Ok(())
            }
            Some(("fields", text)) => {
                let number = text.strip_prefix("as answer ").and_then(|n| n.parse().ok());
                self.same_fields_as = Some(number.ok_or("`fields: as answer NUMBER`")?);
                Ok(())
            }
            Some((name, value)) if !name.contains(' ') => {
                self.fields.push((name.to_owned(), ExpectedValue::parse(value)?));
                Ok(())
            }
            _ => Err(format!("`{line}` is neither a field nor a state")),
        }
    }

    fn add_body(&mut self, text: &str) -> Result<(), String> {
        if let Some(part) = ExpectedPart::parse(text)? {
            match &mut self.body {
                ExpectedBody::Exactly(parts) => parts.push(part),
                ExpectedBody::Unsaid => self.body = ExpectedBody::Exactly(vec![part]),
                _ => return Err("the body is already said otherwise".to_owned()),
            }
            return Ok(());
        }
        if !matches!(self.body, ExpectedBody::Unsaid) {
            return Err("the body is already said".to_owned());
        }
        self.body = match (text, text.strip_suffix(" bytes"), text.strip_prefix('~')) {
            ("none", ..) => ExpectedBody::None,
            ("empty", ..) => ExpectedBody::Exactly(Vec::new()),
            (_, Some(count), _) => ExpectedBody::Length(
                count.parse().map_err(|_| format!("`{count}` is not a number"))?,
            ),
            (_, _, Some(expression)) => ExpectedBody::Matching(regex(expression)?),
            _ => return Err(format!("`{text}` is not a way to say a body")),
        };
        Ok(())
    }
}

impl ExpectedValue {
    fn parse(text: &str) -> Result<ExpectedValue, String> {
        Ok(match text.strip_prefix('~') {
            _ if text == "*" => ExpectedValue::Any,
            Some(expression) => ExpectedValue::Regex(regex(expression)?),
            None => ExpectedValue::Exactly(text_only(text)?),
        })
    }
}

impl ExpectedPart {
    /// `"text"` or `file PATH [FIRST-LAST]`; `None` if it is neither.
    fn parse(text: &str) -> Result<Option<ExpectedPart>, String> {
        if let Some(inner) = text.strip_prefix('"') {
            let inner = inner.strip_suffix('"').ok_or("the closing quote is missing")?;
            return Ok(Some(ExpectedPart::Text(text_only(inner)?)));
        }
        let Some(file) = text.strip_prefix("file ") else { return Ok(None) };
        let range = file.rsplit_once(' ').and_then(|(path, range)| {
            let (first, last) = range.split_once('-')?;
            Some((path, (first.parse().ok()?, last.parse().ok()?)))
        });
        Ok(Some(match range {
            Some((path, range)) => ExpectedPart::File(path.to_owned(), Some(range)),
            None => ExpectedPart::File(file.to_owned(), None),
        }))
    }
}

fn text_only(text: &str) -> Result<Vec<SendStep>, String> {
    let pieces = send::pieces(text)?;
    if pieces.iter().all(|piece| matches!(piece, SendStep::Bytes(_) | SendStep::Variable(_))) {
        Ok(pieces)
    } else {
        Err("commands belong into what is sent".to_owned())
    }
}

fn regex(expression: &str) -> Result<Regex, String> {
    Regex::new(expression).map_err(|error| format!("`{expression}`: {error}"))
}
