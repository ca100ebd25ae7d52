//! The names, units, help texts and kinds of all figures. A new figure is added here and nowhere
//! else.

/// Defines an enum whose variants are metrics: its name, its number of variants, and the texts of
/// each.
macro_rules! schema {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $metric:literal $labels:literal, $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $name { $(#[doc = $help] $variant),* }

        impl $name {
            /// All variants, in the order of the schema.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// The metric's name, with its unit as the last word.
            pub fn metric(self) -> &'static str { match self { $($name::$variant => $metric),* } }
            /// The metric's labels in Prometheus form, without braces.
            pub fn labels(self) -> &'static str { match self { $($name::$variant => $labels),* } }
            /// A sentence for the operator.
            pub fn help(self) -> &'static str { match self { $($name::$variant => $help),* } }
        }
    };
}

schema! {
    /// Figures that only grow.
    Counter {
        Status1xx = "forebay_responses_total" "class=\"1xx\"", "Responses by status class.";
        Status2xx = "forebay_responses_total" "class=\"2xx\"", "Responses by status class.";
        Status3xx = "forebay_responses_total" "class=\"3xx\"", "Responses by status class.";
        Status4xx = "forebay_responses_total" "class=\"4xx\"", "Responses by status class.";
        Status5xx = "forebay_responses_total" "class=\"5xx\"", "Responses by status class.";
        ReceivedBytes = "forebay_received_bytes_total" "", "Bytes received from clients.";
        SentBytes = "forebay_sent_bytes_total" "", "Bytes sent to clients, heads included.";
        Accepted = "forebay_connections_accepted_total" "", "Connections accepted.";
        Closed = "forebay_connections_closed_total" "", "Connections closed, for whatever reason.";
        RefusedTotal = "forebay_connections_refused_total" "reason=\"limit\"", "Connections refused at once, by reason.";
        RefusedClient = "forebay_connections_refused_total" "reason=\"client_limit\"", "Connections refused at once, by reason.";
        RefusedDescriptors = "forebay_connections_refused_total" "reason=\"descriptors\"", "Connections refused at once, by reason.";
        RefusedProxy = "forebay_connections_refused_total" "reason=\"untrusted_proxy\"", "Connections refused at once, by reason.";
        RefusedProxyHeader = "forebay_connections_refused_total" "reason=\"proxy_header\"", "Connections refused at once, by reason.";
        RefusedVerdict = "forebay_connections_refused_total" "reason=\"policy\"", "Connections refused at once, by reason.";
        RefusedHandshake = "forebay_connections_refused_total" "reason=\"handshakes\"", "Connections refused at once, by reason.";
        TimeoutHead = "forebay_timeouts_total" "kind=\"head\"", "What took too long, by what was awaited.";
        TimeoutBody = "forebay_timeouts_total" "kind=\"body\"", "What took too long, by what was awaited.";
        TimeoutIdle = "forebay_timeouts_total" "kind=\"idle\"", "What took too long, by what was awaited.";
        TimeoutSend = "forebay_timeouts_total" "kind=\"send\"", "What took too long, by what was awaited.";
        TimeoutJob = "forebay_timeouts_total" "kind=\"job\"", "What took too long, by what was awaited.";
        TimeoutPlace = "forebay_timeouts_total" "kind=\"queue\"", "What took too long, by what was awaited.";
        TimeoutSlot = "forebay_timeouts_total" "kind=\"upstream_queue\"", "What took too long, by what was awaited.";
        TimeoutConnect = "forebay_timeouts_total" "kind=\"upstream_connect\"", "What took too long, by what was awaited.";
        TimeoutAnswer = "forebay_timeouts_total" "kind=\"upstream_answer\"", "What took too long, by what was awaited.";
        TimeoutFlow = "forebay_timeouts_total" "kind=\"upstream_flow\"", "What took too long, by what was awaited.";
        MadeRoom = "forebay_connections_idle_cut_total" "", "Connections closed to give their places to others: idle ones, slow readers, and busy ones of a lower class.";
        Aborted = "forebay_responses_aborted_total" "reason=\"client\"", "Responses cut short, by whose doing.";
        Changed = "forebay_responses_aborted_total" "reason=\"file_changed\"", "Responses cut short, by whose doing.";
        BrokenUpstream = "forebay_responses_aborted_total" "reason=\"upstream\"", "Responses cut short, by whose doing.";
        TokenAccepted = "forebay_identity_tokens_total" "result=\"accepted\"", "Requests that brought the token of an identity, by what was found.";
        TokenExpired = "forebay_identity_tokens_total" "result=\"expired\"", "Requests that brought the token of an identity, by what was found.";
        TokenForged = "forebay_identity_tokens_total" "result=\"forged\"", "Requests that brought the token of an identity, by what was found.";
        TokenElsewhere = "forebay_identity_tokens_total" "result=\"elsewhere\"", "Requests that brought the token of an identity, by what was found.";
        TokenUnknownKey = "forebay_identity_tokens_total" "result=\"unknown_key\"", "Requests that brought the token of an identity, by what was found.";
        TokenMalformed = "forebay_identity_tokens_total" "result=\"malformed\"", "Requests that brought the token of an identity, by what was found.";
        UpstreamAnswered = "forebay_upstream_requests_total" "result=\"answered\"", "Requests to applications, by what has come of them.";
        UpstreamFailed = "forebay_upstream_requests_total" "result=\"failed\"", "Requests to applications, by what has come of them.";
        UpstreamLate = "forebay_upstream_requests_total" "result=\"late\"", "Requests to applications, by what has come of them.";
        UpstreamUnavailable = "forebay_upstream_requests_total" "result=\"unavailable\"", "Requests to applications, by what has come of them.";
        UpstreamRetries = "forebay_upstream_retries_total" "", "Requests to applications that were sent again.";
        UpstreamTlsFull = "forebay_upstream_tls_handshakes_total" "result=\"full\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsResumed = "forebay_upstream_tls_handshakes_total" "result=\"resumed\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsExpired = "forebay_upstream_tls_handshakes_total" "result=\"expired\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsNotYetValid = "forebay_upstream_tls_handshakes_total" "result=\"not_yet_valid\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsName = "forebay_upstream_tls_handshakes_total" "result=\"name\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsIssuer = "forebay_upstream_tls_handshakes_total" "result=\"issuer\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsCertificate = "forebay_upstream_tls_handshakes_total" "result=\"certificate\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsUnwelcome = "forebay_upstream_tls_handshakes_total" "result=\"unwelcome\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsAlert = "forebay_upstream_tls_handshakes_total" "result=\"alert\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsUnsupported = "forebay_upstream_tls_handshakes_total" "result=\"unsupported\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsNotTls = "forebay_upstream_tls_handshakes_total" "result=\"not_tls\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsNoHttp2 = "forebay_upstream_tls_handshakes_total" "result=\"no_http2\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsRules = "forebay_upstream_tls_handshakes_total" "result=\"rules\"", "Handshakes of TLS with applications, by what has come of them.";
        UpstreamTlsEnded = "forebay_upstream_tls_handshakes_total" "result=\"ended\"", "Handshakes of TLS with applications, by what has come of them.";
        PassedOn = "forebay_tcp_connections_total" "result=\"passed\"", "Connections to be passed on as they are, by what has come of them.";
        PassedUnrouted = "forebay_tcp_connections_total" "result=\"no_route\"", "Connections to be passed on as they are, by what has come of them.";
        PassedUnreached = "forebay_tcp_connections_total" "result=\"unreached\"", "Connections to be passed on as they are, by what has come of them.";
        PassedUp = "forebay_tcp_bytes_total" "to=\"server\"", "Bytes of connections that were passed on and are over, by where they went.";
        PassedDown = "forebay_tcp_bytes_total" "to=\"client\"", "Bytes of connections that were passed on and are over, by where they went.";
        SendWaits = "forebay_send_waits_total" "", "Times an answer had to wait until its client had taken some of it. Divided by forebay_responses_total: waits per answer.";
        LinkUnknown = "forebay_link_unknown_total" "", "Requests to the next stage, with the engine isolated, of which it is not known whether they were done: they were answered with 502.";
        GivenUp = "forebay_requests_given_up_total" "", "Requests that were not begun because their client left while they waited.";
        BannedConnections = "forebay_banned_total" "at=\"accept\"", "Connections and requests that were refused because their client is banned, by where.";
        BannedRequests = "forebay_banned_total" "at=\"request\"", "Connections and requests that were refused because their client is banned, by where.";
        HandshakesBegun = "forebay_tls_handshakes_begun_total" "", "TLS handshakes begun.";
        HandshakesFull = "forebay_tls_handshakes_total" "result=\"full\"", "TLS handshakes by what has come of them.";
        HandshakesResumed = "forebay_tls_handshakes_total" "result=\"resumed\"", "TLS handshakes by what has come of them.";
        HandshakesNotTls = "forebay_tls_handshakes_total" "result=\"not_tls\"", "TLS handshakes by what has come of them.";
        HandshakesUnknownName = "forebay_tls_handshakes_total" "result=\"unknown_name\"", "TLS handshakes by what has come of them.";
        HandshakesRefused = "forebay_tls_handshakes_total" "result=\"refused_by_client\"", "TLS handshakes by what has come of them.";
        HandshakesClientMissing = "forebay_tls_handshakes_total" "result=\"client_certificate_missing\"", "TLS handshakes by what has come of them.";
        HandshakesClientUntrusted = "forebay_tls_handshakes_total" "result=\"client_certificate_untrusted\"", "TLS handshakes by what has come of them.";
        HandshakesClientExpired = "forebay_tls_handshakes_total" "result=\"client_certificate_expired\"", "TLS handshakes by what has come of them.";
        HandshakesClientRevoked = "forebay_tls_handshakes_total" "result=\"client_certificate_revoked\"", "TLS handshakes by what has come of them.";
        HandshakesClientUnlisted = "forebay_tls_handshakes_total" "result=\"client_certificate_unlisted\"", "TLS handshakes by what has come of them.";
        HandshakesClientWrong = "forebay_tls_handshakes_total" "result=\"client_certificate_wrong\"", "TLS handshakes by what has come of them.";
        HandshakesProof = "forebay_tls_handshakes_total" "result=\"acme\"", "TLS handshakes by what has come of them.";
        HandshakesFailed = "forebay_tls_handshakes_total" "result=\"failed\"", "TLS handshakes by what has come of them.";
        HandshakesCut = "forebay_tls_handshakes_total" "result=\"cut\"", "TLS handshakes by what has come of them.";
        AcmeIssued = "forebay_acme_attempts_total" "result=\"issued\"", "Attempts to get a certificate by ACME, by what has come of them.";
        AcmeUnreachable = "forebay_acme_attempts_total" "result=\"unreachable\"", "Attempts to get a certificate by ACME, by what has come of them.";
        AcmeRateLimited = "forebay_acme_attempts_total" "result=\"rate_limited\"", "Attempts to get a certificate by ACME, by what has come of them.";
        AcmeUnproven = "forebay_acme_attempts_total" "result=\"unproven\"", "Attempts to get a certificate by ACME, by what has come of them.";
        AcmeRefused = "forebay_acme_attempts_total" "result=\"refused\"", "Attempts to get a certificate by ACME, by what has come of them.";
        AcmeHook = "forebay_acme_attempts_total" "result=\"hook\"", "Attempts to get a certificate by ACME, by what has come of them.";
        AcmeStorage = "forebay_acme_attempts_total" "result=\"storage\"", "Attempts to get a certificate by ACME, by what has come of them.";
        Panics = "forebay_panics_total" "", "Panics contained; each closed one connection.";
        Jobs = "forebay_jobs_total" "", "Jobs that may block, for helper threads or the connection's own, begun or given up.";
        CacheHits = "forebay_cache_hits_total" "", "Requests answered from the data cache.";
        CacheShared = "forebay_cache_shared_hits_total" "", "Of the hits: those for which a loop or thread had to ask the cache that all share, because its own table of paths did not have the path.";
        CacheMisses = "forebay_cache_misses_total" "", "Requests that needed the file system.";
        AcceptErrors = "forebay_accept_errors_total" "", "Failed accepts, lack of descriptors included.";
    }
}

schema! {
    /// Figures that rise and fall; they are read at each scrape.
    Gauge {
        Connections = "forebay_connections" "", "Connections open now.";
        CacheBytes = "forebay_cache_bytes" "", "Bytes held by the data cache.";
        CacheEntries = "forebay_cache_entries" "", "Answers held by the data cache.";
        CacheEvictions = "forebay_cache_evictions_total" "", "Answers dropped for lack of room.";
        CacheInvalidations = "forebay_cache_invalidations_total" "", "Answers dropped because their file changed.";
        BodyBytes = "forebay_body_bytes" "", "Bytes of files in memory as bodies of answers, held by the data cache or on their way.";
        Crowded = "forebay_bodies_crowded_total" "", "Files sent from the disk because memory for answers on their way (cache.in_flight) was used up.";
        Uncompressed = "forebay_uncompressed_total" "", "Files and lists loaded that were not compressed because they are larger than compress_bytes.";
        WatchedDirectories = "forebay_watched_directories" "", "Directories watched for changes.";
        Helpers = "forebay_helper_threads" "", "Helper threads alive.";
        LinkSuspected = "forebay_link_suspected_total" "", "With stages: how often a process of the next stage was left out because it had answered neither a request nor a look in time. Processes that live are suspected, too, on a machine that is too busy.";
        LinkHurried = "forebay_link_hurried_total" "", "With stages: requests that went to another process because their acknowledgement took longer than usual.";
        Generation = "forebay_config_generation" "", "Number of the configuration in force; the first is 1.";
        BansByCommand = "forebay_bans" "from=\"command\"", "Addresses and networks that are banned, by who says so.";
        BansByFile = "forebay_bans" "from=\"file\"", "Addresses and networks that are banned, by who says so.";
        LastReload = "forebay_config_last_reload_timestamp_seconds" "", "When the last reload ended, in seconds since 1970; the start, if there was none.";
        LastReloadGood = "forebay_config_last_reload_successful" "", "Whether the last reload took its configuration over: 1, or 0.";
        ReloadsGood = "forebay_config_reloads_total" "result=\"success\"", "Reloads by how they ended.";
        ReloadsFailed = "forebay_config_reloads_total" "result=\"failure\"", "Reloads by how they ended.";
        ListenSocket = "forebay_listen_nanoseconds_total" "step=\"socket\"", "Time that opening listening sockets has taken, step by step, in nanoseconds: at the start and by reloads.";
        ListenOptions = "forebay_listen_nanoseconds_total" "step=\"setsockopt\"", "Time that opening listening sockets has taken, step by step, in nanoseconds: at the start and by reloads.";
        ListenBind = "forebay_listen_nanoseconds_total" "step=\"bind\"", "Time that opening listening sockets has taken, step by step, in nanoseconds: at the start and by reloads.";
        ListenListen = "forebay_listen_nanoseconds_total" "step=\"listen\"", "Time that opening listening sockets has taken, step by step, in nanoseconds: at the start and by reloads.";
        LogDropped = "forebay_log_dropped_lines_total" "", "Access log lines dropped because the log could not be written.";
        SpansExported = "forebay_trace_spans_total" "result=\"exported\"", "Spans of requests that were recorded, by what has come of them: taken by the collector, dropped because too many waited, or given up because the collector did not take them.";
        SpansDropped = "forebay_trace_spans_total" "result=\"dropped\"", "Spans of requests that were recorded, by what has come of them: taken by the collector, dropped because too many waited, or given up because the collector did not take them.";
        SpansFailed = "forebay_trace_spans_total" "result=\"failed\"", "Spans of requests that were recorded, by what has come of them: taken by the collector, dropped because too many waited, or given up because the collector did not take them.";
        OverloadLevel = "forebay_overload_level" "", "How overloaded the server is: 0 not at all, 1 header control, 2 class order, 3 SYN policing.";
        OverloadDelay = "forebay_overload_cause" "cause=\"delay\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadRefused = "forebay_overload_cause" "cause=\"refused\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadApplications = "forebay_overload_cause" "cause=\"applications\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadLoad = "forebay_overload_cause" "cause=\"load\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadLag = "forebay_overload_cause" "cause=\"lag\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadAcceptQueue = "forebay_overload_cause" "cause=\"accept_queue\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadRefusals = "forebay_overload_cause" "cause=\"refusals\"", "Whether this is why the level is what it is: 1, or 0.";
        OverloadConnections = "forebay_overload_cause" "cause=\"connections\"", "Whether this is why the level is what it is: 1, or 0.";
        OfferedLoad = "forebay_offered_load_percent" "", "Work offered to computing threads, of what the cores can do.";
        AcceptThreads = "forebay_pipeline_threads" "phase=\"accept\"", "Threads a phase of the pipeline may use now.";
        ReceiveThreads = "forebay_pipeline_threads" "phase=\"receive\"", "Threads a phase of the pipeline may use now.";
        ProcessThreads = "forebay_pipeline_threads" "phase=\"process\"", "Threads a phase of the pipeline may use now.";
        SendThreads = "forebay_pipeline_threads" "phase=\"send\"", "Threads a phase of the pipeline may use now.";
        AcceptWaiting = "forebay_pipeline_waiting_tasks" "phase=\"accept\"", "Tasks in a phase's list.";
        ReceiveWaiting = "forebay_pipeline_waiting_tasks" "phase=\"receive\"", "Tasks in a phase's list.";
        ProcessWaiting = "forebay_pipeline_waiting_tasks" "phase=\"process\"", "Tasks in a phase's list.";
        SendWaiting = "forebay_pipeline_waiting_tasks" "phase=\"send\"", "Tasks in a phase's list.";
        AcceptDelay = "forebay_pipeline_queue_delay_microseconds" "phase=\"accept\"", "Mean time tasks taken in the last period had waited in a phase's list.";
        ReceiveDelay = "forebay_pipeline_queue_delay_microseconds" "phase=\"receive\"", "Mean time tasks taken in the last period had waited in a phase's list.";
        ProcessDelay = "forebay_pipeline_queue_delay_microseconds" "phase=\"process\"", "Mean time tasks taken in the last period had waited in a phase's list.";
        SendDelay = "forebay_pipeline_queue_delay_microseconds" "phase=\"send\"", "Mean time tasks taken in the last period had waited in a phase's list.";
        AcceptBusy = "forebay_pipeline_busy_threads_percent" "phase=\"accept\"", "Threads of a phase with a task, mean over the last period; 100 is one thread.";
        ReceiveBusy = "forebay_pipeline_busy_threads_percent" "phase=\"receive\"", "Threads of a phase with a task, mean over the last period; 100 is one thread.";
        ProcessBusy = "forebay_pipeline_busy_threads_percent" "phase=\"process\"", "Threads of a phase with a task, mean over the last period; 100 is one thread.";
        SendBusy = "forebay_pipeline_busy_threads_percent" "phase=\"send\"", "Threads of a phase with a task, mean over the last period; 100 is one thread.";
        AcceptBlocked = "forebay_pipeline_blocked_percent" "phase=\"accept\"", "Share of that time in which they waited for something that is not a core.";
        ReceiveBlocked = "forebay_pipeline_blocked_percent" "phase=\"receive\"", "Share of that time in which they waited for something that is not a core.";
        ProcessBlocked = "forebay_pipeline_blocked_percent" "phase=\"process\"", "Share of that time in which they waited for something that is not a core.";
        SendBlocked = "forebay_pipeline_blocked_percent" "phase=\"send\"", "Share of that time in which they waited for something that is not a core.";
        AcceptArrivals = "forebay_pipeline_arrivals_total" "phase=\"accept\"", "Tasks put into a phase's list.";
        ReceiveArrivals = "forebay_pipeline_arrivals_total" "phase=\"receive\"", "Tasks put into a phase's list.";
        ProcessArrivals = "forebay_pipeline_arrivals_total" "phase=\"process\"", "Tasks put into a phase's list.";
        SendArrivals = "forebay_pipeline_arrivals_total" "phase=\"send\"", "Tasks put into a phase's list.";
        AcceptTasks = "forebay_pipeline_tasks_total" "phase=\"accept\"", "Tasks a phase's threads have finished.";
        ReceiveTasks = "forebay_pipeline_tasks_total" "phase=\"receive\"", "Tasks a phase's threads have finished.";
        ProcessTasks = "forebay_pipeline_tasks_total" "phase=\"process\"", "Tasks a phase's threads have finished.";
        SendTasks = "forebay_pipeline_tasks_total" "phase=\"send\"", "Tasks a phase's threads have finished.";
        AcceptQueued = "forebay_pipeline_queued_microseconds_total" "phase=\"accept\"", "Time that tasks taken from a phase's list had waited there, all together, in microseconds.";
        ReceiveQueued = "forebay_pipeline_queued_microseconds_total" "phase=\"receive\"", "Time that tasks taken from a phase's list had waited there, all together, in microseconds.";
        ProcessQueued = "forebay_pipeline_queued_microseconds_total" "phase=\"process\"", "Time that tasks taken from a phase's list had waited there, all together, in microseconds.";
        SendQueued = "forebay_pipeline_queued_microseconds_total" "phase=\"send\"", "Time that tasks taken from a phase's list had waited there, all together, in microseconds.";
        AcceptWorked = "forebay_pipeline_busy_microseconds_total" "phase=\"accept\"", "Time that a phase's threads had a task, all together, in microseconds; of loops, that they did not sleep.";
        ReceiveWorked = "forebay_pipeline_busy_microseconds_total" "phase=\"receive\"", "Time that a phase's threads had a task, all together, in microseconds; of loops, that they did not sleep.";
        ProcessWorked = "forebay_pipeline_busy_microseconds_total" "phase=\"process\"", "Time that a phase's threads had a task, all together, in microseconds; of loops, that they did not sleep.";
        SendWorked = "forebay_pipeline_busy_microseconds_total" "phase=\"send\"", "Time that a phase's threads had a task, all together, in microseconds; of loops, that they did not sleep.";
        AcceptRan = "forebay_pipeline_cpu_microseconds_total" "phase=\"accept\"", "Time that a phase's threads ran on a core, all together, in microseconds; 0 where the kernel does not say.";
        ReceiveRan = "forebay_pipeline_cpu_microseconds_total" "phase=\"receive\"", "Time that a phase's threads ran on a core, all together, in microseconds; 0 where the kernel does not say.";
        ProcessRan = "forebay_pipeline_cpu_microseconds_total" "phase=\"process\"", "Time that a phase's threads ran on a core, all together, in microseconds; 0 where the kernel does not say.";
        SendRan = "forebay_pipeline_cpu_microseconds_total" "phase=\"send\"", "Time that a phase's threads ran on a core, all together, in microseconds; 0 where the kernel does not say.";
        AcceptComputed = "forebay_pipeline_computed_threads_percent" "phase=\"accept\"", "Threads the law computed for a phase, before rounding and limits; 100 is one thread, and 0 that nothing decides.";
        ReceiveComputed = "forebay_pipeline_computed_threads_percent" "phase=\"receive\"", "Threads the law computed for a phase, before rounding and limits; 100 is one thread, and 0 that nothing decides.";
        ProcessComputed = "forebay_pipeline_computed_threads_percent" "phase=\"process\"", "Threads the law computed for a phase, before rounding and limits; 100 is one thread, and 0 that nothing decides.";
        SendComputed = "forebay_pipeline_computed_threads_percent" "phase=\"send\"", "Threads the law computed for a phase, before rounding and limits; 100 is one thread, and 0 that nothing decides.";
        AcceptLimit = "forebay_pipeline_core_limit_threads" "phase=\"accept\"", "The most threads of a phase that the cores could keep going; 0 if nothing decides.";
        ReceiveLimit = "forebay_pipeline_core_limit_threads" "phase=\"receive\"", "The most threads of a phase that the cores could keep going; 0 if nothing decides.";
        ProcessLimit = "forebay_pipeline_core_limit_threads" "phase=\"process\"", "The most threads of a phase that the cores could keep going; 0 if nothing decides.";
        SendLimit = "forebay_pipeline_core_limit_threads" "phase=\"send\"", "The most threads of a phase that the cores could keep going; 0 if nothing decides.";
        AcceptSteady = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"steady\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptGrew = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"grew\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptTook = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"took\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptGave = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"gave\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptShrank = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"shrank\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptReturned = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"returned\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptHeldByCores = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"held_by_cores\"", "Decisions about a phase's threads, one each period, by reason.";
        AcceptHeldByTotal = "forebay_pipeline_decisions_total" "phase=\"accept\",reason=\"held_by_total\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveSteady = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"steady\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveGrew = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"grew\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveTook = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"took\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveGave = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"gave\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveShrank = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"shrank\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveReturned = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"returned\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveHeldByCores = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"held_by_cores\"", "Decisions about a phase's threads, one each period, by reason.";
        ReceiveHeldByTotal = "forebay_pipeline_decisions_total" "phase=\"receive\",reason=\"held_by_total\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessSteady = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"steady\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessGrew = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"grew\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessTook = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"took\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessGave = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"gave\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessShrank = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"shrank\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessReturned = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"returned\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessHeldByCores = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"held_by_cores\"", "Decisions about a phase's threads, one each period, by reason.";
        ProcessHeldByTotal = "forebay_pipeline_decisions_total" "phase=\"process\",reason=\"held_by_total\"", "Decisions about a phase's threads, one each period, by reason.";
        SendSteady = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"steady\"", "Decisions about a phase's threads, one each period, by reason.";
        SendGrew = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"grew\"", "Decisions about a phase's threads, one each period, by reason.";
        SendTook = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"took\"", "Decisions about a phase's threads, one each period, by reason.";
        SendGave = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"gave\"", "Decisions about a phase's threads, one each period, by reason.";
        SendShrank = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"shrank\"", "Decisions about a phase's threads, one each period, by reason.";
        SendReturned = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"returned\"", "Decisions about a phase's threads, one each period, by reason.";
        SendHeldByCores = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"held_by_cores\"", "Decisions about a phase's threads, one each period, by reason.";
        SendHeldByTotal = "forebay_pipeline_decisions_total" "phase=\"send\",reason=\"held_by_total\"", "Decisions about a phase's threads, one each period, by reason.";
        PipelineRequests = "forebay_pipeline_requests_per_second" "", "W: requests per second, as the pipeline's controller sees them.";
        PipelineBytes = "forebay_pipeline_bytes_per_second" "", "R: bytes per second, as the pipeline's controller sees them.";
        PipelineUtilisation = "forebay_pipeline_utilisation_percent" "", "U = c1 W + c2 R; 100 is a server used fully.";
        PipelineGrown = "forebay_pipeline_threads_moved_total" "how=\"grown\"", "Threads the controller has moved to a phase, back from it, or from another phase.";
        PipelineReturned = "forebay_pipeline_threads_moved_total" "how=\"returned\"", "Threads the controller has moved to a phase, back from it, or from another phase.";
        PipelineTransferred = "forebay_pipeline_threads_moved_total" "how=\"transferred\"", "Threads the controller has moved to a phase, back from it, or from another phase.";
        PipelineHeld = "forebay_pipeline_growth_held_total" "", "Times a phase had tasks waiting and got no thread, for lack of cores or of threads.";
        UpstreamInFlight = "forebay_upstream_requests_in_flight" "", "Requests under way to applications.";
        QueuedByRules = "forebay_requests_queued" "", "Requests that wait because rules have as many at once as they may (in_flight.over = \"queue\").";
        UpstreamWaiting = "forebay_upstream_requests_waiting" "", "Requests that wait because applications have as much under way as they may.";
        UpstreamPlaces = "forebay_upstream_places" "", "Requests that may be under way at once to applications that have a limit (in_flight), as they are set or learnt.";
        UpstreamSharedConnections = "forebay_upstream_http2_connections" "", "Connections to applications that requests share (http2_connections), which are open.";
        UpstreamSharedStreams = "forebay_upstream_http2_streams" "", "Requests that have a stream on one of them, or wait for one there.";
        UpstreamSharedGoAways = "forebay_upstream_http2_goaways_total" "", "GOAWAYs with which applications have ended such connections.";
        SpoolBytes = "forebay_spool_bytes" "", "Bytes of request bodies on disk (spool_dir), in files without a name.";
        UptimeSeconds = "forebay_uptime_seconds" "", "Seconds since the start.";
    }
}

schema! {
    /// The activities that take a request's time (duke's figure 7).
    Activity {
        Accept = "forebay_activity_seconds" "activity=\"accept\"", "Sampled time per activity.";
        Thread = "forebay_activity_seconds" "activity=\"thread\"", "Sampled time per activity.";
        Handshake = "forebay_activity_seconds" "activity=\"handshake\"", "Sampled time per activity.";
        Read = "forebay_activity_seconds" "activity=\"read\"", "Sampled time per activity.";
        Parse = "forebay_activity_seconds" "activity=\"parse\"", "Sampled time per activity.";
        Process = "forebay_activity_seconds" "activity=\"process\"", "Sampled time per activity.";
        Open = "forebay_activity_seconds" "activity=\"open\"", "Sampled time per activity.";
        Stat = "forebay_activity_seconds" "activity=\"fstat\"", "Sampled time per activity.";
        Load = "forebay_activity_seconds" "activity=\"load\"", "Sampled time per activity.";
        Compute = "forebay_activity_seconds" "activity=\"compute\"", "Sampled time per activity.";
        Sendfile = "forebay_activity_seconds" "activity=\"sendfile\"", "Sampled time per activity.";
        Send = "forebay_activity_seconds" "activity=\"send\"", "Sampled time per activity.";
        Close = "forebay_activity_seconds" "activity=\"close\"", "Sampled time per activity.";
    }
}

impl Counter {
    /// The counter for a status's class.
    #[inline]
    pub fn of_status(status: u16) -> Counter {
        match status / 100 {
            1 => Counter::Status1xx,
            2 => Counter::Status2xx,
            3 => Counter::Status3xx,
            4 => Counter::Status4xx,
            _ => Counter::Status5xx,
        }
    }
}
