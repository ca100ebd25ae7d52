//! The settings of the process: those that are not a listener's or a site's.

use crate::table::{Preset, Section, Setting};
use crate::{
    AcmeConfig, AddressSets, AdminConfig, CacheConfig, Config, ConfigOrigin, ControlConfig,
    FirewallSettings, GateCharge, GateMode, GateRules, HelpersConfig, IdentitySettings, Isolated,
    KeepAliveConfig, LimitsConfig, LogConfig, PipelineConfig, SandboxConfig, Size, Switch,
    TimeoutsConfig, TracesConfig,
};
use forebay_engine::settings::SendOrder;
use forebay_http::forwarded::ForwardedFamily;

impl Section for Config {
    const SETTINGS: &'static [Setting<Config>] = SETTINGS;

    fn blank() -> Config {
        Config {
            listeners: Vec::new(),
            sites: Vec::new(),
            classes: Vec::new(),
            rules: Vec::new(),
            tcp: Vec::new(),
            protects: Vec::new(),
            assigned: Vec::new(),
            sets: AddressSets::default(),
            ban_files: Vec::new(),
            spool_dir: None,
            spool_dir_bytes: Size::default(),
            agent: Switch::default(),
            gate: GateMode::default(),
            gate_charge: GateCharge::default(),
            gate_rules: GateRules::default(),
            gate_answers: false,
            firewall: FirewallSettings::default(),
            log: LogConfig::default(),
            server_header: true,
            sample: 0,
            durations: false,
            send_order: SendOrder::default(),
            trusted_proxies: Vec::new(),
            forwarded: ForwardedFamily::default(),
            trusted_header: None,
            user: None,
            group: None,
            timeouts: TimeoutsConfig::default(),
            keep_alive: KeepAliveConfig::default(),
            limits: LimitsConfig::default(),
            cache: CacheConfig::default(),
            acme: AcmeConfig::default(),
            admin: AdminConfig::default(),
            traces: TracesConfig::default(),
            identity: IdentitySettings::default(),
            control: ControlConfig::default(),
            sandbox: SandboxConfig::default(),
            helpers: HelpersConfig::default(),
            pipeline: PipelineConfig::default(),
            isolated: Isolated::default(),
            include: Vec::new(),
            origin: ConfigOrigin::default(),
            place: None,
            is_guest: false,
        }
    }
}

const SETTINGS: &[Setting<Config>] = &[
    Setting {
        key: "include",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files whose text belongs to this configuration, as if it stood behind this one: paths, in which each \
                  star stands for any run of characters of one name, but for a dot at its beginning. Files of one \
                  pattern are read in the order of their paths, byte by byte, and patterns as they stand here; a file \
                  that two of them fit is read once. Such a file may have everything but include; a setting of the \
                  top level stands in one file only. Only the main file may have it.",
        example: "[\"sites/*.toml\"]",
        at: |c| &mut c.include,
    },
    Setting {
        key: "sample",
        preset: Preset::Value("512"),
        range: Some(("0", "1000000")),
        meaning: "One request in this many is timed, activity by activity; 0 times none.",
        example: "64",
        at: |c| &mut c.sample,
    },
    Setting {
        key: "durations",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether each request is timed, from its whole head to the last byte of its answer, for \
                  the histogram forebay_request_duration_seconds. It costs two looks at the clock for \
                  each.",
        example: "true",
        at: |c| &mut c.durations,
    },
    Setting {
        key: "send_order",
        preset: Preset::Value("arrival"),
        range: None,
        meaning: "Which answer of a class goes on first when several clients take more of theirs. arrival: the one \
                  whose socket has room first. fastest: the one whose client takes the most per second. \
                  shortest: the one with the fewest bytes left. Classes come first, by their ranks and \
                  shares, and of every eight answers that go on in a class one is the one that waits longest. Engines with loops only: \
                  event, fibers, isolated, and pipeline while fused; threads that block send when the kernel \
                  wakes them.",
        example: "\"shortest\"",
        at: |c| &mut c.send_order,
    },
    Setting {
        key: "trusted_proxies",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Proxies whose word about their clients counts (PROXY protocol, X-Forwarded-For, \
                  X-Forwarded-Proto; or Forwarded, as forwarded says): addresses, networks, and \"unix\" for \
                  those that connect to a Unix socket. No limit with ignore shuts them out, and the firewall \
                  never drops them.",
        example: "[\"10.0.0.0/8\", \"::1\", \"unix\"]",
        at: |c| &mut c.trusted_proxies,
    },
    Setting {
        key: "forwarded",
        preset: Preset::Value("x-forwarded"),
        range: None,
        meaning: "Which fields of trusted_proxies say who their clients are. \"x-forwarded\": X-Forwarded-For, -Proto, \
                  -Host, -Port and -Prefix. \"forwarded\": Forwarded (RFC 7239); applications are told that, too, \
                  of every request. The others are dropped.",
        example: "\"forwarded\"",
        at: |c| &mut c.forwarded,
    },
    Setting {
        key: "trusted_header",
        preset: Preset::Unset("none; the fields that forwarded says count"),
        range: None,
        meaning: "The field in which trusted_proxies say the address of their client, and nothing else, such as \
                  CF-Connecting-IP. Its last value counts; X-Forwarded-For does not any more. Applications are told \
                  this field with the client's address, whoever asks.",
        example: "\"CF-Connecting-IP\"",
        at: |c| &mut c.trusted_header,
    },
    Setting {
        key: "agent",
        preset: Preset::Value("off"),
        range: None,
        meaning: "Whether the server limits by itself how many requests of each class it takes, so \
                  that none of them waits longer than the delay of its class.",
        example: "\"on\"",
        at: |c| &mut c.agent,
    },
    Setting {
        key: "gate",
        preset: Preset::Value("off"),
        range: None,
        meaning: "Whether rules about addresses judge SYNs in the kernel: a connection that they \
                  refuse by \"reset\" or \"drop\" then costs neither a socket nor a wake-up. auto: \
                  where the machine can, else the server judges as it does anyway. address: or the \
                  server does not start. full: the kernel also answers SYNs, and queues each \
                  connection by the class of its first request, or the server does not start. Only \
                  read at the start.",
        example: "\"auto\"",
        at: |c| &mut c.gate,
    },
    Setting {
        key: "gate_charge",
        preset: Preset::Value("handshake"),
        range: None,
        meaning: "When the kernel charges a connection to the limit of its rule. handshake: when its \
                  client has proven its address; its SYN only looks whether anything is left. syn: \
                  when its SYN comes, so that invented addresses use limits up. Only read at the start.",
        example: "\"syn\"",
        at: |c| &mut c.gate_charge,
    },
    Setting {
        key: "gate_rules",
        preset: Preset::Value("addresses"),
        range: None,
        meaning: "Which rules the kernel enforces with gate = \"full\". addresses: those that ask for \
                  client and local only. first_request: also those that method, path, host or cookies tell \
                  in the first segment of a connection's first request; what they refuse costs no \
                  accept, gets silence, a reset or a short error from the kernel, and is in no log. \
                  Only read at the start.",
        example: "\"first_request\"",
        at: |c| &mut c.gate_rules,
    },
    Setting {
        key: "gate_answers",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether the kernel answers requests for small files of the cache, as the server would, without a \
                  connection in the server. It takes gate_rules = \"first_request\", by which it judges such requests \
                  before. forebay check --gate says for which sites and addresses it does. Only read at the \
                  start.",
        example: "true",
        at: |c| &mut c.gate_answers,
    },
    Setting {
        key: "user",
        preset: Preset::Unset("the user stays who started the server"),
        range: None,
        meaning: "The user, by name or number, that the server becomes once its sockets are open.",
        example: "\"www-data\"",
        at: |c| &mut c.user,
    },
    Setting {
        key: "group",
        preset: Preset::Unset("the primary group of user"),
        range: None,
        meaning: "The group, by name or number, that the server becomes together with user.",
        example: "\"www-data\"",
        at: |c| &mut c.group,
    },
    Setting {
        key: "spool_dir",
        preset: Preset::Unset("413 where a body is too large for memory"),
        range: None,
        meaning: "A directory for request bodies that must be collected before an application is asked and are larger \
                  than its spool_bytes: those to [[fastcgi]] whose length is not known (Transfer-Encoding: chunked, \
                  HTTP/2 without content-length). They may be as large as body_bytes then. They are files without a \
                  name (O_TMPFILE), of which nothing is left, whatever becomes of the server. Its user must be \
                  allowed to write there. Without room their requests get 507.",
        example: "\"/var/lib/forebay/spool\"",
        at: |c| &mut c.spool_dir,
    },
    Setting {
        key: "spool_dir_bytes",
        preset: Preset::Value("1GiB"),
        range: Some(("1MiB", "1024TiB")),
        meaning: "Bytes that all bodies together have in spool_dir, at most; those that want more get 507. With the engine \
                  isolated each process of respond has an equal part.",
        example: "\"20GiB\"",
        at: |c| &mut c.spool_dir_bytes,
    },
    Setting {
        key: "timeouts.head",
        preset: Preset::Value("10s"),
        range: Some(("100ms", "1h")),
        meaning: "Time for a whole request head, from its first byte or from accept.",
        example: "\"5s\"",
        at: |c| &mut c.timeouts.head,
    },
    Setting {
        key: "timeouts.body",
        preset: Preset::Value("30s"),
        range: Some(("100ms", "1h")),
        meaning: "Time for a whole request body that is read to be discarded.",
        example: "\"1m\"",
        at: |c| &mut c.timeouts.body,
    },
    Setting {
        key: "timeouts.idle",
        preset: Preset::Value("60s"),
        range: Some(("100ms", "1d")),
        meaning: "How long a kept connection may wait for its next request.",
        example: "\"15s\"",
        at: |c| &mut c.timeouts.idle,
    },
    Setting {
        key: "timeouts.job",
        preset: Preset::Value("60s"),
        range: Some(("100ms", "1d")),
        meaning: "How long a request may wait for work that blocks, such as a slow disk. The engines threads and pool cannot give such work up: the thread of the connection does it itself.",
        example: "\"30s\"",
        at: |c| &mut c.timeouts.job,
    },
    Setting {
        key: "timeouts.send_window",
        preset: Preset::Value("60s"),
        range: Some(("1s", "1h")),
        meaning: "The window over which limits.send_rate is measured. Where connections, descriptors or threads are \
                  short, a client that took less over a sixth of it is cut for others: \
                  the one that took the least, lowest class first.",
        example: "\"20s\"",
        at: |c| &mut c.timeouts.send_window,
    },
    Setting {
        key: "timeouts.drain",
        preset: Preset::Value("30s"),
        range: Some(("0s", "1d")),
        meaning: "How long open requests may take after the server was told to stop.",
        example: "\"10s\"",
        at: |c| &mut c.timeouts.drain,
    },
    Setting {
        key: "timeouts.drain_wait",
        preset: Preset::Value("0s"),
        range: Some(("0s", "1d")),
        meaning: "How long the server goes on as before after TERM or QUIT, while /readyz of admin.listen answers 503 \
                  already: load balancers see that late. Then timeouts.drain begins. INT does not wait, and a second \
                  signal ends the wait.",
        example: "\"5s\"",
        at: |c| &mut c.timeouts.drain_wait,
    },
    Setting {
        key: "timeouts.upgrade",
        preset: Preset::Value("10m"),
        range: Some(("0s", "1d")),
        meaning: "How long the process that forebay upgrade replaces may take to serve what it has: downloads, \
                  uploads, WebSockets. The last of it, timeouts.drain or half, is a drain.",
        example: "\"1h\"",
        at: |c| &mut c.timeouts.upgrade,
    },
    Setting {
        key: "keep_alive.law",
        preset: Preset::Value("linear"),
        range: None,
        meaning: "How timeouts.idle shrinks under load: linear, exponential, or constant for not at all.",
        example: "\"constant\"",
        at: |c| &mut c.keep_alive.law,
    },
    Setting {
        key: "keep_alive.threshold",
        preset: Preset::Value("50"),
        range: Some(("0", "100")),
        meaning: "The load, in percent of limits.connections or of the threads, from which on it shrinks.",
        example: "25",
        at: |c| &mut c.keep_alive.threshold,
    },
    Setting {
        key: "keep_alive.floor",
        preset: Preset::Value("100ms"),
        range: Some(("0s", "1d")),
        meaning: "What is left of timeouts.idle at full load. Where each connection holds a thread \
                  (threads, pool), silent clients get no more than threads / floor answers per second; \
                  0s cuts those that are not silent, too.",
        example: "\"1s\"",
        at: |c| &mut c.keep_alive.floor,
    },
    Setting {
        key: "keep_alive.announce",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether clients are told how long they are kept (Keep-Alive: timeout=); that is kept then.",
        example: "true",
        at: |c| &mut c.keep_alive.announce,
    },
    Setting {
        key: "limits.head_bytes",
        preset: Preset::Value("16KiB"),
        range: Some(("1KiB", "64KiB")),
        meaning: "Size of a request head, and of the trailers after a body that comes in chunks; more is answered with 431.",
        example: "\"8KiB\"",
        at: |c| &mut c.limits.head_bytes,
    },
    Setting {
        key: "limits.head_lines",
        preset: Preset::Value("100"),
        range: Some(("1", "128")),
        meaning: "Field lines of a request head, and of the trailers after a body that comes in chunks; more are answered with 431.",
        example: "64",
        at: |c| &mut c.limits.head_lines,
    },
    Setting {
        key: "limits.target_bytes",
        preset: Preset::Value("8KiB"),
        range: Some(("64B", "64KiB")),
        meaning: "Length of a request target; more is answered with 414.",
        example: "\"4KiB\"",
        at: |c| &mut c.limits.target_bytes,
    },
    Setting {
        key: "limits.body_bytes",
        preset: Preset::Value("1MiB"),
        range: Some(("0B", "1TiB")),
        meaning: "Size of a request body that is discarded, since a file answers; more is answered with \
                  413. Routes to applications have body_bytes of their own.",
        example: "\"64KiB\"",
        at: |c| &mut c.limits.body_bytes,
    },
    Setting {
        key: "limits.connections",
        preset: Preset::Value("auto"),
        range: Some(("1", "10000000")),
        meaning: "Connections open at once; auto is what the descriptor limit allows, or half of it where there \
                  are applications, or three eighths with the engine isolated: each request for one takes a \
                  descriptor, too. Of these there may be as many at once, or what a smaller number leaves, or \
                  what the stages of isolated can take; of one client half of them, or as many as its \
                  connections or streams. More get 503.",
        example: "10000",
        at: |c| &mut c.limits.connections,
    },
    Setting {
        key: "limits.connections_per_client",
        preset: Preset::Value("auto"),
        range: Some(("1", "10000000")),
        meaning: "Connections of one client (an IPv4 address or an IPv6 /64); auto is half of all, with engine pool or threads half of the threads.",
        example: "100",
        at: |c| &mut c.limits.connections_per_client,
    },
    Setting {
        key: "limits.requests_per_connection",
        preset: Preset::Value("10000"),
        range: Some(("0", "4000000000")),
        meaning: "Requests answered on one connection before it is closed; 0 is no limit.",
        example: "0",
        at: |c| &mut c.limits.requests_per_connection,
    },
    Setting {
        key: "limits.streams",
        preset: Preset::Value("128"),
        range: Some(("0", "1000")),
        meaning: "Requests under way at once on one connection of HTTP/2; 0 leaves HTTP/1 only.",
        example: "0",
        at: |c| &mut c.limits.streams,
    },
    Setting {
        key: "limits.send_rate",
        preset: Preset::Value("1KiB/s"),
        range: Some(("0B/s", "1GiB/s")),
        meaning: "A client that takes less than this over a send window is cut off; 0B/s allows all.",
        example: "\"4KiB/s\"",
        at: |c| &mut c.limits.send_rate,
    },
    Setting {
        key: "cache.bytes",
        preset: Preset::Unset("256 MiB, or a quarter of the memory there is if that is less"),
        range: Some(("0B", "1024TiB")),
        meaning: "Memory for whole answers; 0B switches the data cache off.",
        example: "\"1GiB\"",
        at: |c| &mut c.cache.bytes,
    },
    Setting {
        key: "cache.in_flight",
        preset: Preset::Unset("an eighth of the memory there is"),
        range: Some(("0B", "1024TiB")),
        meaning: "Memory for answers on their way to clients that the data cache does not hold. When it \
                  is used up, files are sent from the disk without being read into memory first.",
        example: "\"64MiB\"",
        at: |c| &mut c.cache.in_flight,
    },
    Setting {
        key: "cache.file_bytes",
        preset: Preset::Value("512KiB"),
        range: Some(("0B", "1GiB")),
        meaning: "The largest file that is kept in the data cache. At most a sixteenth of cache.bytes \
                  counts.",
        example: "\"64KiB\"",
        at: |c| &mut c.cache.file_bytes,
    },
    Setting {
        key: "cache.segment_bytes",
        preset: Preset::Value("0B"),
        range: Some(("0B", "1MiB")),
        meaning: "Bodies in memory that are longer than this, and at most twice as long, are given to the kernel in two pieces of about this size; 0B: each as a whole. Which is cheaper depends on the processor: forebay calibrate finds out.",
        example: "\"64KiB\"",
        at: |c| &mut c.cache.segment_bytes,
    },
    Setting {
        key: "cache.open_files",
        preset: Preset::Value("1024"),
        range: Some(("0", "1000000")),
        meaning: "Files too large for the data cache that are kept open.",
        example: "4096",
        at: |c| &mut c.cache.open_files,
    },
    Setting {
        key: "cache.check_interval",
        preset: Preset::Value("1s"),
        range: Some(("0s", "1h")),
        meaning: "Where changes cannot be watched, how often a cached file is compared with the disk.",
        example: "\"10s\"",
        at: |c| &mut c.cache.check_interval,
    },
    Setting {
        key: "acme.directory",
        preset: Preset::Value("https://acme-v02.api.letsencrypt.org/directory"),
        range: None,
        meaning: "The authority that makes certificates for sites with tls.acme: the address of its \
                  directory (RFC 8555). That of Let's Encrypt for trials is \
                  https://acme-staging-v02.api.letsencrypt.org/directory.",
        example: "\"https://acme.example/directory\"",
        at: |c| &mut c.acme.directory,
    },
    Setting {
        key: "acme.agree",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether you agree to the terms of that authority, to which its directory leads. Without \
                  that it makes no certificates.",
        example: "true",
        at: |c| &mut c.acme.agree,
    },
    Setting {
        key: "acme.contact",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "How the authority reaches who is responsible. Some want to know, Let's Encrypt does not.",
        example: "[\"mailto:admin@shop.example\"]",
        at: |c| &mut c.acme.contact,
    },
    Setting {
        key: "acme.storage",
        preset: Preset::Value("/var/lib/forebay/acme"),
        range: None,
        meaning: "The directory where certificates, keys and the account are kept, in a directory for each \
                  authority. It is made if it is not there; several servers may share it.",
        example: "\"/srv/acme\"",
        at: |c| &mut c.acme.storage,
    },
    Setting {
        key: "acme.challenges",
        preset: Preset::Items(&["http-01", "tls-alpn-01"]),
        range: None,
        meaning: "How the authority may look whether a name is ours: by a request at port 80 (http-01), or \
                  in a handshake at port 443 (tls-alpn-01), or by a record of the name service (dns-01), which \
                  needs dns_hook, or by one that you have made for good (dns-persist-01). The first for which \
                  there is a listener, or that command, is taken; after a failure, the next. For hosts with a star \
                  it is dns-01 where neither of the last two stands here.",
        example: "[\"tls-alpn-01\"]",
        at: |c| &mut c.acme.challenges,
    },
    Setting {
        key: "acme.dns_hook",
        preset: Preset::Unset(
            "no record of the name service can be made, and no certificate is got for hosts with a star",
        ),
        range: None,
        meaning: "The command that makes and removes the records by which an authority sees at the name service that \
                  a name is yours (dns-01): the path of a program, from the root on, and its arguments. It is run \
                  without a shell, for one record at a time; ACME_ACTION in its environment is present or cleanup, \
                  ACME_RECORD the name of the record, of type TXT, and ACME_VALUE its value. It must have made the \
                  record when it ends with 0; with anything else it has failed.",
        example: "[\"/usr/local/bin/dns-hook\"]",
        at: |c| &mut c.acme.dns_hook,
    },
    Setting {
        key: "acme.dns_user",
        preset: Preset::Unset("that of user, else who has started the server"),
        range: None,
        meaning: "The user, by name or number, who runs that command, in all groups of that user. Only root can \
                  name another one, and root itself may not be named: give the keys of the name servers to a user \
                  of their own.",
        example: "\"acme-dns\"",
        at: |c| &mut c.acme.dns_user,
    },
    Setting {
        key: "acme.dns_timeout",
        preset: Preset::Value("2m"),
        range: Some(("1s", "1h")),
        meaning: "How long that command may take for one record. Then it is killed with all that it has started, and \
                  has failed.",
        example: "\"5m\"",
        at: |c| &mut c.acme.dns_timeout,
    },
    Setting {
        key: "acme.dns_wait",
        preset: Preset::Value("30s"),
        range: Some(("0s", "1h")),
        meaning: "How long is waited after all records are made, so that every name server has them before the \
                  authority looks. Nothing is checked: 0s is right if the command waits for that itself.",
        example: "\"2m\"",
        at: |c| &mut c.acme.dns_wait,
    },
    Setting {
        key: "acme.ca",
        preset: Preset::Unset("the authorities that the system trusts"),
        range: None,
        meaning: "A file with certificates in PEM: who may have signed that of the authority's server, if \
                  it is one of your own.",
        example: "\"/etc/forebay/acme-ca.pem\"",
        at: |c| &mut c.acme.ca,
    },
    Setting {
        key: "admin.listen",
        preset: Preset::Value("off"),
        range: None,
        meaning: "The addresses or Unix sockets of the read-only admin listener (/metrics, /status, \
                  /healthz, /readyz), or \"off\". With \"https://\" before an address TLS is spoken \
                  there, by the certificates of admin.tls.",
        example: "\"127.0.0.1:9090\"",
        at: |c| &mut c.admin.listen,
    },
    Setting {
        key: "admin.allow",
        preset: Preset::Items(&["127.0.0.0/8", "::1", "unix"]),
        range: None,
        meaning: "Who may read from the admin listener: addresses, networks, and \"unix\" for those that \
                  connect to a Unix socket. Where there is an admin listener, those that are named here are \
                  administrators: no limit with ignore shuts them out, and the firewall never drops them. \
                  All of loopback and networks of everybody name nobody.",
        example: "[\"10.0.0.7\", \"unix\"]",
        at: |c| &mut c.admin.allow,
    },
    Setting {
        key: "admin.token_file",
        preset: Preset::Unset("nobody is asked for a token"),
        range: None,
        meaning: "A file with tokens, one in each line, one of which a client must bring \
                  (Authorization: Bearer TOKEN). /healthz and /readyz are answered without. A file that \
                  changes is taken over. Tokens are for addresses with https, for loopback and for Unix \
                  sockets: elsewhere they could be read on the way.",
        example: "\"/etc/forebay/admin.tokens\"",
        at: |c| &mut c.admin.token_file,
    },
    Setting {
        key: "admin.page",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether the admin listener has a page for browsers at /page, which shows what happens now and in \
                  the last hour: classes, refusals and their reasons, who asks most, applications. At addresses that \
                  others reach it wants https and admin.token_file.",
        example: "true",
        at: |c| &mut c.admin.page,
    },
    Setting {
        key: "admin.page_addresses",
        preset: Preset::Value("whole"),
        range: None,
        meaning: "What that page shows of the addresses of clients: whole, or networks, which are cut to a /24, or a \
                  /48 of IPv6.",
        example: "\"networks\"",
        at: |c| &mut c.admin.page_addresses,
    },
    Setting {
        key: "admin.tls.certificate",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files with the certificates of the admin listener in PEM, as tls.certificate has them \
                  for a site.",
        example: "[\"/etc/forebay/admin.pem\"]",
        at: |c| &mut c.admin.pairs.certificates,
    },
    Setting {
        key: "admin.tls.key",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files with the private keys of these certificates, in the same order.",
        example: "[\"/etc/forebay/admin.key\"]",
        at: |c| &mut c.admin.pairs.keys,
    },
    Setting {
        key: "traces.to",
        preset: Preset::Unset("nothing is traced"),
        range: None,
        meaning: "The collector that spans of requests are sent to, by OTLP over HTTP: OpenTelemetry's, Jaeger, or another. \
                  Without a path, /v1/traces. Applications are then told in traceparent where a request stands; what \
                  clients say there is not passed on, but what trusted_proxies say is continued.",
        example: "\"http://127.0.0.1:4318\"",
        at: |c| &mut c.traces.to,
    },
    Setting {
        key: "traces.rate",
        preset: Preset::Value("1%"),
        range: Some(("0%", "100%")),
        meaning: "The share of requests that are recorded.",
        example: "\"0.1%\"",
        at: |c| &mut c.traces.rate,
    },
    Setting {
        key: "traces.parent",
        preset: Preset::Value("follow"),
        range: None,
        meaning: "Whether a request is recorded that one of trusted_proxies places in a trace. follow: if the proxy \
                  says so. rate: by traces.rate, as all others.",
        example: "\"rate\"",
        at: |c| &mut c.traces.parent,
    },
    Setting {
        key: "traces.service",
        preset: Preset::Unset("\"forebay\""),
        range: None,
        meaning: "The name of this server in traces (service.name).",
        example: "\"shop-front\"",
        at: |c| &mut c.traces.service,
    },
    Setting {
        key: "identity.keys",
        preset: Preset::Unset("nobody can prove an identity"),
        range: None,
        meaning: "A file with the keys that sign the identities of clients: in each line a name, a blank \
                  and a key of at least 32 characters. The first one signs, all of them are good. A file \
                  that changes is taken over.",
        example: "\"/etc/forebay/identity.keys\"",
        at: |c| &mut c.identity.keys,
    },
    Setting {
        key: "identity.cookie",
        preset: Preset::Unset("\"forebay_id\""),
        range: None,
        meaning: "The cookie in which a client sends its identity, as forebay policy token makes it. Of \
                  several cookies of this name only the first counts.",
        example: "\"__Host-id\"",
        at: |c| &mut c.identity.cookie,
    },
    Setting {
        key: "identity.remove",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether applications are told of requests without this cookie: whoever can read it can \
                  be the client.",
        example: "true",
        at: |c| &mut c.identity.remove,
    },
    Setting {
        key: "policy.ban_files",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Files that say who is banned: in each line an address or a network, perhaps when the ban ends \
                  (2026-12-01T06:00:00Z), and perhaps why, behind #. A file that changes is taken over; if a line \
                  is wrong, what was in force stays. Trusted proxies, administrators and the server's own \
                  addresses are never banned.",
        example: "[\"/etc/forebay/banned.txt\"]",
        at: |c| &mut c.ban_files,
    },
    Setting {
        key: "control.socket",
        preset: Preset::Value("auto"),
        range: None,
        meaning: "The Unix socket that forebay reload speaks to: \"auto\", \"off\", or a path. auto is \
                  one for each configuration file, in /run/forebay for root and in \
                  $XDG_RUNTIME_DIR/forebay for others. Commands find it by the path that the server was \
                  started with, too, wherever links in that lead by then. If another process has its \
                  directory locked (flock), the start waits for that, for all sockets together 5 s at \
                  most.",
        example: "\"/run/forebay/control.sock\"",
        at: |c| &mut c.control.socket,
    },
    Setting {
        key: "firewall.mode",
        preset: Preset::Value("off"),
        range: None,
        meaning: "Whether the machine's firewall drops the SYNs of clients that the server ignores, and \
                  of addresses that rules drop. auto: where the machine can, else the server refuses \
                  them as it does anyway. nftables: or the server does not start. Trusted proxies, addresses \
                  of listen and administrators (admin.allow) are never dropped. Only read at the start.",
        example: "\"auto\"",
        at: |c| &mut c.firewall.mode,
    },
    Setting {
        key: "firewall.table",
        preset: Preset::Unset("\"forebay\""),
        range: None,
        meaning: "The name of the server's own table of nftables, of the family inet. Each server of a \
                  machine needs another. What is in a table of that name at the start is removed. Only \
                  read at the start.",
        example: "\"forebay_shop\"",
        at: |c| &mut c.firewall.table,
    },
    Setting {
        key: "firewall.clients",
        preset: Preset::Value("65536"),
        range: Some(("1", "1000000")),
        meaning: "So many clients at most are dropped by the firewall at once; those beyond it are \
                  refused by the server. Only read at the start.",
        example: "10000",
        at: |c| &mut c.firewall.clients,
    },
    Setting {
        key: "firewall.sets_interval",
        preset: Preset::Value("10s"),
        range: Some(("1s", "1h")),
        meaning: "How often the sets of nftables are read that rules name by client_set. Reading one that is \
                  large takes long: it is read less often then, for a twentieth of a core at most.",
        example: "\"60s\"",
        at: |c| &mut c.firewall.sets_interval,
    },
    Setting {
        key: "sandbox.landlock",
        preset: Preset::Value("auto"),
        range: None,
        meaning: "Whether the kernel (Landlock) confines the server to what it serves: auto does so where the kernel can, on refuses to start where it cannot.",
        example: "\"on\"",
        at: |c| &mut c.sandbox.landlock,
    },
    Setting {
        key: "sandbox.seccomp",
        preset: Preset::Value("auto"),
        range: None,
        meaning: "Whether the kernel (seccomp) has processes of the stage process open no file, no socket \
                  and no connection, and start no program, and those of receive and respond signal and trace \
                  no other process and start none: auto where the kernel can, on does not start \
                  them where it cannot. Only with stages.",
        example: "\"on\"",
        at: |c| &mut c.sandbox.seccomp,
    },
    Setting {
        key: "sandbox.read",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "What may be read besides the roots of the sites at start: directories that a reload will need.",
        example: "[\"/srv\"]",
        at: |c| &mut c.sandbox.read,
    },
    Setting {
        key: "helpers.threads",
        preset: Preset::Value("32"),
        range: Some(("1", "1024")),
        meaning: "Most threads for work that may block, all loops together.",
        example: "64",
        at: |c| &mut c.helpers.threads,
    },
    Setting {
        key: "helpers.reserve",
        preset: Preset::Value("1"),
        range: Some(("0", "64")),
        meaning: "Threads for jobs, of each kind, that are kept for each class but the last and for those before it.",
        example: "2",
        at: |c| &mut c.helpers.reserve,
    },
    Setting {
        key: "helpers.niceness",
        preset: Preset::Value("10"),
        range: Some(("0", "19")),
        meaning: "Nice value of threads that do jobs of the last class; those of the classes between have values between, those of the first have 0.",
        example: "19",
        at: |c| &mut c.helpers.niceness,
    },
    Setting {
        key: "pipeline.fuse",
        preset: Preset::Value("auto"),
        range: None,
        meaning: "How the phases of a request are joined in the engine pipeline: by calls while nothing waits (auto), or always by lists (never).",
        example: "\"never\"",
        at: |c| &mut c.pipeline.fuse,
    },
    Setting {
        key: "pipeline.by",
        preset: Preset::Value("queue"),
        range: None,
        meaning: "By what the pipeline gives threads to its phases: the lengths of their lists (queue), the time tasks wait there (delay), or not at all (fixed).",
        example: "\"delay\"",
        at: |c| &mut c.pipeline.by,
    },
    Setting {
        key: "pipeline.period",
        preset: Preset::Value("20ms"),
        range: Some(("10ms", "10s")),
        meaning: "How often the pipeline decides about its threads.",
        example: "\"50ms\"",
        at: |c| &mut c.pipeline.period,
    },
    Setting {
        key: "pipeline.delay",
        preset: Preset::Value("1ms"),
        range: Some(("1ms", "10s")),
        meaning: "How long tasks of the pipeline may wait in a list, by \"delay\".",
        example: "\"5ms\"",
        at: |c| &mut c.pipeline.delay,
    },
    Setting {
        key: "pipeline.threads",
        preset: Preset::Value("auto"),
        range: Some(("4", "4096")),
        meaning: "Most threads of all phases of the pipeline together; auto is 16 per core, at least 64. Never less than the phases have at the start.",
        example: "64",
        at: |c| &mut c.pipeline.threads,
    },
    Setting {
        key: "pipeline.transfer",
        preset: Preset::Value("2"),
        range: Some(("1", "64")),
        meaning: "Threads that move from one phase of the pipeline to another at a time, when all are in use.",
        example: "4",
        at: |c| &mut c.pipeline.transfer,
    },
    Setting {
        key: "pipeline.accept",
        preset: Preset::Value("1"),
        range: Some(("1", "64")),
        meaning: "Threads of the pipeline that accept, at the start and at low load; not with fuse = \"auto\", where loops do.",
        example: "2",
        at: |c| &mut c.pipeline.accept,
    },
    Setting {
        key: "pipeline.receive",
        preset: Preset::Value("1"),
        range: Some(("1", "1024")),
        meaning: "Threads of the pipeline that receive, at the start and at low load; not with fuse = \"auto\", where loops do.",
        example: "2",
        at: |c| &mut c.pipeline.receive,
    },
    Setting {
        key: "pipeline.process",
        preset: Preset::Value("1"),
        range: Some(("1", "1024")),
        meaning: "Threads of the pipeline that find answers, at the start and at low load.",
        example: "4",
        at: |c| &mut c.pipeline.process,
    },
    Setting {
        key: "pipeline.send",
        preset: Preset::Value("1"),
        range: Some(("1", "1024")),
        meaning: "Threads of the pipeline that send, at the start and at low load.",
        example: "4",
        at: |c| &mut c.pipeline.send,
    },
    Setting {
        key: "pipeline.send_wait",
        preset: Preset::Value("1ms"),
        range: Some(("0s", "1d")),
        meaning: "How long a thread of send stays with a client that takes nothing, with fuse = \"never\". Clients that take nothing hold so many threads for so long; 1d is for experiments with the pipeline of the paper, where a thread stays to the end.",
        example: "\"20ms\"",
        at: |c| &mut c.pipeline.send_wait,
    },
    Setting {
        key: "pipeline.calibration",
        preset: Preset::Unset("what was measured on another machine"),
        range: None,
        meaning: "The file of constants that forebay calibrate wrote on this machine: what a request \
                  and a byte cost, how fast the phases of the pipeline get threads, and the defaults \
                  of cache.file_bytes and cache.segment_bytes.",
        example: "\"calibration.toml\"",
        at: |c| &mut c.pipeline.calibration,
    },
    Setting {
        key: "isolated.process",
        preset: Preset::Value("2"),
        range: Some(("1", "32")),
        meaning: "Processes of the engine isolated that decide: whose site it is, who may, where to.",
        example: "4",
        at: |c| &mut c.isolated.process,
    },
    Setting {
        key: "isolated.respond",
        preset: Preset::Value("2"),
        range: Some(("1", "32")),
        meaning: "Processes of the engine isolated that read, compress and make what answers.",
        example: "4",
        at: |c| &mut c.isolated.respond,
    },
    Setting {
        key: "isolated.process_at",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Who does what the processes of isolated.process do, which are not started then: with tls:// the \
                  same stage of Forebay on other machines (isolated.process_listen there), with http:// or unix: \
                  other software, which speaks HTTP/1.1 and acknowledges nothing. All of them are of one kind.",
        example: "[\"tls://10.0.0.2:9443\", \"tls://b.example:9443\"]",
        at: |c| &mut c.isolated.process_at,
    },
    Setting {
        key: "isolated.respond_at",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Who does what the processes of isolated.respond do, which are not started then: with tls:// the \
                  same stage of Forebay on other machines, at addresses, with http:// or unix: other software, which \
                  speaks HTTP/1.1 and acknowledges nothing. All of them are of one kind.",
        example: "[\"http://127.0.0.1:9002\", \"http://127.0.0.1:9003\"]",
        at: |c| &mut c.isolated.respond_at,
    },
    Setting {
        key: "isolated.process_backup",
        preset: Preset::Items(&[]),
        range: None,
        meaning: "Process on other machines, which is asked only while none of the processes here, or of those of \
                  isolated.process_at, is well: machines in another zone.",
        example: "[\"tls://10.1.0.2:9443\"]",
        at: |c| &mut c.isolated.process_backup,
    },
    Setting {
        key: "isolated.process_listen",
        preset: Preset::Unset("no other machine asks it"),
        range: None,
        meaning: "Where the processes of process are asked by other machines, through TLS in which both sides show \
                  certificates (isolated.keys). Without listen and [[listener]] there is no receive here then.",
        example: "[\"10.0.0.2:9443\"]",
        at: |c| &mut c.isolated.process_listen,
    },
    Setting {
        key: "isolated.respond_listen",
        preset: Preset::Unset("no other machine asks it"),
        range: None,
        meaning: "The same for the processes of respond.",
        example: "[\"10.0.0.2:9444\"]",
        at: |c| &mut c.isolated.respond_listen,
    },
    Setting {
        key: "isolated.keys",
        preset: Preset::Unset("no TLS between stages"),
        range: None,
        meaning: "The directory with the certificates and keys of stages on several machines, as forebay stages keys \
                  makes them: ca.pem, and of each stage that is spoken with its .pem and its .key. Files that change \
                  are taken over while the server runs.",
        example: "\"/etc/forebay/stages\"",
        at: |c| &mut c.isolated.keys,
    },
    Setting {
        key: "isolated.unencrypted",
        preset: Preset::Value("false"),
        range: None,
        meaning: "Whether stages on several machines speak in clear (tcp://), and believe whoever reaches their port: for \
                  networks that are encrypted and closed by themselves.",
        example: "true",
        at: |c| &mut c.isolated.unencrypted,
    },
    Setting {
        key: "isolated.http2",
        preset: Preset::Value("off"),
        range: None,
        meaning: "Whether our own stages speak HTTP/2 with one another (on), or HTTP/1.1 (off), which costs less. \
                  Only with HTTP/2 a request that may not run twice survives the crash of a process that has not \
                  acknowledged it.",
        example: "\"on\"",
        at: |c| &mut c.isolated.http2,
    },
    Setting {
        key: "isolated.balance",
        preset: Preset::Value("least"),
        range: None,
        meaning: "Which of them gets a request: each in turn (round-robin), the one with the fewest under \
                  way (least), of two that are drawn the one with fewer (two-choices), as least but \
                  those counting less in whose answers requests have waited longer (feedback), or the same for \
                  the same target unless it has far more than its share (hash).",
        example: "\"hash\"",
        at: |c| &mut c.isolated.balance,
    },
    Setting {
        key: "isolated.acknowledge_floor",
        preset: Preset::Value("200ms"),
        range: Some(("10ms", "1m")),
        meaning: "How long one of them may always take to acknowledge a request. Above it the time goes \
                  by what was measured, as that of a retransmission of TCP; then a copy goes to another, \
                  if the request may run twice. From 100ms on an acknowledgement is held back for 25ms, as the \
                  answer mostly comes before.",
        example: "\"50ms\"",
        at: |c| &mut c.isolated.floor,
    },
    Setting {
        key: "isolated.acknowledge_ceiling",
        preset: Preset::Value("2s"),
        range: Some(("10ms", "1m")),
        meaning: "The longest that one of them may take for it, whatever was measured. A request that may not run \
                  twice has all of it, because no other could have it: then the client gets 502.",
        example: "\"1s\"",
        at: |c| &mut c.isolated.ceiling,
    },
    Setting {
        key: "isolated.ping",
        preset: Preset::Value("5s"),
        range: Some(("100ms", "1h")),
        meaning: "How often one that has nothing to do is asked whether it lives. One with requests under \
                  way that says nothing is asked after the time for an acknowledgement.",
        example: "\"1s\"",
        at: |c| &mut c.isolated.ping,
    },
    Setting {
        key: "isolated.back_off",
        preset: Preset::Value("500ms"),
        range: Some(("10ms", "1h")),
        meaning: "How long one that has failed gets no requests; then one as a trial, and twice as long \
                  after each that fails, unless it answers when it is asked whether it lives.",
        example: "\"2s\"",
        at: |c| &mut c.isolated.back_off,
    },
    Setting {
        key: "isolated.cpu_weight",
        preset: Preset::Unset("none has another weight than the rest of the machine"),
        range: Some(("1", "10000")),
        meaning: "What a stage gets of the processor when there is not enough for all: its weight against \
                  those of its neighbours, as CPUWeight of systemd; 100 is that of all others. All processes \
                  of the stage are in one control group.",
        example: "{ receive = 200, respond = 50 }",
        at: |c| &mut c.isolated.cpu_weight,
    },
    Setting {
        key: "isolated.memory_high",
        preset: Preset::Unset("no limit"),
        range: Some(("1MiB", "16TiB")),
        meaning: "How much memory the processes of a stage may have together before the kernel takes some back \
                  and slows them down, as MemoryHigh of systemd. With control groups of version 1 it is taken \
                  back only when the machine has little.",
        example: "{ process = \"256MiB\", respond = \"1GiB\" }",
        at: |c| &mut c.isolated.memory_high,
    },
    Setting {
        key: "isolated.memory_max",
        preset: Preset::Unset("no limit"),
        range: Some(("1MiB", "16TiB")),
        meaning: "How much memory the processes of a stage may ever have together: one that needs more is \
                  ended, as with MemoryMax of systemd, and started again.",
        example: "{ respond = \"2GiB\" }",
        at: |c| &mut c.isolated.memory_max,
    },
    Setting {
        key: "isolated.tasks_max",
        preset: Preset::Unset("no limit"),
        range: Some(("16", "4194304")),
        meaning: "How many threads the processes of a stage may have together, as TasksMax of systemd.",
        example: "{ process = 64 }",
        at: |c| &mut c.isolated.tasks_max,
    },
];
