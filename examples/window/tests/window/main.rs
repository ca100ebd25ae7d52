//! The program with its window on a screen, and its page in Chromium: each shows what the other switches.
//!
//! With `FOREBAY_PICTURES=FOLDER` both are kept there as they looked at the end.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::browser::Browser;
use forebay_tests::faults::{has, soon};
use forebay_tests::screen::Screen;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A time that is longer than a picture takes on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(60);
/// The colour of a lamp that is on.
const AMBER: [u8; 3] = [255, 196, 0];
/// The colour of a lamp that is off.
const DARK: [u8; 3] = [76, 76, 76];
/// The least number of pixels of a lamp; its edge has other colours.
const LAMP_PIXELS: usize = 1000;

/// The running program. It ends when this is dropped.
struct Program {
    process: Child,
    link: String,
}

impl Program {
    fn start(screen: &Screen, words: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-window"));
        screen.show(command.args(words).stdout(Stdio::piped()));
        let mut process = command.spawn().unwrap();
        let mut link = String::new();
        let said = process.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut link).unwrap();
        assert!(link.starts_with("http://127.0.0.1:"), "{link:?}");
        Program { process, link: link.trim().to_owned() }
    }

    /// The address without the token.
    fn host(&self) -> &str {
        self.link.strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    /// Sends these lines and returns the answer.
    fn ask(&self, head: &str) -> String {
        let mut client = TcpStream::connect(self.host()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let head = format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number of lamps that shine in the window.
fn shining(screen: &Screen) -> usize {
    let pixels = screen.picture().places(AMBER).len();
    pixels.div_ceil(LAMP_PIXELS + LAMP_PIXELS / 2)
}

/// An expression that gives the lamps as the page has them: `10000000` if only the first is on.
const ON_PAGE: &str = "[...document.querySelectorAll('#lamps button')]\
                       .map(lamp => lamp.getAttribute('aria-pressed') === 'true' ? 1 : 0).join('')";

fn both_show_what_the_other_switches(words: &[&str], test: &str) {
    let Some(screen) = has(Screen::start(), test) else { return };
    let Some(mut browser) = has(Browser::start(), test) else { return };
    let program = Program::start(&screen, words);
    assert!(soon(LONG, || shining(&screen) == 0 && !screen.picture().places(DARK).is_empty()));

    browser.open(&program.link);
    browser.soon(&format!("{ON_PAGE} === '00000000'"));
    // the page switches, and the window shows it
    for (lamp, shows) in [(3, "00100000"), (6, "00100100")] {
        browser.click(&format!("#lamps button:nth-child({lamp})"));
        browser.soon(&format!("{ON_PAGE} === '{shows}'"));
    }
    assert!(soon(LONG, || shining(&screen) == 2), "{} shine", shining(&screen));
    keep_pictures(test, &screen, &mut browser);

    // the window switches, and the page shows it: the first pixels from above are those of both lamps
    let places = screen.picture().places(AMBER);
    let left = places.iter().map(|(x, _)| *x).min().unwrap();
    let of_first: Vec<_> = places.iter().filter(|(x, _)| *x < left + 45).collect();
    let middle = |of: fn(&(usize, usize)) -> usize| {
        of_first.iter().map(|place| of(place)).sum::<usize>() / of_first.len()
    };
    let Some(()) = has(screen.click((middle(|place| place.0), middle(|place| place.1))), test)
    else {
        return;
    };
    browser.soon(&format!("{ON_PAGE} === '00000100'"));
    assert!(soon(LONG, || shining(&screen) == 1));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());

    // without the token the page shows and does not switch
    let (open, token) = program.link.split_once('#').unwrap();
    browser.open("about:blank");
    browser.open(open);
    browser.soon(&format!("{ON_PAGE} === '00000100'"));
    assert_eq!(browser.value("document.querySelector('#lamps button').disabled"), true);
    // a request that another page could send is refused
    let host = program.host();
    let switch = |origin: &str, token: &str| {
        let head = "POST /switch?lamp=0&on=true HTTP/1.1\r\n";
        program.ask(&format!("{head}Host: {host}\r\n{origin}X-Token: {token}\r\n"))
    };
    let own = format!("Origin: http://{host}\r\n");
    assert!(switch("Origin: http://evil.example\r\n", token).starts_with("HTTP/1.1 403 "));
    assert!(switch("", token).starts_with("HTTP/1.1 403 "));
    assert!(switch(&own, "").starts_with("HTTP/1.1 403 "));
    let renamed = program.ask("GET /lamps HTTP/1.1\r\nHost: evil.example\r\n");
    assert!(renamed.starts_with("HTTP/1.1 421 "), "{renamed}");
    assert_eq!(shining(&screen), 1);
    assert!(switch(&own, token).ends_with("on\n"));
    browser.soon(&format!("{ON_PAGE} === '10000100'"));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

fn keep_pictures(test: &str, screen: &Screen, browser: &mut Browser) {
    let Some(folder) = std::env::var_os("FOREBAY_PICTURES") else { return };
    let path = |ending: &str| std::path::Path::new(&folder).join(format!("{test}-{ending}"));
    std::fs::write(path("window.ppm"), screen.picture().to_ppm()).unwrap();
    std::fs::write(path("page.png"), browser.picture()).unwrap();
}

#[test]
fn the_main_thread_owns_the_lamps() {
    both_show_what_the_other_switches(&[], "the_main_thread_owns_the_lamps");
}

#[test]
fn a_lock_is_around_the_lamps() {
    let words = ["--engine", "threads", "--state", "lock"];
    both_show_what_the_other_switches(&words, "a_lock_is_around_the_lamps");
}
