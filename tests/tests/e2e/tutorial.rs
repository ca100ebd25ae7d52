//! The manual's tutorial: each command is run, each file is written, and the output is what the page
//! shows.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, free_at_all_addresses};
use forebay_tests::wire::PATIENCE;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const MANUAL: &str = include_str!("../../../docs/manual/tutorial.md");

/// The sign that stands for any text on the page; alone on a line, for any lines.
const ANY: &str = "…";

/// A block of the page: its language, the line before it, and its text.
struct Block<'p> {
    language: &'p str,
    before: &'p str,
    text: &'p str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').unwrap();
        let (text, after) = after.split_once("```\n").unwrap();
        let before = before.trim_end();
        blocks.push(Block { language, before, text });
        // the line end before the next block may be the last of this one
        rest = &rest[rest.len() - after.len() - 1..];
    }
    blocks
}

/// A command of a block, and its output.
struct Step {
    command: String,
    output: Vec<String>,
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
            None => steps.last_mut().unwrap().output.push(line.to_owned()),
        }
    }
    steps
}

/// Whether an output is what the page shows, where some parts of the page stand for any text.
fn is_like(page: &[&str], printed: &[&str]) -> bool {
    match page {
        [] => printed.is_empty(),
        [ANY, page @ ..] => (0..=printed.len()).any(|at| is_like(page, &printed[at..])),
        [line, page @ ..] => {
            printed.first().is_some_and(|printed| fits(line, printed))
                && is_like(page, &printed[1..])
        }
    }
}

/// Whether a line is what the page shows.
fn fits(page: &str, printed: &str) -> bool {
    let Some((start, rest)) = page.split_once(ANY) else { return page == printed };
    let Some(printed) = printed.strip_prefix(start) else { return false };
    let places = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
    let mut tails = places.map(|at| &printed[at..]);
    tails.any(|tail| fits(rest, tail))
}

/// A reader who follows the page.
struct Reader {
    folder: Folder,
    path: String,
    servers: Vec<Child>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.servers.iter_mut().for_each(|server| end(server, Signal::KILL));
    }
}

fn end(server: &mut Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(server), signal);
    let _ = server.wait();
}

impl Reader {
    fn new() -> Reader {
        let folder = Folder::new();
        for name in ["bin", "home", "work"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(binary(), folder.join("bin/forebay")).unwrap();
        // without a terminal curl would print its progress
        fs::write(folder.join("home/.curlrc"), "silent\nmax-time = 60\n").unwrap();
        let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
        Reader { folder, path, servers: Vec::new() }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.folder.join("work").join(name)
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(command).current_dir(self.work("")).stdin(Stdio::null());
        shell.env("HOME", self.folder.join("home")).env("PATH", &self.path);
        shell.env_remove("XDG_DATA_HOME").env("PYTHONUNBUFFERED", "1");
        shell
    }

    /// Runs a command that ends by itself.
    fn run(&self, step: &Step) {
        let output = self.shell(&format!("{{ {}\n}} 2>&1", step.command)).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        self.compare(step, &printed);
    }

    /// Starts a server, which goes on.
    fn start(&mut self, step: &Step, number: usize) {
        let file = self.folder.join(&format!("printed-{number}"));
        let printed = File::create(&file).unwrap();
        let mut shell = self.shell(&format!("exec {}", step.command));
        shell.process_group(0).stdout(printed.try_clone().unwrap()).stderr(printed);
        self.servers.push(shell.spawn().unwrap());
        let text = || fs::read_to_string(&file).unwrap();
        let page: Vec<&str> = step.output.iter().map(String::as_str).collect();
        let is_there = || {
            let text = text();
            // lines of its log may follow
            (0..=text.lines().count())
                .any(|count| is_like(&page, &text.lines().take(count).collect::<Vec<_>>()))
        };
        assert!(soon(PATIENCE, is_there), "$ {}\n{}", step.command, text());
    }

    fn compare(&self, step: &Step, printed: &str) {
        let page: Vec<&str> = step.output.iter().map(String::as_str).collect();
        let lines: Vec<&str> = printed.lines().collect();
        assert!(
            is_like(&page, &lines),
            "$ {}\n{printed}\ninstead of\n{}\nin {}",
            step.command,
            step.output.join("\n"),
            self.work("").display()
        );
    }

    /// Writes a block into the file that the line before it names.
    fn write(&self, block: &Block<'_>) {
        let name = block.before.rsplit('`').nth(1).unwrap();
        let file = self.work(name);
        let before = block.before.replace('\n', " ");
        if before.ends_with(&format!("the end of `{name}`:")) {
            let mut file = OpenOptions::new().append(true).open(file).unwrap();
            return file.write_all(format!("\n{}", block.text).as_bytes()).unwrap();
        }
        assert!(block.before.ends_with(&format!("`{name}`:")), "{}", block.before);
        fs::write(file, block.text).unwrap();
    }
}

/// Waits for the application, which prints nothing when it can be asked.
fn wait_for(port: &str) {
    let is_up = || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();
    assert!(soon(PATIENCE, is_up), "nothing listens at {port}");
}

#[test]
fn every_command_does_what_the_page_says() {
    let ports = ["8080", "8443", "3000"].map(|port| (port, free_at_all_addresses().port()));
    // no port that is put in is taken for another one of the page
    let named = |page: String, (port, _)| page.replace(port, &format!("<{port}>"));
    let put =
        |page: String, (port, own): (_, u16)| page.replace(&format!("<{port}>"), &own.to_string());
    let page = ports.into_iter().fold(MANUAL.to_owned(), named);
    let page = ports.into_iter().fold(page, put);
    let application = page.split("(\"127.0.0.1\", ").nth(1).unwrap().split(')').next().unwrap();
    let mut reader = Reader::new();
    let mut commands = 0;
    for block in blocks(&page) {
        if block.before.contains("Ctrl-C") {
            reader.servers.iter_mut().for_each(|server| end(server, Signal::INT));
            reader.servers.clear();
        }
        if block.language != "console" {
            reader.write(&block);
            continue;
        }
        for step in steps(block.text) {
            commands += 1;
            let words: Vec<&str> = step.command.split(' ').collect();
            match words[..] {
                ["forebay", "serve" | "run", ..] => reader.start(&step, commands),
                ["python3", ..] => {
                    reader.start(&step, commands);
                    wait_for(application);
                }
                _ => reader.run(&step),
            }
        }
    }
    assert!(commands > 20, "{commands}");
}

/// The comparison must be able to fail.
#[test]
fn what_the_page_shows_is_compared() {
    for (page, printed, expected) in [
        ("a", "a", true),
        ("a", "b", false),
        ("a", "a\nb", false),
        ("a\n…", "a\nb\nc", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nd", "a\nb\nc", false),
        ("a … c", "a b b c", true),
        ("a … c", "a b b d", false),
        ("a …", "a b", true),
        ("a …", "b", false),
        ("", "a", false),
    ] {
        let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
        assert_eq!(is_like(&lines(page), &lines(printed)), expected, "{page:?} {printed:?}");
    }
    assert!(blocks(MANUAL).len() > 15);
}
