//! The parts that a server is made of, at its start and at each reload: a text, settings by calls,
//! handlers; and the configuration that results from them.

use crate::error::ServerError;
use forebay_config::{Config, ConfigDraft, HandlerRoute, Wrong};
use forebay_engine::Engine;
use forebay_server::config_file;
use forebay_site::rules::Scope;
use forebay_upstream::inside::{
    HandlerCode, HandlerLimits, HandlerPlaces, InsideCode, ThreadShortage,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The address of a server for which none is configured: a port of this machine that the kernel chooses.
const LOOPBACK: &str = "127.0.0.1:0";

/// Bounds of one handler.
///
/// ```
/// use std::time::Duration;
///
/// let chat = forebay::HandlerOptions { answer_within: None, ..forebay::HandlerOptions::default() };
/// assert_eq!(forebay::HandlerOptions::default().answer_within, Some(Duration::from_secs(60)));
/// # let _ = chat;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerOptions {
    /// The time until the head of an answer is there; then the client gets 504, and the handler's waits
    /// end with an error. `None` for no limit. Default: 60 s. The time does not run while the request's
    /// body is still incomplete and there is room for more of it: then a client that sends nothing for 60
    /// s is given up.
    pub answer_within: Option<Duration>,
    /// The most bytes of a request's body; more is 413. Default: 16 MiB.
    pub body_bytes: u64,
    /// Whether a client that has ended its direction of the connection still wants its answer. Default:
    /// no, such a client has left, as browsers do; some scripts wait for the answer.
    pub keeps_half_closed: bool,
    /// Whether the handler may change the protocol ([`Response::switch`](crate::Response::switch)). Default: no. Then a
    /// request over HTTP/1 that asks for another is answered as any other, and an extended CONNECT of HTTP/2 gets 501.
    /// If any handler may, clients of HTTP/2 learn so from the server's SETTINGS.
    pub upgrades: bool,
    /// Time without a byte in either direction after the protocol was changed, as `timeouts.silence` is for WebSockets of
    /// applications: then the connection is closed, and the handler's waits end with an error. `None` for as long as it
    /// takes. Default: 60 s. Pings of either side count as bytes.
    pub silence: Option<Duration>,
}

impl Default for HandlerOptions {
    fn default() -> HandlerOptions {
        HandlerOptions {
            answer_within: Some(Duration::from_secs(60)),
            body_bytes: 16 * 1024 * 1024,
            keeps_half_closed: false,
            upgrades: false,
            silence: Some(Duration::from_secs(60)),
        }
    }
}

/// The source of a configuration's text.
#[derive(Clone)]
pub(crate) enum ConfigText {
    Given(String),
    File(PathBuf),
}

/// The parts from which the configuration is made, at the start and at each reload.
#[derive(Clone, Default)]
pub(crate) struct BuilderParts {
    pub(crate) text: ConfigText,
    /// Settings by their keys, as in a file, with their values as on a command line.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// The addresses of the sockets that the program has passed.
    pub(crate) given: Vec<String>,
    pub(crate) handlers: Vec<(String, HandlerOptions, HandlerCode)>,
}

impl Default for ConfigText {
    fn default() -> ConfigText {
        ConfigText::Given(String::new())
    }
}

impl BuilderParts {
    /// The same parts with another text.
    pub(crate) fn with_text(&self, text: &str) -> BuilderParts {
        BuilderParts { text: ConfigText::Given(text.to_owned()), ..self.clone() }
    }

    /// The configuration that results from the parts, and the remarks about it.
    pub(crate) fn config(
        &self,
        places: &Arc<HandlerPlaces>,
    ) -> Result<(Config, Vec<String>), ServerError> {
        let (text, file) = match &self.text {
            ConfigText::Given(text) => (text.clone(), PathBuf::from("(the program's text)")),
            ConfigText::File(path) => {
                let text = std::fs::read_to_string(path);
                let unreadable = |error| ServerError::File { path: path.clone(), error };
                (text.map_err(unreadable)?, path.clone())
            }
        };
        let routes = self.routes(places)?;
        let mut wrong = None;
        let read = config_file::load_guest(&text, &file, |draft, reader| {
            let says = |key: &str| reader.has(&forebay_config::path::Path::default().child(key));
            wrong = self.prepare(draft, &says, routes).err();
        });
        if let Some((key, wrong)) = wrong {
            return Err(ServerError::Setting { key: key.to_owned(), why: wrong.to_string() });
        }
        let (config, mut warnings) = read.map_err(ServerError::Config)?;
        warnings.extend(self.thread_warning(&config, places));
        Ok((config, warnings))
    }

    /// What to say if handlers run on threads, and the process has room for fewer than were asked for.
    fn thread_warning(&self, config: &Config, places: &HandlerPlaces) -> Option<String> {
        let is_on_thread =
            |(_, _, code): &(_, _, HandlerCode)| matches!(code, HandlerCode::Waits(_));
        let has_threads = config.listeners.iter().any(|one| one.engine != Engine::Fibers);
        if !(has_threads && self.handlers.iter().any(is_on_thread)) {
            return None;
        }
        let ThreadShortage { asked, most, bound } = places.thread_shortage()?;
        let setting = bound.setting();
        Some(format!(
            "most_threads: handlers get {most} threads, not {asked}: {setting} leaves no room for more"
        ))
    }

    /// Adds the program's parts to the draft of the text.
    fn prepare(
        &self,
        draft: &mut ConfigDraft,
        says: &dyn Fn(&str) -> bool,
        routes: Vec<HandlerRoute>,
    ) -> Result<(), (&'static str, Wrong)> {
        if !says("engine") {
            draft.set("engine", "fibers").map_err(|wrong| ("engine", wrong))?;
        }
        for (key, value) in &self.settings {
            draft.set(key, value).map_err(|wrong| (*key, wrong))?;
        }
        for address in &self.given {
            draft.set("listen", address).map_err(|wrong| ("listen", wrong))?;
        }
        if draft.listener.listen.is_empty() && draft.listeners.is_empty() {
            draft.set("listen", LOOPBACK).map_err(|wrong| ("listen", wrong))?;
        }
        draft.site.handlers = routes;
        Ok(())
    }

    fn routes(&self, places: &Arc<HandlerPlaces>) -> Result<Vec<HandlerRoute>, ServerError> {
        let route = |(path, options, code): &(String, HandlerOptions, HandlerCode)| {
            let scope = Scope::parse(path).map_err(|error| ServerError::Setting {
                key: format!("handler {path}"),
                why: error.to_string(),
            })?;
            let HandlerOptions { answer_within, body_bytes, keeps_half_closed, upgrades, silence } =
                *options;
            let (code, places) = (code.clone(), Arc::clone(places));
            Ok(HandlerRoute {
                path: scope,
                code: InsideCode { name: path.as_str().into(), code, places },
                limits: HandlerLimits {
                    head: answer_within,
                    most_bytes: body_bytes,
                    abort_on_close: !keeps_half_closed,
                    upgrades,
                    silence,
                },
            })
        };
        self.handlers.iter().map(route).collect()
    }
}
