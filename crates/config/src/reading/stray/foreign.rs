//! Keys that users know from other servers, or guess, and what to write instead.

use crate::problems::problem::Wrong;
use crate::problems::quoted::bare_or_quoted;
use crate::reading::stray;

/// The fault that a key of nginx, Apache or Caddy stands in `section`: with the key that replaces it, or
/// the reason why none does.
pub(super) fn wrong(section: &str, key: &str) -> Option<Wrong> {
    let is_it = |known: &str| known.eq_ignore_ascii_case(key);
    let list = section.strip_prefix("site.").unwrap_or(section);
    // the name of a field, such as Cache-Control; no key has a hyphen
    if list == "header" && key.contains('-') {
        let answer = format!("write set = {{ {} = \"…\" }}", bare_or_quoted(key));
        return Some(Wrong::Foreign { answer, meant: Some("set") });
    }
    let in_place = IN_PLACE.iter().filter(|(sections, ..)| sections.contains(&list));
    let mut in_place = in_place.filter(|(_, words, _)| words.iter().any(|word| is_it(word)));
    if let Some((.., line)) = in_place.next() {
        return Some(Wrong::Foreign { answer: format!("write {line}"), meant: Some(key_of(line)) });
    }
    let (_, answer) = ANSWERS.iter().find(|(known, _)| is_it(known))?;
    Some(match answer {
        Say(text) => Wrong::Foreign { answer: (*text).to_owned(), meant: None },
        Key(line) => match stray::elsewhere(section, key_of(line)) {
            None => Wrong::Foreign { answer: format!("write {line}"), meant: Some(key_of(line)) },
            Some(place) => Wrong::Foreign { answer: format!("write {line} {place}"), meant: None },
        },
    })
}

/// A replacement for a foreign key.
enum Suggestion {
    /// A key, perhaps with its value.
    Key(&'static str),
    /// A sentence.
    Say(&'static str),
}

use Suggestion::{Key, Say};

/// The key in a line.
fn key_of(line: &'static str) -> &'static str {
    line.split(' ').next().unwrap_or(line)
}

const PROXY: &str = "write a [[proxy]] with path and to";
const FASTCGI: &str = "write a [[fastcgi]] with path and to";
const CGI: &str = "write a [[cgi]] with path, and directory or program";
const NOT_SPOKEN: &str = "uwsgi and SCGI are not spoken: let the application speak HTTP, and write a \
                          [[proxy]] with path and to";
const TLS: &str = "write \"https://\" before an address of listen, and tls.certificate and tls.key";
const SITE: &str = "write a [[site]] with hosts";
const PATHS: &str = "there are no sections for paths: rules such as [[redirect]], [[header]], \
                     [[auth]], [[access]], [[alias]], [[proxy]] and [[fastcgi]] each \
                     have a path";
const RATE: &str = "write a [[rule]] with limits";
const SATISFY: &str = "every [[access]] and [[auth]] that fits must let a client in, which is satisfy \
                       all; there is no satisfy any";
const PASSWORDS: &str =
    "few passwords are checked at once, and those of a client one after another";
const BY_ITSELF: &str = "Forebay decides this by itself";
const TEXT: &str = "compress says how; what is compressed follows from its media type";
const CHARSET: &str = "text is sent as UTF-8; types says what else files are, by their ending";
const ONE_PAGE: &str = "write try_files = [\"$path\", \"/index.html\"]";
const ERRORS: &str = "errors go to standard error, which the service manager keeps";
const ACME: &str = "certificates are got by tls.acme = true in the site, and [acme] says from whom";
const HTTP2: &str =
    "every listener speaks HTTP/2 and HTTP/1; limits.streams = 0 leaves HTTP/1 only";
const NO_QUIC: &str = "HTTP/2 and HTTP/1 are spoken";
const NOT_KEPT: &str = "answers of applications are not kept";
const PASSED_ON: &str =
    "write [[tcp]] for connections that are passed on as they are; UDP is not passed on";
const AMBIGUOUS: &str = "write ambiguous = \"pass\" in a [[proxy]] or a [[fastcgi]]";
const ONE_CLIENT: &str =
    "write connection_auth in a [[proxy]]; its default \"bind\" is what ntlm does in nginx";
const BUFFERING: &str =
    "write buffer_bytes in a [[proxy]] or a [[fastcgi]]; it is 0 unless it is written";
const ENTRY_POINTS: &str = "write listen, or a [[listener]] for each";
const BALANCE: &str = "write balance in a [[proxy]]";
const FOREGROUND: &str = "the server stays in the foreground, and the service manager knows it";

/// Words that mean a certain key in certain sections.
const IN_PLACE: &[(&[&str], &[&str], &str)] = &[
    (RULES, &["from", "source", "src", "match", "url", "uri", "location", "prefix"], "path"),
    (&["redirect", "rewrite"], &["target", "destination", "dest", "replacement"], "to"),
    (&["redirect"], &["code", "permanent", "temporary"], "status"),
    (
        &["header"],
        &["name", "value", "add", "field", "fields", "append"],
        "set = { \"X-Frame-Options\" = \"DENY\" }",
    ),
    (&["header"], &["unset", "delete", "hide"], "remove"),
    (&["header"], &["mime", "content_type", "media_type"], "type"),
    (&["auth"], &["user", "username", "password", "passwords"], "users"),
    (
        &["auth"],
        &["user_file", "users_file", "userfile", "password_file", "passwd_file", "htpasswd"],
        "file",
    ),
    (&["access"], &["from", "ip", "ips", "clients", "address", "network"], "allow"),
    (&["access", "auth"], &["url", "uri", "location", "prefix"], "path"),
    (&["alias"], &["target", "destination", "dest", "dir", "directory", "root"], "to"),
    (&["fastcgi"], &["fastcgi_pass", "server", "servers", "socket", "upstream", "upstreams"], "to"),
    (
        &["fastcgi"],
        &["env", "fastcgi_param", "param", "params"],
        "set = { APP_ENV = \"production\" }",
    ),
    (&["fastcgi"], &["fallback", "front_controller", "try_files"], "try"),
    (&["cgi"], &["root", "dir", "to", "script_alias", "scriptalias"], "directory"),
    (&["cgi"], &["script", "exec", "command", "script_filename"], "program"),
    (&["cgi"], &["env", "setenv", "param", "params"], "set = { APP_ENV = \"production\" }"),
    (&["cgi"], &["max_children", "processes", "workers"], "in_flight"),
    (&["cgi"], &["timeout", "time"], "limits.time"),
    (&["fastcgi"], &["fastcgi_index"], "index"),
    (&["fastcgi"], &["fastcgi_split_path_info", "split", "split_path"], "extension"),
    (&["fastcgi"], &["document_root", "script_filename"], "root"),
    (&["fastcgi"], &["max_children", "max_connections", "max_conns", "workers"], "in_flight"),
    (&["fastcgi"], &["fastcgi_read_timeout", "read_timeout", "timeout"], "timeouts.head"),
    (&["proxy"], &["from", "location", "match", "uri", "url"], "path"),
    (
        &["proxy"],
        &[
            "backend",
            "backends",
            "proxy_pass",
            "reverse_proxy",
            "server",
            "servers",
            "target",
            "upstream",
            "upstreams",
        ],
        "to",
    ),
    (
        &["proxy"],
        &["header", "headers", "proxy_set_header", "set_header"],
        "set = { \"X-A\" = \"b\" }",
    ),
    (&["proxy"], &["delete", "hide", "unset"], "remove"),
    (&["proxy"], &["host_header", "preserve_host"], "host"),
    (&["proxy"], &["strip_path", "strip_prefix"], "strip"),
    (&["proxy"], &["algorithm", "lb_method", "lb_policy", "policy", "strategy"], "balance"),
    (&["proxy"], &["max_connections", "max_conns", "maxconn"], "in_flight"),
    (
        &["proxy", "fastcgi"],
        &["client_max_body_size", "max_body", "max_size", "request_body"],
        "body_bytes",
    ),
    (
        &["proxy", "fastcgi"],
        &["abortonclose", "ignore_client_abort", "proxy_ignore_client_abort"],
        "abort_on_close",
    ),
    (&["proxy", "fastcgi"], &["maxqueue", "max_queue"], "queue.requests"),
    (&["proxy", "fastcgi"], &["queue_timeout", "timeout_queue"], "queue.time"),
    (
        &["proxy", "fastcgi"],
        &["allow_encoded_slash", "allow_encoded_slashes", "allowencodedslashes"],
        "ambiguous = \"pass\"",
    ),
    (&["proxy"], &["ntlm"], "connection_auth"),
    (&["proxy", "fastcgi"], &["fastcgi_buffering", "proxy_buffering"], "buffer_bytes"),
    (&["proxy"], &["proxy_next_upstream_tries", "retry", "tries"], "retries"),
    (&["proxy"], &["websocket", "websockets", "ws"], "upgrade"),
    (&["proxy"], &["health", "health_check", "healthcheck"], "check.path"),
    (&["proxy"], &["connect_timeout", "proxy_connect_timeout"], "timeouts.connect"),
    (&["proxy"], &["proxy_read_timeout", "read_timeout", "timeout"], "timeouts.head"),
    (&["rule"], &["from", "ip", "ips", "source", "address", "addr", "network"], "client"),
    (&["rule"], &["host", "hosts", "vhost", "server_name", "domain"], "site"),
    (&["rule"], &["url", "uri", "location", "prefix"], "path"),
    (&["rule"], &["port", "listen"], "local"),
    (&["rule"], &["limit", "limits", "throttle"], "requests = { rate = \"60/s\" }"),
    (&["rule"], &["extension", "ext", "types"], "file_type"),
    (&["class"], &["weight"], "share"),
    (&["listener"], &["address", "addr", "socket"], "listen"),
    (&["log", "site.log"], &["file", "path", "output"], "access"),
    (&["log", "site.log"], &["conditions", "filter", "when"], "if"),
    (&["tls", "site.tls"], &["cert", "certs", "chain", "fullchain"], "certificate"),
    (&["tls", "site.tls"], &["private_key", "key_file"], "key"),
    (&["admin"], &["address", "addr", "bind", "port"], "listen"),
    (&["timeouts"], &["keepalive", "keep_alive"], "idle"),
    (&["timeouts"], &["shutdown", "stop", "graceful"], "drain"),
    (&["cache"], &["size", "memory", "max_size"], "bytes"),
];

/// Rules of a site that have a pattern and a target.
const RULES: &[&str] = &["redirect", "rewrite", "header", "alias", "work"];

const ANSWERS: &[(&str, Suggestion)] = &[
    ("location", Say(PATHS)),
    ("directory", Say(PATHS)),
    ("handle", Say(PATHS)),
    ("handle_path", Say(PATHS)),
    ("route", Say(PATHS)),
    ("server", Say(SITE)),
    ("http", Say(SITE)),
    ("virtualhost", Say(SITE)),
    ("server_name", Key("hosts")),
    ("servername", Key("hosts")),
    ("serveralias", Key("hosts")),
    ("default_server", Say("a site without hosts answers for every host that no other site has")),
    ("documentroot", Key("root")),
    ("file_server", Key("root")),
    ("directoryindex", Key("index")),
    ("autoindex", Key("listing = true")),
    ("browse", Key("listing = true")),
    ("proxy_pass", Say(PROXY)),
    ("proxypass", Say(PROXY)),
    ("reverse_proxy", Say(PROXY)),
    ("upstream", Say("write a [[proxy]]; its to may name several")),
    ("fastcgi_pass", Say(FASTCGI)),
    ("php_fastcgi", Say(FASTCGI)),
    ("scriptalias", Say(CGI)),
    ("cgi_pass", Say(CGI)),
    ("uwsgi_pass", Say(NOT_SPOKEN)),
    ("scgi_pass", Say(NOT_SPOKEN)),
    ("proxy_set_header", Say("write set in a [[proxy]]")),
    (
        "proxy_redirect",
        Say(
            "redirects of an application lead back by themselves; redirects in a [[proxy]] says so",
        ),
    ),
    ("ssl", Say(TLS)),
    ("tls", Say(TLS)),
    ("sslengine", Say(TLS)),
    ("ssl_certificate", Key("tls.certificate")),
    ("sslcertificatefile", Key("tls.certificate")),
    ("ssl_certificate_key", Key("tls.key")),
    ("sslcertificatekeyfile", Key("tls.key")),
    ("ssl_client_certificate", Key("tls.client_ca")),
    ("sslcacertificatefile", Key("tls.client_ca")),
    ("ssl_verify_client", Key("tls.client")),
    ("sslverifyclient", Key("tls.client")),
    ("ssl_crl", Key("tls.client_crl")),
    ("sslcarevocationfile", Key("tls.client_crl")),
    ("client_auth", Say("write tls.client and tls.client_ca")),
    ("return", Say("write a [[redirect]] with path, to and status")),
    ("redir", Say("write a [[redirect]] with path, to and status")),
    ("rewriterule", Say("write a [[rewrite]] or a [[redirect]]")),
    ("error_page", Say("write [errors], a line for each status")),
    ("errordocument", Say("write [errors], a line for each status")),
    ("handle_errors", Say("write [errors], a line for each status")),
    ("add_header", Say("write a [[header]]")),
    ("expires", Say("write cache_control, or a [[header]] for some paths")),
    ("gzip", Key("compress")),
    ("brotli", Key("compress")),
    ("encode", Key("compress")),
    ("gzip_static", Key("precompressed")),
    ("brotli_static", Key("precompressed")),
    ("access_log", Key("log.access")),
    ("customlog", Key("log.access")),
    ("log_format", Key("log.format")),
    ("error_log", Say(ERRORS)),
    ("errorlog", Say(ERRORS)),
    ("allow", Say("write an [[access]] with a path")),
    ("deny", Say("write an [[access]] with a path")),
    ("require", Say("write an [[access]] or an [[auth]] with a path")),
    ("auth_basic", Say("write an [[auth]] with a path")),
    ("auth_basic_user_file", Say("write an [[auth]] with a file")),
    ("basic_auth", Say("write an [[auth]] with users")),
    ("basicauth", Say("write an [[auth]] with users")),
    ("satisfy", Say(SATISFY)),
    ("auth_request", Say("write a [[forward_auth]] with to and uri")),
    ("auth_delay", Say(PASSWORDS)),
    (
        "internal",
        Say("pages of errors are files like others; an [[access]] with deny closes paths"),
    ),
    ("valid_referers", Say("nothing goes by Referer; a [[rule]] with header can refuse requests")),
    (
        "limit_except",
        Say("files are answered to GET and HEAD alone; a [[rule]] with method refuses others"),
    ),
    ("limit_rate", Say("no answer is slowed down; a [[rule]] bounds requests, not bytes")),
    ("if", Say("there are no conditions: each rule says which paths it is for")),
    ("set", Say("there are no variables of your own")),
    ("map", Say("there are no variables of your own")),
    ("geo", Say("there are no variables of your own; a [[rule]] with client is for addresses")),
    ("resolver", Say("names of applications are looked up as the machine does it")),
    ("proxy_cache", Say(NOT_KEPT)),
    ("proxy_cache_path", Say(NOT_KEPT)),
    ("proxy_cache_valid", Say(NOT_KEPT)),
    ("fastcgi_cache", Say(NOT_KEPT)),
    ("fastcgi_cache_path", Say(NOT_KEPT)),
    ("fastcgi_cache_valid", Say(NOT_KEPT)),
    ("stream", Say(PASSED_ON)),
    ("mode", Say(PASSED_ON)),
    (
        "weight",
        Say(
            "write weights in a [[proxy]] or a [[fastcgi]], by addresses: { \"http://10.0.0.1:9000\" = 9 }",
        ),
    ),
    ("backup", Say("write backup in a [[proxy]] or a [[fastcgi]], with addresses of its own")),
    ("ntlm", Say(ONE_CLIENT)),
    ("allow_encoded_slash", Say(AMBIGUOUS)),
    ("allow_encoded_slashes", Say(AMBIGUOUS)),
    ("allowencodedslashes", Say(AMBIGUOUS)),
    ("proxy_buffering", Say(BUFFERING)),
    ("fastcgi_buffering", Say(BUFFERING)),
    ("entrypoints", Say(ENTRY_POINTS)),
    ("entry_points", Say(ENTRY_POINTS)),
    ("ip_hash", Say(BALANCE)),
    ("least_conn", Say(BALANCE)),
    ("lb_policy", Say(BALANCE)),
    ("frontend", Say("write a [[listener]] with listen, and a [[site]] with hosts")),
    ("backend", Say("write a [[proxy]]; its to may name several")),
    ("default_backend", Say("write a [[proxy]] with path = \"/\" and to")),
    ("use_backend", Say("write a [[proxy]] with path and to for each")),
    ("acl", Say("there are no conditions: each rule says which paths it is for")),
    ("defaults", Say("what stands before the first section is for all")),
    ("global", Say("what stands before the first section is for all")),
    ("events", Say(BY_ITSELF)),
    ("stick_table", Say(RATE)),
    ("maxconn", Key("limits.connections")),
    ("templates", Say("files are sent as they are")),
    ("sub_filter", Say("files are sent as they are")),
    ("ssi", Say("files are sent as they are")),
    ("if_modified_since", Say("conditional requests are always answered")),
    ("open_file_cache", Key("cache.bytes")),
    ("disable_symlinks", Key("links")),
    ("tcp_nopush", Say(BY_ITSELF)),
    ("tcp_nodelay", Say(BY_ITSELF)),
    ("aio", Say(BY_ITSELF)),
    ("directio", Say(BY_ITSELF)),
    ("keepalive_requests", Say("a connection is kept for as long as timeouts.idle says")),
    ("send_timeout", Key("timeouts.send_window")),
    ("reset_timedout_connection", Say(BY_ITSELF)),
    ("large_client_header_buffers", Key("limits.head_bytes")),
    ("client_header_buffer_size", Key("limits.head_bytes")),
    ("worker_rlimit_nofile", Say("the limit of open files is raised as far as the system allows")),
    (
        "merge_slashes",
        Say(
            "slashes are merged; ambiguous = \"pass\" of a [[proxy]] passes them as they were sent",
        ),
    ),
    ("port_in_redirect", Say("redirects to a path have no host and no port")),
    ("server_name_in_redirect", Say("redirects to a path have no host and no port")),
    ("absolute_redirect", Say("redirects to a path have no host and no port")),
    ("ssl_protocols", Say("TLS 1.3 and 1.2 are spoken")),
    ("ssl_ciphers", Say("the suites of TLS 1.3 and 1.2 are chosen by Forebay")),
    ("ssl_prefer_server_ciphers", Say("the suites of TLS 1.3 and 1.2 are chosen by Forebay")),
    ("ssl_session_cache", Say("sessions are resumed by tickets")),
    ("ssl_session_timeout", Say("sessions are resumed by tickets")),
    ("ssl_session_tickets", Say("sessions are resumed by tickets")),
    ("limit_req", Say(RATE)),
    ("limit_req_zone", Say(RATE)),
    ("rate_limit", Say(RATE)),
    ("limit_conn", Say("write limits.connections_per_client, or a [[rule]] with limits")),
    (
        "client_max_body_size",
        Say(
            "write limits.body_bytes for what no application gets, and body_bytes in a [[proxy]] or [[fastcgi]]",
        ),
    ),
    ("keepalive_timeout", Key("timeouts.idle")),
    ("client_header_timeout", Key("timeouts.head")),
    ("client_body_timeout", Key("timeouts.body")),
    ("worker_processes", Key("workers")),
    ("worker_connections", Key("limits.connections")),
    ("set_real_ip_from", Key("trusted_proxies")),
    (
        "real_ip_header",
        Say(
            "write trusted_proxies, X-Forwarded-For is read from those; trusted_header names another field",
        ),
    ),
    ("stub_status", Key("admin.listen")),
    ("server_tokens", Key("server_header = false")),
    ("import", Key("include")),
    ("sendfile", Say("files are sent by the kernel where that is faster")),
    ("bind", Key("listen")),
    ("port", Key("listen")),
    ("vhost", Key("hosts")),
    ("vhosts", Key("hosts")),
    ("virtual_host", Key("hosts")),
    ("domain", Key("hosts")),
    ("domains", Key("hosts")),
    ("document_root", Key("root")),
    ("doc_root", Key("root")),
    ("docroot", Key("root")),
    ("webroot", Key("root")),
    ("dir", Key("root")),
    ("public", Key("root")),
    ("threads", Key("workers")),
    ("mime", Key("types")),
    ("mime_types", Key("types")),
    ("addtype", Key("types")),
    ("default_type", Key("types")),
    ("cert", Key("tls.certificate")),
    ("https", Say(TLS)),
    ("gzip_types", Say(TEXT)),
    ("gzip_min_length", Say(TEXT)),
    ("gzip_comp_level", Say(TEXT)),
    ("gzip_vary", Say(TEXT)),
    ("gzip_proxied", Say(TEXT)),
    ("charset", Say(CHARSET)),
    ("max_age", Key("cache_control")),
    ("cors", Say("write a [[header]] with set")),
    ("spa", Say(ONE_PAGE)),
    ("fallback", Say(ONE_PAGE)),
    ("single_page", Say(ONE_PAGE)),
    ("fallbackresource", Say(ONE_PAGE)),
    ("htpasswd", Say("write an [[auth]] with a file")),
    ("user_file", Say("write an [[auth]] with a file")),
    ("password_file", Say("write an [[auth]] with a file")),
    ("authuserfile", Say("write an [[auth]] with a file")),
    ("password", Say("write an [[auth]] with users")),
    ("passwords", Say("write an [[auth]] with users")),
    ("log_level", Say(ERRORS)),
    ("loglevel", Say(ERRORS)),
    ("letsencrypt", Say(ACME)),
    ("email", Say("how an authority reaches you: acme.contact = [\"mailto:admin@shop.example\"]")),
    ("daemon", Say(FOREGROUND)),
    ("pid", Say(FOREGROUND)),
    ("pidfile", Say(FOREGROUND)),
    ("http2", Say(HTTP2)),
    ("h2", Say(HTTP2)),
    ("http3", Say(NO_QUIC)),
    ("quic", Say(NO_QUIC)),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// An advice for a key that exists would never be shown, and of two for the same key one is lost.
    #[test]
    fn no_answer_is_for_a_key_of_our_own() {
        for (place, (key, _)) in ANSWERS.iter().enumerate() {
            assert_eq!(stray::home(key), None, "{key}");
            assert!(ANSWERS[..place].iter().all(|(other, _)| other != key), "{key}");
        }
        for (sections, words, line) in IN_PLACE {
            for section in *sections {
                let keys = stray::below(section);
                assert!(keys.iter().any(|key| key == key_of(line)), "{section}.{line}");
                let ours = words.iter().find(|word| keys.iter().any(|key| key == *word));
                assert_eq!(ours, None, "{section}");
                let of_section =
                    IN_PLACE.iter().filter(|(sections, ..)| sections.contains(section));
                let mut all: Vec<_> = of_section.flat_map(|(_, words, _)| words.iter()).collect();
                all.sort();
                assert!(all.is_sorted_by(|one, next| one < next), "{section}: {all:?}");
            }
        }
    }

    #[test]
    fn what_is_to_be_written_can_be_written() {
        let keys = stray::below("");
        for (word, answer) in ANSWERS {
            if let Key(line) = answer {
                assert!(keys.iter().any(|key| key == key_of(line)), "{word}: {line}");
            }
        }
    }

    #[test]
    fn an_answer_says_where_if_it_is_elsewhere() {
        for (section, key, expected) in [
            ("", "vhost", "write hosts"),
            ("site", "vhost", "write hosts"),
            ("site", "keepalive_timeout", "write timeouts.idle before the first section"),
            ("redirect", "docroot", "write root in [[site]] or before the first section"),
            ("site", "port", "write listen in [[listener]] or before the first section"),
            ("site.redirect", "from", "write path"),
            ("site.auth", "user_file", "write file"),
            ("", "user_file", "write an [[auth]] with a file"),
            ("rule", "Host", "write site"),
            ("access", "from", "write allow"),
        ] {
            let said = wrong(section, key).map(|wrong| wrong.to_string());
            assert_eq!(said, Some(format!("unknown key: {expected}")), "{section} {key}");
        }
        assert!(wrong("", "from").is_none());
    }
}
