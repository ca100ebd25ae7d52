//! Plays a case against a server and reports what did not come as expected.

use crate::answer::Answer;
use crate::case::{self, Case, ExpectedBody, ExpectedPart, ExpectedState, ExpectedValue, SendStep};
use crate::wire::{self, End, PATIENCE};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A request that shows that a connection still answers, and that nothing was left over on it.
const PROBE: &[u8] = b"GET /small.txt HTTP/1.1\r\nHost: probe.example\r\nConnection: close\r\n\r\n";

/// The time for which a server must stay silent where `nothing` is followed by more, or by `open`.
const SILENCE: Duration = Duration::from_millis(200);

/// The way in which the bytes of a case are handed to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manner {
    /// The bytes are sent in as few writes as the case allows.
    Whole,
    /// The bytes are cut into small pieces: it must not matter where the network cuts.
    Pieces,
}

/// Plays `case` against the server at `addr` that serves the fixture at `root`.
///
/// # Errors
/// The difference from the case, for a person to read.
pub fn play(case: &Case, addr: SocketAddr, root: &Path, manner: Manner) -> Result<(), String> {
    let mut player = Player::new(addr, root, manner);
    let outcome = case.turns.iter().try_for_each(|turn| player.turn(turn));
    outcome.map_err(|what| {
        let unread =
            player.line.as_ref().map_or(&[][..], |line| line.unread.as_slice()).escape_ascii();
        format!("{}: {}\n{what}\nunread: \"{unread}\"", case.section, case.title)
    })
}

struct Player<'p> {
    addr: SocketAddr,
    root: &'p Path,
    manner: Manner,
    /// The connection. `None` before anything is sent, and between two connections.
    line: Option<PlayedConnection>,
    variables: HashMap<String, Vec<u8>>,
    answers: Vec<Answer>,
}

/// One connection. A thread reads it all the time, so that a server that answers before it has read
/// everything never waits for us while we wait for it.
struct PlayedConnection {
    stream: ClosingSocket,
    incoming: Receiver<Vec<u8>>,
    /// A handle that is dropped when reading may begin.
    hold: Option<Sender<()>>,
    reader: thread::JoinHandle<End>,
    unread: Vec<u8>,
    half_closed: bool,
}

/// A socket that is shut down on drop, because the reader's handle would keep it open otherwise.
struct ClosingSocket(TcpStream);

impl Drop for ClosingSocket {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl PlayedConnection {
    fn new(addr: SocketAddr) -> PlayedConnection {
        let stream = wire::connect(addr);
        let mut reading = stream.try_clone().unwrap();
        let (sender, incoming) = channel();
        let (hold, is_held) = channel::<()>();
        let reader = thread::spawn(move || {
            let _ = is_held.recv();
            loop {
                let mut bytes = Vec::new();
                // the limit is for each piece: on a busy machine 30 MB take longer than a client is patient
                match wire::read_some(&mut reading, &mut bytes, Instant::now() + PATIENCE) {
                    Some(end) => return end,
                    None if sender.send(bytes).is_err() => return End::Silent,
                    None => {}
                }
            }
        });
        PlayedConnection {
            stream: ClosingSocket(stream),
            incoming,
            hold: Some(hold),
            reader,
            unread: Vec::new(),
            half_closed: false,
        }
    }

    /// Waits for more bytes; `Ok(false)` if nothing can come any more.
    fn more(&mut self, patience: Duration) -> Result<bool, String> {
        match self.incoming.recv_timeout(patience) {
            Ok(bytes) => {
                self.unread.extend(bytes);
                Ok(true)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(false),
            Err(RecvTimeoutError::Timeout) => Err("nothing more came in time".to_owned()),
        }
    }

    /// The end of the connection, once [`more`](PlayedConnection::more) has reported it.
    fn end(self) -> End {
        self.reader.join().unwrap_or(End::Reset)
    }
}

impl<'p> Player<'p> {
    fn new(addr: SocketAddr, root: &'p Path, manner: Manner) -> Player<'p> {
        let (variables, answers) = (HashMap::new(), Vec::new());
        Player { addr, root, manner, line: None, variables, answers }
    }

    fn line(&mut self) -> &mut PlayedConnection {
        self.line.get_or_insert_with(|| PlayedConnection::new(self.addr))
    }

    fn turn(&mut self, turn: &case::CaseTurn) -> Result<(), String> {
        self.send(&turn.send)?;
        for expected in &turn.expect.answers {
            for _ in 0..expected.times {
                self.expect(expected)?;
            }
        }
        if turn.expect.answers.is_empty() && turn.expect.state != Some(ExpectedState::Closed) {
            self.stay_silent()?;
        }
        match turn.expect.state {
            None => Ok(()),
            Some(ExpectedState::Open) => self.probe(),
            Some(ExpectedState::Closed) => self.expect_end(End::Closed),
            Some(ExpectedState::Reset) => self.expect_end(End::Reset),
        }
    }

    fn expect(&mut self, expected: &case::ExpectedAnswer) -> Result<(), String> {
        let bodiless = matches!(expected.body, ExpectedBody::None);
        let answer = self.receive(bodiless);
        let answer = answer.map_err(|what| format!("at line {}: {what}", expected.line))?;
        let mut faults = answer.faults();
        self.compare(expected, &answer, &mut faults);
        self.answers.push(answer);
        if faults.is_empty() { Ok(()) } else { Err(self.report(expected.line, &faults)) }
    }

    fn send(&mut self, actions: &[SendStep]) -> Result<(), String> {
        let mut waiting = Vec::new();
        let mut drip = None;
        let is_deaf = actions.contains(&SendStep::Deaf);
        self.line().hold.take_if(|_| !is_deaf);
        for action in actions {
            match action {
                SendStep::Bytes(bytes) => waiting.extend_from_slice(bytes),
                SendStep::Variable(name) => waiting.extend_from_slice(self.variable(name)?),
                command => {
                    self.write(&mut waiting, drip);
                    match command {
                        SendStep::Pause(time) => thread::sleep(*time),
                        SendStep::Drip(time) => drip = Some(*time),
                        SendStep::HalfClose => {
                            self.line().half_closed = true;
                            let _ = self.line().stream.0.shutdown(Shutdown::Write);
                        }
                        SendStep::Reconnect => {
                            self.line = None;
                            self.line().hold.take_if(|_| !is_deaf);
                        }
                        _ => {}
                    }
                }
            }
        }
        self.write(&mut waiting, drip);
        self.line().hold = None;
        Ok(())
    }

    /// Writes bytes. Errors are left to the reading side: a server that refuses may close before it has
    /// read everything, and only its answer counts.
    fn write(&mut self, bytes: &mut Vec<u8>, drip: Option<Duration>) {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let len = match (drip, self.manner) {
                (Some(_), _) => 1,
                (None, Manner::Whole) => rest.len(),
                // large amounts are sent in larger pieces, or it takes too long
                (None, Manner::Pieces) => (1 + rest.len() % 7 + rest.len() / 64).min(rest.len()),
            };
            let _ = self.line().stream.0.write_all(&rest[..len]);
            rest = &rest[len..];
            drip.into_iter().for_each(thread::sleep);
        }
        bytes.clear();
    }

    fn variable(&self, name: &str) -> Result<&[u8], String> {
        self.variables
            .get(name)
            .map(Vec::as_slice)
            .ok_or_else(|| format!("${name} was never captured"))
    }

    fn receive(&mut self, bodiless: bool) -> Result<Answer, String> {
        let (mut answer, head_len) = loop {
            match Answer::parse_head(&self.line().unread)? {
                Some(parsed) => break parsed,
                None if self.line().more(PATIENCE)? => {}
                None => return Err(self.ended("before a whole head came")),
            }
        };
        let body_len = if bodiless { 0 } else { answer.body_len()? };
        while self.line().unread.len() < head_len + body_len {
            if !self.line().more(PATIENCE)? {
                let missing = head_len + body_len - self.line().unread.len();
                return Err(self.ended(&format!("{missing} bytes before the body's end")));
            }
        }
        let unread = &mut self.line().unread;
        let rest = unread.split_off(head_len + body_len);
        answer.body = unread.split_off(head_len);
        *unread = rest;
        Ok(answer)
    }

    /// Reports a connection that has ended too early: how it ended, and what came before.
    fn ended(&mut self, too_early: &str) -> String {
        let rest = self.line().unread.len();
        let end = self.line.take().map_or(End::Closed, PlayedConnection::end);
        let whole = self.answers.len();
        format!(
            "the connection ended {too_early} ({end:?}, after {whole} answers and {rest} bytes)"
        )
    }

    fn compare(
        &mut self,
        expected: &case::ExpectedAnswer,
        answer: &Answer,
        faults: &mut Vec<String>,
    ) {
        if answer.status_line != expected.status_line {
            faults.push(format!(
                "status line is {:?}, not {:?}",
                answer.status_line, expected.status_line
            ));
        }
        for (name, pattern) in &expected.fields {
            match answer.value(name) {
                None => faults.push(format!("{name} is missing")),
                Some(value) if !self.matches(pattern, value) => {
                    faults.push(format!("{name} is {value:?}"));
                }
                Some(_) => {}
            }
        }
        for name in &expected.absent {
            if let Some(value) = answer.value(name) {
                faults.push(format!("{name} should not be there: {value:?}"));
            }
        }
        if let Some(earlier) = expected.same_fields_as.and_then(|n| self.answers.get(n - 1))
            && lasting_fields(earlier) != lasting_fields(answer)
        {
            faults.push(format!("the fields differ from {:?}", earlier.fields));
        }
        if let Err(what) = self.compare_body(&expected.body, &answer.body) {
            faults.push(what);
        }
    }

    fn matches(&mut self, pattern: &ExpectedValue, value: &str) -> bool {
        match pattern {
            ExpectedValue::Any => true,
            ExpectedValue::Regex(regex) => regex.is_match(value),
            ExpectedValue::Exactly(pieces) => self.match_pieces(pieces, value.as_bytes()),
        }
    }

    /// Compares from left to right. A variable without a value takes everything up to the next piece.
    fn match_pieces(&mut self, pieces: &[SendStep], mut value: &[u8]) -> bool {
        for (index, piece) in pieces.iter().enumerate() {
            let known = match piece {
                SendStep::Bytes(bytes) => Some(bytes),
                SendStep::Variable(name) => self.variables.get(name),
                _ => None,
            };
            let used = match (known, piece) {
                (Some(bytes), _) if value.starts_with(bytes) => bytes.len(),
                (None, SendStep::Variable(name)) => {
                    let end = match pieces.get(index + 1) {
                        Some(SendStep::Bytes(next)) => find(value, next),
                        _ => Some(value.len()),
                    };
                    let Some(end) = end.filter(|&end| end > 0) else { return false };
                    self.variables.insert(name.clone(), value[..end].to_vec());
                    end
                }
                _ => return false,
            };
            value = &value[used..];
        }
        value.is_empty()
    }

    fn compare_body(&self, expected: &ExpectedBody, body: &[u8]) -> Result<(), String> {
        match expected {
            ExpectedBody::Unsaid | ExpectedBody::None => Ok(()),
            ExpectedBody::Length(count) if body.len() == *count => Ok(()),
            ExpectedBody::Length(count) => {
                Err(format!("the body has {} bytes, not {count}", body.len()))
            }
            ExpectedBody::Matching(regex) if regex.is_match(&String::from_utf8_lossy(body)) => {
                Ok(())
            }
            ExpectedBody::Matching(regex) => {
                Err(format!("the body does not match {}", regex.as_str()))
            }
            ExpectedBody::Exactly(parts) => {
                let mut whole = Vec::new();
                for part in parts {
                    self.add_part(part, &mut whole)?;
                }
                if whole == body {
                    return Ok(());
                }
                let at = whole.iter().zip(body).take_while(|(a, b)| a == b).count();
                Err(format!(
                    "the body differs at byte {at} ({} bytes, should be {})",
                    body.len(),
                    whole.len()
                ))
            }
        }
    }

    fn add_part(&self, part: &ExpectedPart, whole: &mut Vec<u8>) -> Result<(), String> {
        match part {
            ExpectedPart::Text(pieces) => {
                for piece in pieces {
                    match piece {
                        SendStep::Variable(name) => whole.extend_from_slice(self.variable(name)?),
                        SendStep::Bytes(bytes) => whole.extend_from_slice(bytes),
                        _ => {}
                    }
                }
            }
            ExpectedPart::File(path, range) => {
                let file =
                    fs::read(self.root.join(path)).map_err(|error| format!("{path}: {error}"))?;
                let (first, last) = range.unwrap_or((0, file.len().saturating_sub(1)));
                let end = file.len().min(last + 1);
                whole.extend_from_slice(
                    file.get(first..end).ok_or("the range is outside the file")?,
                );
            }
        }
        Ok(())
    }

    fn stay_silent(&mut self) -> Result<(), String> {
        match self.line().more(SILENCE) {
            Err(_) => Ok(()),
            Ok(true) => Err("something came where nothing should".to_owned()),
            // how it ended is checked next
            Ok(false) => Ok(()),
        }
    }

    /// Checks that the connection is open and that no stray bytes were sent: the next request gets
    /// exactly its answer.
    fn probe(&mut self) -> Result<(), String> {
        let explain = |what| format!("the connection should be open, but the next request: {what}");
        let _ = self.line().stream.0.write_all(PROBE);
        let answer = self.receive(false).map_err(explain)?;
        if answer.status != 200 || !answer.faults().is_empty() {
            return Err(explain(format!("{:?}", answer.status_line)));
        }
        self.answers.push(answer);
        self.expect_end(End::Closed).map_err(explain)
    }

    fn expect_end(&mut self, expected: End) -> Result<(), String> {
        while self.line().more(PATIENCE)? {}
        if !self.line().unread.is_empty() {
            return Err("more came than was expected".to_owned());
        }
        let half_closed = self.line().half_closed;
        let end = self.line.take().map_or(End::Closed, PlayedConnection::end);
        if end != expected {
            return Err(format!("the connection should be {expected:?}, but is {end:?}"));
        }
        let announced = self.answers.last().is_none_or(|a| a.value("Connection") == Some("close"));
        if expected == End::Closed && !announced && !half_closed {
            return Err("the last answer does not say `Connection: close`".to_owned());
        }
        Ok(())
    }

    fn report(&self, line: usize, faults: &[String]) -> String {
        let mut text = format!("at line {line}: {}\ncame:\n", faults.join("; "));
        if let Some(answer) = self.answers.last() {
            let _ = writeln!(text, "  {}", answer.status_line);
            for (name, value) in &answer.fields {
                let _ = writeln!(text, "  {name}: {value}");
            }
            let shown = &answer.body[..answer.body.len().min(200)];
            let _ = write!(text, "  {} bytes: \"{}\"", answer.body.len(), shown.escape_ascii());
        }
        text
    }
}

/// The fields that do not depend on when and how the answer was sent.
fn lasting_fields(answer: &Answer) -> Vec<(String, String)> {
    let lasts = |name: &str| !["date", "connection", "keep-alive"].contains(&name);
    let fields =
        answer.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut fields: Vec<_> = fields.filter(|(name, _)| lasts(name)).collect();
    fields.sort();
    fields
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
