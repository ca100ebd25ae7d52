//! Keys that people know from other servers, and what to write here.

/// What stands for a key of nginx, Apache or Caddy, or why nothing does.
pub(super) fn answer(key: &str) -> Option<&'static str> {
    let (_, answer) = ANSWERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(key))?;
    Some(answer)
}

const FILES_ONLY: &str = "Forebay serves files and hands no request on to another server";
const TLS: &str = "write \"https://\" before an address of listen, and tls.certificate and tls.key";
const SITE: &str = "write a [[site]] with hosts";
const PATHS: &str = "there are no sections for paths: rules such as [[redirect]], [[header]], \
                     [[auth]] and [[access]] each have a path";
const RATE: &str = "write a [[rule]] with limits";

const ANSWERS: &[(&str, &str)] = &[
    ("alias", "another directory beneath a path is a site of its own, or a link in the root"),
    ("location", PATHS),
    ("directory", PATHS),
    ("handle", PATHS),
    ("handle_path", PATHS),
    ("route", PATHS),
    ("server", SITE),
    ("http", SITE),
    ("virtualhost", SITE),
    ("server_name", "write hosts"),
    ("servername", "write hosts"),
    ("serveralias", "write hosts"),
    ("documentroot", "write root"),
    ("file_server", "write root"),
    ("directoryindex", "write index"),
    ("autoindex", "write listing = true"),
    ("browse", "write listing = true"),
    ("proxy_pass", FILES_ONLY),
    ("proxypass", FILES_ONLY),
    ("reverse_proxy", FILES_ONLY),
    ("upstream", FILES_ONLY),
    ("fastcgi_pass", FILES_ONLY),
    ("php_fastcgi", FILES_ONLY),
    ("uwsgi_pass", FILES_ONLY),
    ("scgi_pass", FILES_ONLY),
    ("proxy_set_header", FILES_ONLY),
    ("ssl", TLS),
    ("tls", TLS),
    ("sslengine", TLS),
    ("ssl_certificate", "write tls.certificate"),
    ("sslcertificatefile", "write tls.certificate"),
    ("ssl_certificate_key", "write tls.key"),
    ("sslcertificatekeyfile", "write tls.key"),
    ("return", "write a [[redirect]] with path, to and status"),
    ("redir", "write a [[redirect]] with path, to and status"),
    ("rewriterule", "write a [[rewrite]] or a [[redirect]]"),
    ("error_page", "write [errors], a line for each status"),
    ("errordocument", "write [errors], a line for each status"),
    ("handle_errors", "write [errors], a line for each status"),
    ("add_header", "write a [[header]]"),
    ("expires", "write cache_control, or a [[header]] for some paths"),
    ("gzip", "write compress"),
    ("brotli", "write compress"),
    ("encode", "write compress"),
    ("gzip_static", "write precompressed"),
    ("brotli_static", "write precompressed"),
    ("access_log", "write log.access"),
    ("customlog", "write log.access"),
    ("log_format", "write log.format"),
    ("error_log", "errors go to standard error, which the service manager keeps"),
    ("errorlog", "errors go to standard error, which the service manager keeps"),
    ("allow", "write an [[access]] with a path"),
    ("deny", "write an [[access]] with a path"),
    ("require", "write an [[access]] or an [[auth]] with a path"),
    ("auth_basic", "write an [[auth]] with a path"),
    ("auth_basic_user_file", "write an [[auth]] with a file"),
    ("basic_auth", "write an [[auth]] with users"),
    ("basicauth", "write an [[auth]] with users"),
    ("limit_req", RATE),
    ("limit_req_zone", RATE),
    ("rate_limit", RATE),
    ("limit_conn", "write limits.connections_per_client, or a [[rule]] with limits"),
    ("client_max_body_size", "write limits.body_bytes"),
    ("keepalive_timeout", "write timeouts.idle"),
    ("client_header_timeout", "write timeouts.head"),
    ("client_body_timeout", "write timeouts.body"),
    ("worker_processes", "write workers"),
    ("worker_connections", "write limits.connections"),
    ("set_real_ip_from", "write trusted_proxies"),
    ("real_ip_header", "write trusted_proxies, X-Forwarded-For is read from those"),
    ("stub_status", "write admin.listen"),
    ("server_tokens", "write server_header = false"),
    ("include", "a configuration is one file"),
    ("sendfile", "files are sent by the kernel where that is faster"),
    ("bind", "write listen"),
    ("port", "write listen, such as \":8080\""),
];

#[cfg(test)]
mod tests {
    use super::super::draft;
    use super::*;

    /// An answer for a key that there is would never be given, and one there is twice is lost.
    #[test]
    fn no_answer_is_for_a_key_of_our_own() {
        for (place, (key, _)) in ANSWERS.iter().enumerate() {
            assert_eq!(draft::home(key), None, "{key}");
            assert!(ANSWERS[..place].iter().all(|(other, _)| other != key), "{key}");
        }
    }
}
