//! Remarks on applications: those that cannot be asked, and threads that wait for them.

use crate::config_files::Folder;
use std::fs;

#[test]
fn applications_that_cannot_be_asked_are_remarked() {
    let folder = Folder::new();
    let socket = folder.0.join("app.sock");
    let held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::write(folder.0.join("file"), "").unwrap();
    let remarks = |text: &str| folder.remarks(&format!("root = \"site\"\n{text}\n"));
    assert_eq!(
        remarks("[[proxy]]\npath = \"/\"\nto = [\"unix:app.sock\", \"http://10.0.0.1\"]"),
        [""; 0]
    );
    let text = "[[proxy]]\npath = \"/a\"\nto = [\"unix:app.sock\", \"unix:none.sock\"]\n\
                [[proxy]]\npath = \"/b\"\nto = \"unix:none.sock\"\n\
                [[fastcgi]]\nto = \"unix:file\"\ntry = \"/index.php\"";
    assert_eq!(
        remarks(text),
        [
            "DIR/forebay.toml:4:24: proxy.to: the socket \"DIR/none.sock\" cannot be used: No such file or \
             directory (os error 2); until it can, requests get 502",
            "DIR/forebay.toml:9:6: fastcgi.to: the socket \"DIR/file\" cannot be used: it is no socket; until \
             it can, requests get 502",
            "DIR/forebay.toml:10:7: fastcgi.try: cannot read the file \"DIR/site/index.php\": No such file or \
             directory (os error 2)",
        ]
    );
    drop(held);
    for (listen, to, is_itself) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
        (":8080", "http://127.0.0.1:8080", true),
        (":8080", "http://[::1]:8080", true),
        (":8080", "http://localhost:8080", true),
        ("0.0.0.0:8080", "http://127.0.0.2:8080", true),
        ("127.0.0.1:8080", "http://127.0.0.1:8081", false),
        (":8080", "http://192.0.2.1:8080", false),
        ("192.0.2.1:8080", "http://127.0.0.1:8080", false),
    ] {
        let text = format!("[[proxy]]\npath = \"/\"\nto = \"{to}\"");
        let remarks =
            folder.remarks(&format!("listen = [\"{listen}\"]\nroot = \"site\"\n{text}\n"));
        let found = to.strip_prefix("http://").unwrap();
        let expected = format!(
            "DIR/forebay.toml:5:6: proxy.to: this server listens at {found}, and would ask itself for ever"
        );
        let expected = if is_itself { vec![expected] } else { Vec::new() };
        assert_eq!(remarks, expected, "{listen} {to}");
    }
}

#[test]
fn tunnels_that_keep_threads_are_remarked() {
    let folder = Folder::new();
    let remarks = |engine: &str, upgrade: bool| {
        folder.remarks(&format!(
            "engine = \"{engine}\"\nroot = \"site\"\n[[proxy]]\npath = \"/a%20b\"\nto = \"http://10.0.0.1\"\n\
             upgrade = {upgrade}\n"
        ))
    };
    let encoded = "DIR/forebay.toml:4:8: proxy.path: ";
    for engine in ["threads", "pool"] {
        let found = remarks(engine, true);
        assert!(found[0].starts_with(encoded), "{found:?}");
        let expected = format!(
            "DIR/forebay.toml:6:11: proxy.upgrade: with engine = \"{engine}\" each WebSocket keeps a thread for \
             itself, and those beyond tunnel_threads get 503; the engine event keeps none, and upgrade = false \
             refuses them"
        );
        assert_eq!(found[1..], [expected]);
        assert_eq!(remarks(engine, false).len(), 1);
    }
    for engine in ["event", "fibers", "pipeline"] {
        assert_eq!(remarks(engine, true).len(), 1);
    }
}

#[test]
fn requests_that_wait_for_others_of_their_rule_may_keep_all_threads() {
    let folder = Folder::new();
    let remarks = |engine: &str, more: &str| {
        folder.remarks(&format!(
            "engine = \"{engine}\"\n{more}\nroot = \"site\"\n[[rule]]\npath = \"/a\"\n\
             in_flight.most = 2\nin_flight.over = \"queue\"\n"
        ))
    };
    for engine in ["threads", "pool"] {
        let expected = |requests: u32| {
            format!(
                "DIR/forebay.toml:7:18: rule.in_flight.over: with engine = \"{engine}\" each request that waits \
                 keeps a thread, of which {requests} and those under way may take all there are; the engine \
                 event keeps none, and a smaller in_flight.queue leaves some for others"
            )
        };
        assert_eq!(remarks(engine, ""), [expected(100)]);
        assert_eq!(remarks(engine, "workers = 102"), [expected(100)]);
        assert_eq!(remarks(engine, "workers = 103"), [""; 0]);
    }
    for engine in ["event", "fibers", "pipeline"] {
        assert_eq!(remarks(engine, ""), [""; 0]);
    }
}

#[test]
fn what_means_nothing_in_a_route_is_remarked() {
    let folder = Folder::new();
    let route = |keys: &str| {
        folder.remarks(&format!(
            "root = \"site\"\n[[proxy]]\npath = \"/app\"\nto = \"http://10.0.0.1:9\"\n{keys}\n"
        ))
    };
    for (keys, expected) in [
        ("retries = 0\nretry_budget = \"10%\"", "retry_budget: means nothing beside retries = 0"),
        (
            "proxy_protocol = \"v1\"\nkeep_alive.connections = 4",
            "keep_alive.connections: means nothing beside proxy_protocol",
        ),
        (
            "connection_auth = \"bind\"\nkeep_alive.connections = 0",
            "connection_auth: beside keep_alive.connections = 0 each request has a connection of its own: a \
             sign-in that takes several, such as NTLM, never comes to its end",
        ),
        (
            "proxy_protocol = \"v2\"\nconnection_auth = \"bind\"",
            "connection_auth: beside proxy_protocol each request has a connection of its own: a sign-in that \
             takes several, such as NTLM, never comes to its end",
        ),
        (
            "http2 = true\nkeep_alive.connections = 0",
            "http2: beside keep_alive.connections = 0 each request has a connection of its own: HTTP/2 begins anew \
             with each, and costs more than HTTP/1.1",
        ),
        ("http2_connections = 2", "http2_connections: means nothing beside http2 = false"),
        (
            "accel_redirect = [\"/app\"]",
            "accel_redirect: has the path of its own route in it: clients get 404 for all that the \
             application has",
        ),
    ] {
        let remarks = route(keys);
        let is_said = remarks.len() == 1 && remarks[0].ends_with(expected);
        assert!(is_said, "{keys}: {remarks:?}");
    }
    let scripts = folder.remarks(
        "root = \"site\"\n[[fastcgi]]\nto = \"10.0.0.1:9\"\nset = { CONTENT_LENGTH = \"1\" }\n",
    );
    assert!(scripts.len() == 1 && scripts[0].contains("sets CONTENT_LENGTH"), "{scripts:?}");
    for (key, value) in [
        ("extension", "\".php\""),
        ("index", "\"index.php\""),
        ("try", "\"/index.php\""),
        ("scripts", "[\"/index.php\"]"),
    ] {
        let text = format!(
            "root = \"site\"\n[[fastcgi]]\nto = \"10.0.0.1:9\"\ncheck_local = false\n{key} = {value}\n"
        );
        let found = folder.remarks(&text);
        let expected = "means nothing without check_local = true";
        let is_said = found.len() == 1 && found[0].contains(key) && found[0].ends_with(expected);
        assert!(is_said, "{key}: {found:?}");
    }
    for keys in [
        "retries = 0",
        "retry_budget = \"10%\"",
        "proxy_protocol = \"v1\"",
        "accel_redirect = [\"/app/x\"]",
        "keep_alive.connections = 0",
        "connection_auth = \"bind\"",
        "http2 = true\nhttp2_connections = 2\nkeep_alive.connections = 0",
        "connection_auth = \"request\"\nkeep_alive.connections = 0",
        "connection_auth = \"refuse\"\nproxy_protocol = \"v1\"",
    ] {
        assert!(route(keys).is_empty(), "{keys}");
    }
}
