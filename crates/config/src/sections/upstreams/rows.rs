//! The rows of settings that kinds of routes to applications have in common. A section whose row differs
//! says only the difference: `Setting { meaning: "…", ..Self::QUEUE_TIME }`.

use super::UpstreamsConfig;
use crate::table::{Preset, Setting};

/// A section with settings of upstreams, and its rows for them.
pub(crate) trait HasUpstreams: Sized + 'static {
    /// The section's settings of upstreams.
    fn upstreams(&mut self) -> &mut UpstreamsConfig;

    /// `balance`
    const BALANCE: Setting<Self> = Setting {
        key: "balance",
        preset: Preset::Value("least"),
        range: None,
        meaning: "Which of several is asked: the one with the least requests under way (least), one \
                  after the other (round-robin), of two that are drawn the one with less under way \
                  (two-choices), or by hash, so that the same requests go to the same one unless it \
                  has much more to do than the others.",
        example: "\"hash\"",
        at: |s| &mut s.upstreams().balance,
    };

    /// `hash`
    const HASH: Setting<Self> = Setting {
        key: "hash",
        preset: Preset::Unset("client"),
        range: None,
        meaning: "What is the same for the same requests: the client, the url, or a cookie \
                  (\"cookie=session\"; without it, the client).",
        example: "\"cookie=session\"",
        at: |s| &mut s.upstreams().hash,
    };

    /// `in_flight`
    const IN_FLIGHT: Setting<Self> = Setting {
        key: "in_flight",
        preset: Preset::Unset("no limit"),
        range: Some(("1", "1000000")),
        meaning: "Requests under way to each of them at most, in the whole process: for php-fpm its \
                  workers. While all have as many, more wait here (queue), in the order of their \
                  classes; without a limit they wait where the application has them wait, and there \
                  is no order. Routes that name the same applications and say the same of them count \
                  together. \"auto\" learns for each, while requests wait, how many give as much as it can \
                  give, between in_flight_min and in_flight_max.",
        example: "\"auto\"",
        at: |s| &mut s.upstreams().in_flight,
    };

    /// `in_flight_min`
    const IN_FLIGHT_MIN: Setting<Self> = Setting {
        key: "in_flight_min",
        preset: Preset::Unset("1"),
        range: Some(("1", "1000000")),
        meaning: "With in_flight = \"auto\": so many may be under way in any case.",
        example: "4",
        at: |s| &mut s.upstreams().in_flight_min,
    };

    /// `in_flight_max`
    const IN_FLIGHT_MAX: Setting<Self> = Setting {
        key: "in_flight_max",
        preset: Preset::Unset("1000"),
        range: Some(("1", "1000000")),
        meaning: "With in_flight = \"auto\": so many may be under way at most.",
        example: "64",
        at: |s| &mut s.upstreams().in_flight_max,
    };

    /// `reserve`
    const RESERVE: Setting<Self> = Setting {
        key: "reserve",
        preset: Preset::Unset("none"),
        range: Some(("1", "1000000")),
        meaning: "Places of each of them (in_flight) that requests of a class, and of those before it in the order, \
                  have for themselves: others begin only while more than these are free. All together must be less \
                  than in_flight, or than in_flight_min with \"auto\".",
        example: "{ gold = 2 }",
        at: |s| &mut s.upstreams().reserve,
    };

    /// `retries`
    const RETRIES: Setting<Self> = Setting {
        key: "retries",
        preset: Preset::Value("1"),
        range: Some(("0", "10")),
        meaning: "How often a request is sent again at most, to another one if there is one. GET, HEAD \
                  and OPTIONS are while nothing of an answer has been passed on; others only \
                  where it is certain that nothing ran.",
        example: "2",
        at: |s| &mut s.upstreams().retries,
    };

    /// `retry_budget`
    const RETRY_BUDGET: Setting<Self> = Setting {
        key: "retry_budget",
        preset: Preset::Value("20%"),
        range: Some(("0%", "100%")),
        meaning: "How many of the requests may be sent again, so that what is down is not asked more \
                  than usual. Ten are free.",
        example: "\"10%\"",
        at: |s| &mut s.upstreams().retry_budget,
    };

    /// `max_fails`
    const MAX_FAILS: Setting<Self> = Setting {
        key: "max_fails",
        preset: Preset::Value("3"),
        range: Some(("0", "1000")),
        meaning: "After so many failures in a row one is asked nothing for fail_time; 0 asks on. A \
                  failure is no connection, none in time, or an answer that cannot be understood; an \
                  error with a status is an answer. While none is well, all are asked.",
        example: "1",
        at: |s| &mut s.upstreams().max_fails,
    };

    /// `fail_time`
    const FAIL_TIME: Setting<Self> = Setting {
        key: "fail_time",
        preset: Preset::Value("10s"),
        range: Some(("100ms", "1h")),
        meaning: "For how long that is; then one request is let through, and if that fails it is twice \
                  as long.",
        example: "\"30s\"",
        at: |s| &mut s.upstreams().fail_time,
    };

    /// `slow_start`
    const SLOW_START: Setting<Self> = Setting {
        key: "slow_start",
        preset: Preset::Unset("off"),
        range: Some(("1s", "1h")),
        meaning: "In so long one that is well again gets more and more of its share.",
        example: "\"30s\"",
        at: |s| &mut s.upstreams().slow_start,
    };

    /// `body_bytes`
    const BODY_BYTES: Setting<Self> = Setting {
        key: "body_bytes",
        preset: Preset::Value("1GiB"),
        range: Some(("0B", "1TiB")),
        meaning: "Size of a request body that is passed on; more is answered with 413, before anything \
                  runs if the request says how long it is. Only what [[fastcgi]] must collect is written to a \
                  disk here, and only with spool_dir. \
                  limits.body_bytes is about requests for files.",
        example: "\"16MiB\"",
        at: |s| &mut s.upstreams().body_bytes,
    };

    /// `buffer_bytes`
    const BUFFER_BYTES: Setting<Self> = Setting {
        key: "buffer_bytes",
        preset: Preset::Value("0B"),
        range: Some(("0B", "64MiB")),
        meaning: "So much of an answer is received before its client takes it, in memory, so that a slow \
                  client does not keep the application busy; what has come goes on at once in any case. \
                  With 0 the application sends as fast as the client takes it, but for what sockets \
                  hold. X-Accel-Buffering: no of an answer is 0 for that one.",
        example: "\"1MiB\"",
        at: |s| &mut s.upstreams().buffer_bytes,
    };

    /// `errors`
    const ERRORS: Setting<Self> = Setting {
        key: "errors",
        preset: Preset::Value("theirs"),
        range: None,
        meaning: "Whose page a client sees where the application answers with a status of 400 and \
                  more: theirs, or ours, which is that of errors.",
        example: "\"ours\"",
        at: |s| &mut s.upstreams().errors,
    };

    /// `compress`
    const COMPRESS: Setting<Self> = Setting {
        key: "compress",
        preset: Preset::Unset("the site's compress, but no answer that has a strong tag (ETag)"),
        range: None,
        meaning: "Codings that compressible answers are sent in to clients that take them. A strong tag \
                  becomes a weak one then, because the bytes are others: and no If-Match holds by it, as \
                  WebDAV and CouchDB ask for. Therefore answers that have one are compressed only where \
                  this key is. Empty: none.",
        example: "[\"gzip\"]",
        at: |s| &mut s.upstreams().compress,
    };

    /// `abort_on_close`
    const ABORT_ON_CLOSE: Setting<Self> = Setting {
        key: "abort_on_close",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether a client has left that has ended its direction of the connection (a FIN): its \
                  request leaves the queue, the connection to the application is closed, and its place \
                  is free, as is always so after a reset, whether of a connection or of a stream of \
                  HTTP/2. Most who leave send a FIN; but so do programs that send all they have to say \
                  and then wait for the answer, and these get none then. What has begun to run in the \
                  application may run on.",
        example: "true",
        at: |s| &mut s.upstreams().abort_on_close,
    };

    /// `accel_redirect`
    const ACCEL_REDIRECT: Setting<Self> = Setting {
        key: "accel_redirect",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Paths of the site whose files this application may have sent instead of its \
                  answer, by the field X-Accel-Redirect. Clients that ask for them get 404. A path \
                  without a star is meant with all below it; access, auth and header rules hold \
                  for them as for others.",
        example: "[\"/protected\"]",
        at: |s| &mut s.upstreams().sends,
    };

    /// `queue.requests`
    const QUEUE_REQUESTS: Setting<Self> = Setting {
        key: "queue.requests",
        preset: Preset::Unset("1000"),
        range: Some(("0", "1000000")),
        meaning: "Requests that wait while all have in_flight under way, at most. Beyond that the last of \
                  the lowest class gives way to higher ones, and is answered with 503; with 0 nothing \
                  waits. With threads that block (threads, pool) each takes a descriptor.",
        example: "200",
        at: |s| &mut s.upstreams().queue.requests,
    };

    /// `queue.time`
    const QUEUE_TIME: Setting<Self> = Setting {
        key: "queue.time",
        preset: Preset::Unset("10s"),
        range: Some(("10ms", "1h")),
        meaning: "For how long; then they are answered with 503.",
        example: "\"2s\"",
        at: |s| &mut s.upstreams().queue.time,
    };

    /// `queue.down`
    const QUEUE_DOWN: Setting<Self> = Setting {
        key: "queue.down",
        preset: Preset::Value("fail"),
        range: None,
        meaning: "What becomes of requests while none of them takes connections: they fail with 502 (fail), or \
                  wait for one, as many as queue.requests and for queue.time, as in a restart (wait). Only \
                  upstreams that have answered are waited for, and none that is away for more than a minute. \
                  One request tries every 100 ms.",
        example: "\"wait\"",
        at: |s| &mut s.upstreams().queue.down,
    };

    /// `keep_alive.connections`
    const KEEP_ALIVE_CONNECTIONS: Setting<Self> = Setting {
        key: "keep_alive.connections",
        preset: Preset::Value("64"),
        range: Some(("0", "100000")),
        meaning: "Connections that are kept open to each of them, in each loop; 0 opens one for each request.",
        example: "8",
        at: |s| &mut s.upstreams().keep_alive.connections,
    };

    /// `keep_alive.idle`
    const KEEP_ALIVE_IDLE: Setting<Self> = Setting {
        key: "keep_alive.idle",
        preset: Preset::Value("4s"),
        range: Some(("100ms", "1h")),
        meaning: "For how long. It must be less than the application keeps them, or requests meet \
                  connections that are being closed; many keep them for 5 s.",
        example: "\"50s\"",
        at: |s| &mut s.upstreams().keep_alive.idle,
    };

    /// `timeouts.connect`
    const TIMEOUTS_CONNECT: Setting<Self> = Setting {
        key: "timeouts.connect",
        preset: Preset::Value("3s"),
        range: Some(("10ms", "5m")),
        meaning: "Time to open a connection.",
        example: "\"1s\"",
        at: |s| &mut s.upstreams().timeouts.connect,
    };

    /// `timeouts.head`
    const TIMEOUTS_HEAD: Setting<Self> = Setting {
        key: "timeouts.head",
        preset: Preset::Value("60s"),
        range: Some(("100ms", "1d")),
        meaning: "Time from the end of a request to the end of the answer's head, whatever comes of \
                  it or of interim answers before; then the client gets 504.",
        example: "\"10s\"",
        at: |s| &mut s.upstreams().timeouts.head,
    };

    /// `timeouts.silence`
    const TIMEOUTS_SILENCE: Setting<Self> = Setting {
        key: "timeouts.silence",
        preset: Preset::Value("60s"),
        range: Some(("100ms", "1d")),
        meaning: "Time without a byte in a body, in either direction, and in a WebSocket.",
        example: "\"1h\"",
        at: |s| &mut s.upstreams().timeouts.silence,
    };

    /// `timeouts.body`
    const TIMEOUTS_BODY: Setting<Self> = Setting {
        key: "timeouts.body",
        preset: Preset::Unset("20s"),
        range: Some(("100ms", "1d")),
        meaning: "Time for the body of a request whose place others want (in_flight), from when it has \
                  the place, and one second more for each 500 bytes that have come; then its client \
                  gets 408. Time in which the application takes nothing is not counted. While nobody \
                  wants the place, a body may come as slowly as silence lets it.",
        example: "\"10s\"",
        at: |s| &mut s.upstreams().timeouts.body,
    };
}
