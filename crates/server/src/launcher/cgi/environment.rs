//! The environment of a CGI program (RFC 3875 §4.1). Pure.
//!
//! The server describes the request; the launcher knows the program's path, its configured
//! variables and PATH. A server that an attacker has taken over cannot inject code into a program
//! (`LD_PRELOAD`, `PERL5OPT`, `BASH_ENV`): names that are not in the list, and do not begin with
//! `HTTP_`, are dropped.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The directories in which programs without a path are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variables that a request sets. An empty one is left out, but for QUERY_STRING, which is always set.
const OF_REQUEST: [&[u8]; 19] = [
    b"AUTH_TYPE",
    b"CONTENT_LENGTH",
    b"CONTENT_TYPE",
    b"DOCUMENT_ROOT",
    b"GATEWAY_INTERFACE",
    b"HTTPS",
    b"QUERY_STRING",
    b"REDIRECT_STATUS",
    b"REMOTE_ADDR",
    b"REMOTE_PORT",
    b"REMOTE_USER",
    b"REQUEST_METHOD",
    b"REQUEST_SCHEME",
    b"REQUEST_URI",
    b"SERVER_ADDR",
    b"SERVER_NAME",
    b"SERVER_PORT",
    b"SERVER_PROTOCOL",
    b"SERVER_SOFTWARE",
];

/// The parts of a request's path, and the file of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramPath<'p> {
    /// The path of the route, and the part of the path after it that names the program.
    pub name: (&'p [u8], &'p [u8]),
    /// The rest of the path, after the program's name.
    pub path_info: &'p [u8],
    /// The path of the program's file.
    pub file: &'p Path,
}

/// Whether a request may set this variable.
fn may_set(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    match name.strip_prefix(b"HTTP_") {
        // libraries take `HTTP_PROXY` for the proxy of their own requests
        Some(rest) => !rest.is_empty() && rest != b"PROXY" && rest.iter().all(is_letter),
        None => OF_REQUEST.contains(&name),
    }
}

/// All variables of a program's environment. A variable with a zero byte is left out, because it
/// cannot be expressed.
pub fn of(
    params: &[(&[u8], &[u8])],
    program: &ProgramPath<'_>,
    set: &[(Box<str>, Box<str>)],
) -> Vec<CString> {
    let is_set = |name: &[u8]| set.iter().any(|(other, _)| other.as_bytes() == name);
    let mut environment = Vec::with_capacity(params.len() + set.len() + 5);
    let mut add = |name: &[u8], value: &[u8]| {
        environment.extend(CString::new([name, b"=", value].concat()));
    };
    for (at, (name, value)) in params.iter().enumerate() {
        let is_again = params[..at].iter().any(|(other, _)| other == name);
        let is_said = !value.is_empty() || *name == b"QUERY_STRING" || name.starts_with(b"HTTP_");
        if may_set(name) && is_said && !is_again && !is_set(name) {
            add(name, value);
        }
    }
    let ProgramPath { name: (route, own), path_info, file } = program;
    let name = [*route, own].concat();
    let file = OsStr::as_bytes(file.as_os_str());
    let of_program: [(&[u8], &[u8]); 4] = [
        (b"PATH", PATH.as_bytes()),
        (b"SCRIPT_NAME", &name),
        (b"SCRIPT_FILENAME", file),
        (b"PATH_INFO", path_info),
    ];
    for (name, value) in of_program {
        // never PATH_TRANSLATED: it would not be a file of the site, and programs would open it
        if !is_set(name) && (!value.is_empty() || name != b"PATH_INFO") {
            add(name, value);
        }
    }
    set.iter().for_each(|(name, value)| add(name.as_bytes(), value.as_bytes()));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(params: &[(&str, &str)], set: &[(&str, &str)]) -> Vec<String> {
        let params: Vec<_> =
            params.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let program = ProgramPath {
            name: (b"/cgi-bin", b"/a/b.cgi"),
            path_info: b"/c",
            file: Path::new("/usr/lib/cgi-bin/a/b.cgi"),
        };
        let set: Vec<_> =
            set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let all = of(&params, &program, &set);
        all.into_iter().map(|one| one.into_string().unwrap()).collect()
    }

    const OWN: [&str; 4] = [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "SCRIPT_NAME=/cgi-bin/a/b.cgi",
        "SCRIPT_FILENAME=/usr/lib/cgi-bin/a/b.cgi",
        "PATH_INFO=/c",
    ];

    #[test]
    fn a_program_is_told_of_its_request() {
        let params = [
            ("REQUEST_METHOD", "GET"),
            ("QUERY_STRING", ""),
            ("CONTENT_LENGTH", ""),
            ("HTTP_X_A", ""),
            ("HTTPS", "on"),
        ];
        let expected =
            [&["REQUEST_METHOD=GET", "QUERY_STRING=", "HTTP_X_A=", "HTTPS=on"][..], &OWN].concat();
        assert_eq!(told(&params, &[]), expected);
    }

    #[test]
    fn a_request_sets_nothing_else() {
        let params = [
            ("HTTP_PROXY", "http://evil/"),
            ("LD_PRELOAD", "/tmp/evil.so"),
            ("PATH", "/tmp"),
            ("SCRIPT_FILENAME", "/bin/sh"),
            ("SCRIPT_NAME", "/x"),
            ("PATH_INFO", "/x"),
            ("PATH_TRANSLATED", "/etc/passwd"),
            ("HTTP_a", "b"),
            ("HTTP_", "b"),
            ("HTTP_A=B", "b"),
            ("HTTP_BASH_FUNC_x%%", "() { :; }"),
            ("BASH_ENV", "/tmp/evil"),
            ("", "b"),
            ("HTTP_A", "b\0LD_PRELOAD=/tmp/evil.so"),
        ];
        assert_eq!(told(&params, &[]), OWN);
    }

    #[test]
    fn what_the_file_sets_stands_alone() {
        let set = [("PATH", "/opt"), ("REMOTE_USER", "git"), ("LD_PRELOAD", "/opt/ours.so")];
        let all = told(&[("REMOTE_USER", "alice"), ("HTTP_A", "b"), ("HTTP_A", "c")], &set);
        let expected = ["HTTP_A=b", OWN[1], OWN[2], OWN[3], "PATH=/opt", "REMOTE_USER=git"];
        assert_eq!(all[..6], expected);
        assert_eq!(all[6..], ["LD_PRELOAD=/opt/ours.so"]);
    }
}
