//! A Chromium that a test reads and clicks in, by the DevTools protocol over two named pipes.

use crate::faults::site::Folder;
use base64ct::{Base64, Encoding};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A time that is longer than a page takes on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(60);
/// The time that the browser has to close by itself.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// The time after which the browser is killed, whatever happens to the test: it would wait for an answer
/// for ever.
const MOST_S: &str = "240";

/// A browser with one page. It ends when this is dropped.
pub struct Browser {
    process: Child,
    commands: File,
    answers: BufReader<File>,
    sent: u64,
    session: Option<String>,
    complaints: Vec<String>,
    _folder: Folder,
}

impl Browser {
    /// Starts the browser.
    ///
    /// # Errors
    /// There is no Chromium.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn start() -> Result<Browser, String> {
        let there = Command::new("chromium").arg("--version").stdout(Stdio::null()).status();
        there.map_err(|_| "there is no chromium, see scripts/install")?;
        let folder = Folder::new();
        let [commands, answers] = ["commands", "answers"].map(|name| {
            let path = folder.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            path
        });
        // open before the browser is there, so that neither waits for the other
        let both = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let to_browser = both(&commands);
        let process = Command::new("sh")
            .args(["-c", "exec timeout $0 \"$@\" 3<\"$COMMANDS\" 4>\"$ANSWERS\"", MOST_S])
            .args(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--remote-debugging-pipe", "--window-size=800,600"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .env("COMMANDS", &commands)
            .env("ANSWERS", &answers)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // waits for the browser's end; that alone, so that the pipe ends with the browser
        let answers = BufReader::new(File::open(&answers).unwrap());
        let mut browser = Browser {
            process,
            commands: to_browser,
            answers,
            sent: 0,
            session: None,
            complaints: Vec::new(),
            _folder: folder,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", attached);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Ok(browser)
    }

    /// Goes to a page.
    ///
    /// # Panics
    /// If the browser does not get there.
    pub fn open(&mut self, url: &str) {
        let went = self.ask("Page.navigate", json!({ "url": url }));
        assert!(went.get("errorText").is_none(), "{url}: {went}");
    }

    /// Evaluates an expression of JavaScript in the page, and waits for promises.
    ///
    /// # Panics
    /// If it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut said = self.ask("Runtime.evaluate", asked);
        assert!(said.get("exceptionDetails").is_none(), "{expression}: {said}");
        said["result"]["value"].take()
    }

    /// Waits until an expression holds in the page.
    ///
    /// # Panics
    /// If it does not in time.
    #[track_caller]
    pub fn soon(&mut self, expression: &str) {
        let until = Instant::now() + LONG;
        while self.value(expression) != true {
            let body = "document.documentElement.outerHTML";
            assert!(Instant::now() < until, "{expression}\n{}", self.value(body));
            sleep(Duration::from_millis(20));
        }
    }

    /// Clicks in the middle of the element that a selector finds, like a mouse.
    ///
    /// # Panics
    /// If there is none.
    pub fn click(&mut self, selector: &str) {
        let found = format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        );
        let place = self.value(&found);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1
            });
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    /// A picture of the page, as PNG.
    ///
    /// # Panics
    /// If there is none.
    pub fn picture(&mut self) -> Vec<u8> {
        let shot = self.ask("Page.captureScreenshot", json!({ "format": "png" }));
        Base64::decode_vec(shot["data"].as_str().unwrap()).unwrap()
    }

    /// Exceptions of the page, and errors on its console.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Sends a command; returns its answer.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut command = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let mut said = Vec::new();
            self.answers.read_until(0, &mut said).unwrap();
            assert_eq!(said.pop(), Some(0), "the browser has ended: {method}");
            let mut said: Value = serde_json::from_slice(&said).unwrap();
            if said["id"] == self.sent {
                assert!(said.get("error").is_none(), "{method}: {said}");
                return said["result"].take();
            }
            self.note(&said);
        }
    }

    fn note(&mut self, event: &Value) {
        let of = &event["params"];
        let is_complaint = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => of["type"] == "error",
            "Log.entryAdded" => of["entry"]["level"] == "error",
            _ => false,
        };
        if is_complaint {
            self.complaints.push(of.to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // asked first: the browser then ends its own processes, and leaves no orphan to be adopted
        let _ = self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let until = Instant::now() + CLOSED_WITHIN;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            sleep(Duration::from_millis(20));
        }
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        // not killed: `timeout` would leave the browser behind
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}
