//! The client's end of the control socket: sends a command and reads the server's answer.

use super::deadline_stream::{DeadlineStream, is_late};
use super::unanswered::{ListeningProcess, UnansweredCommand, WhyUnanswered};
use super::{LONGEST_WORK, PATIENCE};
use crate::command::CommandAnswer;
use forebay_sys::unix;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait for a command that only asks what the server knows.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// The commands that only ask what the server knows, or their beginnings.
const LOOKS: [&str; 9] = [
    "status",
    "why ",
    "policy show",
    "policy explain ",
    "policy counts",
    "policy bans",
    "policy history",
    "upstream list",
    "upgrade ",
];

/// How often the client looks whether the process that must answer is stopped.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How often the client tries again to connect while the backlog is full.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Asks the server that listens at `path`, and waits for its answer.
///
/// # Errors
/// When no server listens there, no answer comes in time, or what comes is no answer of a server.
pub fn ask(path: &Path, command: &str) -> Result<CommandAnswer, UnansweredCommand> {
    let is_look = LOOKS.iter().any(|look| command.starts_with(look));
    let longest = if is_look { LONGEST_LOOK } else { LONGEST_WORK + 2 * PATIENCE };
    ask_within(path, command, longest)
}

/// Asks as [`ask`] does, and waits no longer than this for the answer.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_within(
    path: &Path,
    command: &str,
    longest: Duration,
) -> Result<CommandAnswer, UnansweredCommand> {
    let stream = connect(path).map_err(|error| UnansweredCommand::unconnected(path, error))?;
    let unanswered = |why| UnansweredCommand { socket: path.to_owned(), why };
    let begun = Instant::now();
    let mut line = DeadlineStream::new(stream, PATIENCE);
    // a server may answer before it has read everything; a missing answer is noticed below
    let _ = writeln!(line, "{command}").and_then(|()| line.stream.shutdown(Shutdown::Write));
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        line.extend(LOOK_AGAIN.min(longest.saturating_sub(begun.elapsed())));
        match line.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_late(&error) => {
                let process = ListeningProcess::of(&line.stream);
                let is_stopped = process.as_ref().is_some_and(|process| process.is_stopped);
                if is_stopped || begun.elapsed() >= longest {
                    return Err(unanswered(WhyUnanswered::Silent(process, begun.elapsed())));
                }
            }
            Err(_) => break,
        }
    }
    read_answer(&answer)
        .ok_or_else(|| unanswered(WhyUnanswered::Strange(ListeningProcess::of(&line.stream))))
}

/// Parses an answer: the exit code on a line of its own, then text.
fn read_answer(answer: &[u8]) -> Option<CommandAnswer> {
    let (code, text) = std::str::from_utf8(answer).ok()?.split_once('\n')?;
    Some(CommandAnswer { code: code.parse().ok()?, text: text.to_owned() })
}

/// Connects. While the backlog is full, the client tries again for a while: a server may have many
/// commands at once.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match unix::connect(path) {
            Ok(stream) => return Ok(UnixStream::from(stream)),
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(TRY_AGAIN);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::path::PathBuf;

    fn said(path: &Path) -> String {
        let asked = ask_within(path, "status", Duration::from_millis(10));
        asked.expect_err("nobody answers").to_string()
    }

    /// The operator reads what is behind a socket, whatever it is.
    #[test]
    fn what_does_not_answer_is_named() {
        let directory =
            std::env::temp_dir().join(format!("forebay-unanswered-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| -> PathBuf { directory.join(name) };
        let own = format!("process {} (", std::process::id());

        assert!(said(&at("none")).contains("there is no such socket"));
        assert!(said(&at("none/none")).contains("there is no such socket"));
        fs::write(at("file"), "").unwrap();
        assert!(said(&at("file")).ends_with("what is there is no control socket"));
        assert!(said(&at("file/below")).contains("there is no such socket"));
        let _datagram = UnixDatagram::bind(at("datagram")).unwrap();
        assert!(said(&at("datagram")).ends_with("what is there is no control socket"));
        drop(UnixListener::bind(at("dead")).unwrap());
        assert!(said(&at("dead")).ends_with("has ended"));

        // a listener whose connections get no answer
        let silent = UnixListener::bind(at("silent")).unwrap();
        let told = said(&at("silent"));
        assert!(told.starts_with(&own) && told.contains("has not answered within"), "{told}");
        // and the same listener with a full backlog
        let mut waiting = Vec::new();
        while let Ok(stream) = unix::connect(&at("silent")) {
            waiting.push(stream);
        }
        let told = UnansweredCommand::unconnected(&at("silent"), io::ErrorKind::WouldBlock.into());
        assert!(told.to_string().contains("takes no more commands"));
        drop((silent, waiting));

        // another program, whether it sends something or not
        for answer in [
            &b""[..],
            b"220 mail.example ESMTP\r\n",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\xff\n",
        ] {
            let path = at("other");
            let other = UnixListener::bind(&path).unwrap();
            let speaks = std::thread::spawn(move || {
                let (mut stream, _) = other.accept().unwrap();
                stream.read_to_end(&mut Vec::new()).unwrap();
                stream.write_all(answer).unwrap();
            });
            let told = ask(&path, "status").expect_err("it is none").to_string();
            assert!(
                told.starts_with(&own) && told.contains("does not answer as Forebay"),
                "{told}"
            );
            speaks.join().unwrap();
            fs::remove_file(path).unwrap();
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_answer_has_a_code() {
        let answer = CommandAnswer { code: 7, text: "a\nb".to_owned() };
        assert_eq!(read_answer(b"7\na\nb"), Some(answer));
        for text in ["", "7", "x\n", "256\n", "-1\n"] {
            assert_eq!(read_answer(text.as_bytes()), None, "{text}");
        }
    }
}
