//! The cost of recording one answer for its loop, by format: `cargo run --release -p forebay-server
//! --example log_cost [common|combined|json|off] [LINES]`. The lines go to `/dev/null`; for
//! instructions run it under `valgrind --tool=callgrind --toggle-collect='log_cost::record'`.

use forebay_config::{AccessLog, LogConfig, LogFormat, Member};
use forebay_conn::{ArrivalTimes, Peer, Request};
use forebay_handler::log::{LogEntry, LogSettings, Logger, Logs};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_http::path::NormalPath;
use std::sync::Arc;
use std::time::Duration;

const REQUEST: &[u8] = b"GET /assets/app.3f9c.js?v=12 HTTP/1.1\r\nHost: www.example.org\r\n\
    Referer: https://www.example.org/index.html\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; \
    rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: */*\r\n\r\n";

#[inline(never)]
fn record(logger: &mut Logger, request: &Request<'_>) {
    let complete_ns = logger.tick();
    let entry = LogEntry {
        site: Some(0),
        client: request.peer.address().ip(),
        user: None,
        secured: None,
        via_proxy: false,
        id: None,
        request: Some(request),
        judged: None,
        relayed: None,
        status: Some(200),
        stages: ArrivalTimes { begun_ns: complete_ns, complete_ns },
    };
    let line = logger.line(&entry);
    logger.log(line, 1024);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let word = arguments.next().unwrap_or_else(|| "combined".to_owned());
    let count: u32 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let format = match word.as_str() {
        "json" => LogFormat::Json,
        "common" => LogFormat::Common,
        _ => LogFormat::Combined,
    };
    let access = if word == "off" { AccessLog::Off } else { AccessLog::File("/dev/null".into()) };
    let fields = Member::ALL.to_vec();
    let log = LogConfig { access, format, sample: 1, fields, query: true, ..LogConfig::default() };
    let site = LogSettings::new("www".to_owned(), &log);
    let logs = match Logs::open(&LogConfig::default(), &[site], false, None) {
        Ok(logs) => logs,
        Err(error) => return eprintln!("{error}"),
    };
    let mut logger = logs.logger(Arc::default());
    let mut lines = Lines::new();
    let Ok(ParsedHead::Complete(head)) = Head::parse(REQUEST, &mut lines, &HeadLimits::default())
    else {
        return;
    };
    let peer = Peer::new(([192, 0, 2, 17], 4711).into(), ([192, 0, 2, 1], 80).into());
    let path = NormalPath::default();
    let request = Request::new(&head, &peer, &path);
    let began = std::time::Instant::now();
    for _ in 0..count {
        record(&mut logger, &request);
    }
    let each_ns = began.elapsed().as_nanos() / u128::from(count.max(1));
    drop(logger);
    logs.close(Duration::from_secs(10));
    println!("{word}: {each_ns} ns for a line, {} of {count} dropped", logs.dropped());
}
