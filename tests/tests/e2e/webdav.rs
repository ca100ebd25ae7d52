//! Apache's WebDAV behind the proxy, beneath a path of the site and through TLS: copies and moves of its
//! clients arrive.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

on_each_engine!(files_are_copied_and_moved, where_it_leads_elsewhere_nothing_is_copied);

/// An Apache whose WebDAV serves this folder's `dav`.
struct Apache {
    child: Child,
    folder: Folder,
    addr: SocketAddr,
}

impl Apache {
    fn start() -> Option<Apache> {
        let modules = "/usr/lib/apache2/modules";
        let there = fs::metadata(format!("{modules}/mod_dav_fs.so"));
        has(there.map_err(|_| "there is no apache2, see scripts/install"), "webdav.rs")?;
        let (folder, addr) = (Folder::new(), free_addr());
        for (name, content) in [("dav/a.txt", "a"), ("dav/b/c.txt", "c"), ("locks/none", "")] {
            folder.write(name, content);
        }
        for name in ["", "dav", "dav/a.txt", "dav/b", "dav/b/c.txt", "locks"] {
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o777)).unwrap();
        }
        let load = |name: &str| format!("LoadModule {name}_module {modules}/mod_{name}.so\n");
        let loads = ["mpm_event", "authz_core", "dav", "dav_fs"].map(load).concat();
        let at = folder.path().display();
        let user = match rustix::process::geteuid().is_root() {
            true => "User nobody\nGroup nogroup\n",
            false => "",
        };
        let text = format!(
            "{loads}ServerName dav.internal\nServerRoot {at}\nPidFile {at}/pid\nErrorLog {at}/errors\n\
             Listen {addr}\n{user}DocumentRoot {at}/dav\nDavLockDB {at}/locks/db\n\
             <Directory {at}/dav>\nDav On\nRequire all granted\n</Directory>\n"
        );
        let conf = folder.write("apache.conf", text);
        let mut command = Command::new("apache2");
        command.arg("-f").arg(conf).arg("-DFOREGROUND").stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let apache = Apache { child, folder, addr };
        let said = || fs::read_to_string(apache.folder.join("errors")).unwrap_or_default();
        assert!(soon(PATIENCE, || TcpStream::connect(addr).is_ok()), "{}", said());
        Some(apache)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join("dav").join(name)).ok()
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        // SIGTERM ends its workers, too
        let pid = rustix::process::Pid::from_child(&self.child);
        _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        _ = self.child.wait();
    }
}

fn start(engine: &str, apache: &Apache, more: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("site/index.html", "own");
    let lines = format!(
        "trusted_proxies = [\"127.0.0.1\"]\n[[proxy]]\npath = \"/files\"\nstrip = \"/files\"\nto = \"http://{}\"\n{more}",
        apache.addr
    );
    let options = Options::new(folder.join("site")).engine(engine).config(&lines);
    (Server::start(&options), folder)
}

/// Asks as a client that has come through TLS, and returns the status.
fn ask(server: &Server, method: &str, path: &str, fields: &str) -> u16 {
    let mut stream = server.connect();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: dav.example\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n{fields}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn files_are_copied_and_moved(engine: &str) {
    let Some(apache) = Apache::start() else { return };
    // without settings: Apache knows neither the scheme nor the path
    let (server, _folder) = start(engine, &apache, "");
    let to = |path: &str| format!("Destination: https://dav.example{path}\r\n");
    assert_eq!(ask(&server, "COPY", "/files/a.txt", &to("/files/z.txt")), 502, "{engine}");
    drop(server);
    for host in ["client", "upstream", "dav.internal"] {
        let more = format!("destination = \"upstream\"\nhost = \"{host}\"");
        let (server, _folder) = start(engine, &apache, &more);
        assert_eq!(
            ask(&server, "COPY", "/files/a.txt", &to("/files/b/d%20e.txt")),
            201,
            "{engine}"
        );
        assert_eq!(apache.read("b/d e.txt").as_deref(), Some("a"), "{engine}: {host}");
        assert_eq!(
            ask(&server, "MOVE", "/files/b/d%20e.txt", &to("/files/f.txt")),
            201,
            "{engine}"
        );
        assert_eq!(apache.read("f.txt").as_deref(), Some("a"), "{engine}: {host}");
        assert_eq!(apache.read("b/d e.txt"), None, "{engine}: {host}");
        // a condition about the resource, by its address as the client knows it
        let tagged =
            |condition: &str| format!("If: <https://dav.example/files/f.txt> ({condition})\r\n");
        let never = tagged("<urn:uuid:12345678-1234-1234-1234-123456789012>");
        assert_eq!(ask(&server, "DELETE", "/files/f.txt", &never), 412, "{engine}");
        assert_eq!(ask(&server, "DELETE", "/files/f.txt", &tagged("Not <DAV:no-lock>")), 204);
        assert_eq!(apache.read("f.txt"), None, "{engine}: {host}");
    }
}

fn where_it_leads_elsewhere_nothing_is_copied(engine: &str) {
    let Some(apache) = Apache::start() else { return };
    let (server, _folder) = start(engine, &apache, "destination = \"upstream\"");
    for (to, status) in [
        // another part of this server, whose path Apache would take for its own
        ("https://dav.example/other/x.txt", 502),
        ("https://dav.example/x.txt", 502),
        ("/filesx/x.txt", 502),
        // another server, which Apache refuses
        ("https://other.example/files/x.txt", 502),
        ("https://dav.example/files/../x.txt", 400),
        ("https://dav.example/files//x.txt", 400),
        ("https://dav.example/files/%2e%2e/x.txt", 400),
    ] {
        let found = ask(&server, "COPY", "/files/a.txt", &format!("Destination: {to}\r\n"));
        assert_eq!(found, status, "{engine}: {to}");
        assert_eq!(apache.read("x.txt"), None, "{engine}: {to}");
    }
}
