//! The routes of a site to receivers, which get requests with their sockets.

use crate::problems::problem::Wrong;
use crate::sections::upstreams::{ClassReserves, HasUpstreams, ReceiverAddress, UpstreamsConfig};
use crate::table::{Item, Preset, Section, Setting};
use crate::values::optional::OneOrMore;
use forebay_http::response::ResponseHeadLimits;
use forebay_site::rules::{Route, Scope};
use forebay_upstream::request::RequestSettings;
use forebay_upstream::settings::{
    BodySettings, ConnectionAuth, Errors, GroupSettings, HandOverSettings, ProxySettings,
};
use std::path::PathBuf;

/// A `[[hand_over]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct HandOverSection {
    /// `path`
    pub path: Option<Scope>,
    /// `to`
    pub to: OneOrMore<ReceiverAddress>,
    /// `keep`
    pub keep: bool,
    /// `taken_by_reading`
    pub taken_by_reading: bool,
    /// `relay`
    pub relay: bool,
    /// Settings that other routes have, too.
    pub upstreams: UpstreamsConfig,
}

/// A route to receivers whose settings are valid.
#[derive(Clone, Debug, PartialEq)]
pub struct HandOverConfig(HandOverSection);

impl HandOverConfig {
    /// The places that classes keep.
    pub(crate) fn reserve(&self) -> &ClassReserves {
        &self.0.upstreams.reserve
    }

    /// The paths that the receivers answer.
    pub fn path(&self) -> Scope {
        self.0.path.clone().unwrap_or_else(Scope::any)
    }

    /// The addresses of the receivers.
    pub fn to(&self) -> &[ReceiverAddress] {
        &self.0.to.0
    }

    /// Whether the receivers keep the connections.
    pub fn keeps(&self) -> bool {
        self.0.keep
    }

    /// Whether a request whose client's socket is useless to a receiver is passed on instead.
    pub fn relays(&self) -> bool {
        self.0.relay
    }

    /// Makes relative paths relative to the directory that `join` adds.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        self.0.to.0.iter_mut().for_each(|to| crate::sections::upstreams::rebase(&mut to.0, join));
    }

    /// The route as the site takes it.
    pub fn route(&self) -> Route {
        Route { hands_over: true, ..Route::all(self.path()) }
    }

    /// The settings of the receiver as the handler takes them.
    pub fn settings(&self) -> HandOverSettings {
        let HandOverSection { to, keep, taken_by_reading, relay, upstreams, .. } = &self.0;
        let to = to.0.iter().map(|to| to.0.clone()).collect();
        let group = upstreams.group(to, Vec::new(), None);
        let relay = relay.then(|| Box::new(relay_settings(group.clone())));
        HandOverSettings { group, keeps: *keep, taken_by_reading: *taken_by_reading, relay }
    }
}

/// The settings by which requests are passed on to these receivers over pairs of sockets: like a proxy that
/// changes nothing.
fn relay_settings(mut group: GroupSettings) -> ProxySettings {
    group.timeouts.silence = group.timeouts.head;
    ProxySettings {
        group,
        // each pair is for one request
        request: RequestSettings { close: true, ..RequestSettings::default() },
        bodies: BodySettings { most_bytes: u64::MAX, spool_bytes: 0 },
        rewrites: false,
        limits: ResponseHeadLimits::default(),
        errors: Errors::Theirs,
        connection_auth: ConnectionAuth::Refuse,
        proxy_protocol: None,
        buffer_bytes: 0,
        authority: None,
    }
}

impl Item for HandOverConfig {
    type Section = HandOverSection;

    fn new(section: HandOverSection) -> Result<HandOverConfig, (&'static str, Wrong)> {
        if section.keep && section.relay {
            let reason = "a connection that is kept is the client's own, and through relay a receiver has none of it";
            return Err((
                "relay",
                Wrong::Unfit { found: String::new(), reason: reason.to_owned() },
            ));
        }
        if section.keep && section.taken_by_reading {
            let reason = "a connection that is kept leaves when its receiver says that it has the request (keep)";
            let wrong = Wrong::Unfit { found: String::new(), reason: reason.to_owned() };
            return Err(("taken_by_reading", wrong));
        }
        if let Some((key, needs)) = section.upstreams.idle(false) {
            return Err((key, Wrong::Idle { needs }));
        }
        if let Some(wrong) = section.upstreams.unfit() {
            return Err(wrong);
        }
        Ok(HandOverConfig(section))
    }

    fn section(&self) -> HandOverSection {
        self.0.clone()
    }
}

impl HasUpstreams for HandOverSection {
    fn upstreams(&mut self) -> &mut UpstreamsConfig {
        &mut self.upstreams
    }
}

impl Section for HandOverSection {
    fn blank() -> HandOverSection {
        HandOverSection {
            path: None,
            to: OneOrMore::default(),
            keep: false,
            taken_by_reading: false,
            relay: false,
            upstreams: UpstreamsConfig::default(),
        }
    }

    const SETTINGS: &'static [Setting<HandOverSection>] = &[
        Setting {
            key: "path",
            preset: Preset::Unset("/"),
            range: None,
            meaning: "Which paths they answer: one and all beneath it, or a pattern with stars. Routes are weighed \
                      as for proxy.",
            example: "\"/app\"",
            at: |s| &mut s.path,
        },
        Setting {
            key: "to",
            preset: Preset::Required,
            range: None,
            meaning: "Where they listen: at one Unix socket, or at several, each of a program that does the same. \
                      They speak as the page hand-over.md of the manual says.",
            example: "\"unix:/run/app/receiver.sock\"",
            at: |s| &mut s.to,
        },
        Setting {
            key: "keep",
            preset: Preset::Value("false"),
            range: None,
            meaning: "Whether they keep the connection for good. true: the server closes its own end of it when one \
                      has taken the request, and sees none of what follows on it: no rule, limit or time of the \
                      server holds for that, as forebay check lists.",
            example: "true",
            at: |s| &mut s.keep,
        },
        Setting {
            key: "taken_by_reading",
            preset: Preset::Value("false"),
            range: None,
            meaning: "Whether a receiver that has read an offer has taken the request. true: it need not say so first, \
                      which saves both sides a message and a wake-up. Only for receivers that look whether the link is \
                      shut once they have read an offer, as hand-over.md says. Not with keep.",
            example: "true",
            at: |s| &mut s.taken_by_reading,
        },
        Setting {
            key: "relay",
            preset: Preset::Value("false"),
            range: None,
            meaning: "Whether requests that come through TLS or over HTTP/2 go to the same receivers: each gets one \
                      end of a pair of sockets instead of the client's, and the server passes on what is said on the \
                      other. That costs what a proxy costs. Not with keep.",
            example: "true",
            at: |s| &mut s.relay,
        },
        Setting {
            meaning: "Which of several is asked; as for proxy.",
            example: "\"round-robin\"",
            ..Self::BALANCE
        },
        Setting { meaning: "What is the same for the same requests; as for proxy.", ..Self::HASH },
        Setting {
            meaning: "Requests that each of them has at most, in the whole process: as many as it can answer at once. \
                      While all have as many, more wait here (queue), in the order of their classes. With keep a \
                      request counts until it is taken. \"auto\" learns how many that is; as for proxy.",
            ..Self::IN_FLIGHT
        },
        Self::IN_FLIGHT_MIN,
        Self::IN_FLIGHT_MAX,
        Setting {
            meaning: "Places of each of them that requests of a class, and of those before it, have for themselves; as \
                      for proxy.",
            ..Self::RESERVE
        },
        Setting {
            meaning: "How often a request that was not taken is offered again at most, to another one if there is \
                      one. GET, HEAD and OPTIONS are; others only where no byte of them was sent. What was taken \
                      goes to nobody else.",
            ..Self::RETRIES
        },
        Setting {
            meaning: "How many of the requests may be offered again; as for proxy.",
            ..Self::RETRY_BUDGET
        },
        Setting {
            meaning: "After so many failures in a row one is asked nothing for fail_time; 0 asks on. A failure is no \
                      link, a request that is not taken or not done in time, and whatever a receiver may not do.",
            ..Self::MAX_FAILS
        },
        Self::FAIL_TIME,
        Self::SLOW_START,
        Setting {
            meaning: "Whether a client has left that has ended its direction of the connection while its request \
                      waits for a receiver; as for proxy. Of one that was handed over the receiver sees it.",
            ..Self::ABORT_ON_CLOSE
        },
        Setting {
            meaning: "Requests that wait while all have in_flight, at most; as for proxy.",
            ..Self::QUEUE_REQUESTS
        },
        Self::QUEUE_TIME,
        Setting {
            meaning: "Links that are kept to each of them, in each loop; 0 opens one for each request. A link carries \
                      one request at a time.",
            ..Self::KEEP_ALIVE_CONNECTIONS
        },
        Setting {
            preset: Preset::Value("1m"),
            meaning: "For how long they are kept while nothing is sent on them.",
            example: "\"10s\"",
            ..Self::KEEP_ALIVE_IDLE
        },
        Setting {
            key: "timeouts.taken",
            preset: Preset::Value("10s"),
            meaning: "Time until one has taken a request; then another is offered it, if that is safe, or the client \
                      gets 504. A receiver that has as many workers as in_flight takes each at once.",
            ..Self::TIMEOUTS_CONNECT
        },
        Setting {
            key: "timeouts.done",
            meaning: "Time from then until it is done with the request; then the client gets 504 if nothing was \
                      written to it, and is reset else. No time with keep.",
            example: "\"10m\"",
            ..Self::TIMEOUTS_HEAD
        },
    ];
}
