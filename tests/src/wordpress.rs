//! A real WordPress, from Debian's package: a copy of its files, a database of its own, and a php-fpm
//! that runs them.
//!
//! `scripts/install test` unpacks the packages that it needs, without installing them: the package of
//! WordPress would bring another web server along.

use crate::faults::site::Folder;
use crate::faults::{has, soon};
use crate::php::Fpm;
use crate::wire::PATIENCE;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The blog's administrator and the password.
pub const ADA: (&str, &str) = ("ada", "a secret of ada");

/// A blog at `http://example.com` with one post and one page, whose addresses are like `/2026/11/hello-world/`.
#[derive(Debug)]
pub struct WordPress {
    /// The php-fpm that runs the scripts of the blog.
    pub fpm: Fpm,
    _database: Database,
}

#[derive(Debug)]
struct Database {
    child: Child,
    folder: Folder,
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of the unpacked packages.
fn packages() -> Option<PathBuf> {
    let tools = env::var_os("FOREBAY_TOOLS").map(PathBuf::from);
    let tools = tools.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache/forebay")));
    Some(tools?.join("wordpress/usr")).filter(|usr| usr.join("share/wordpress").is_dir())
}

impl WordPress {
    /// Installs WordPress. `None`, with a loud line about this test, if its packages are not unpacked.
    ///
    /// # Panics
    /// If it cannot be installed.
    pub fn start(test: &str) -> Option<WordPress> {
        let usr = packages().ok_or("there is no WordPress, see scripts/install test");
        let usr = has(usr, test)?;
        let database = Database::start(&usr);
        let folder = Folder::new();
        copy(&usr.join("share/wordpress"), &folder.join("root"));
        fs::create_dir_all(folder.join("root/wp-content/uploads")).unwrap();
        folder.write("root/wp-config.php", settings(&database));
        let php = extensions(&usr);
        let mut command = Command::new("php");
        command.arg("-n").args(php.iter().flat_map(|setting| ["-d", setting]));
        let script = folder.write("install.php", INSTALL);
        command.arg(script).arg(folder.join("root")).args([ADA.0, ADA.1]);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.ends_with("installed"), "{said}");
        let settings: Vec<&str> =
            php.iter().map(String::as_str).chain(["zend_extension=opcache"]).collect();
        let settings = [&settings[..], &["upload_max_filesize=13M", "post_max_size=13M"]].concat();
        let fpm = Fpm::with(folder, 2, &settings, test)?;
        Some(WordPress { fpm, _database: database })
    }
}

impl Database {
    /// A MariaDB without users: it admits every client, and its socket is in a folder of this test.
    fn start(usr: &Path) -> Database {
        let folder = Folder::new();
        let data = folder.join("data");
        fs::create_dir_all(&data).unwrap();
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = Command::new(usr.join("sbin/mariadbd"));
        command.env("LD_LIBRARY_PATH", usr.join("lib").join(libraries(usr)));
        command.arg("--no-defaults").args([
            &*option("basedir", usr),
            &option("lc-messages-dir", &usr.join("share/mysql")),
            &option("datadir", &data),
            &option("socket", &folder.join("db.sock")),
            &option("pid-file", &folder.join("db.pid")),
            "--skip-networking",
            "--skip-grant-tables",
            "--innodb-log-file-size=4M",
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
            "--aria-pagecache-buffer-size=8M",
        ]);
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        let log = fs::File::create(folder.join("db.log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut database = Database { child: command.spawn().unwrap(), folder };
        let is_up = soon(PATIENCE, || {
            let said = fs::read_to_string(database.folder.join("db.log")).unwrap_or_default();
            let has_ended = database.child.try_wait().unwrap().is_some();
            assert!(!has_ended, "{said}");
            said.contains("ready for connections")
        });
        assert!(is_up, "the database is not ready");
        database
    }
}

/// The folder of libraries for this machine.
fn libraries(usr: &Path) -> PathBuf {
    let entries = fs::read_dir(usr.join("lib")).unwrap().flatten();
    let names = entries.map(|entry| PathBuf::from(entry.file_name()));
    names
        .into_iter()
        .find(|name| name.to_string_lossy().ends_with("-linux-gnu"))
        .unwrap_or_default()
}

/// The extensions that PHP must load: its own, and those of the packages.
fn extensions(usr: &Path) -> Vec<String> {
    let versions = fs::read_dir(usr.join("lib/php")).unwrap().flatten();
    let folder = versions.map(|entry| entry.path()).max().unwrap();
    let own = ["ctype", "iconv", "tokenizer", "fileinfo"].map(|name| format!("extension={name}"));
    let laid = ["mysqlnd", "mysqli"]
        .map(|name| format!("extension={}", folder.join(name).with_extension("so").display()));
    own.into_iter().chain(laid).collect()
}

/// Copies a folder, and the targets of its links; a link without a target is left out.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => copy(&path, &place),
            Ok(_) => drop(fs::copy(&path, &place).unwrap()),
            Err(_) => {}
        }
    }
}

/// The text of `wp-config.php`. Nothing is fetched from elsewhere, and no task runs by itself.
fn settings(database: &Database) -> String {
    let socket = database.folder.join("db.sock");
    format!(
        "<?php\n\
         define('DB_NAME', 'blog'); define('DB_USER', 'root'); define('DB_PASSWORD', '');\n\
         define('DB_HOST', 'localhost:{}'); define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');\n\
         foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $of)\n    \
             {{ define($of . '_KEY', 'key of ' . $of); define($of . '_SALT', 'salt of ' . $of); }}\n\
         define('WP_HOME', 'http://example.com'); define('WP_SITEURL', WP_HOME);\n\
         define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true);\n\
         define('AUTOMATIC_UPDATER_DISABLED', true);\n\
         $table_prefix = 'wp_';\n\
         if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');\n\
         require_once ABSPATH . 'wp-settings.php';\n",
        socket.display()
    )
}

/// A script that does what the page of installation does, and what the form for permanent addresses does.
const INSTALL: &str = "<?php
[, $root, $name, $password] = $argv;
define('WP_INSTALLING', true);
$_SERVER += ['HTTP_HOST' => 'example.com', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET',
             'REQUEST_URI' => '/', 'SERVER_SOFTWARE' => 'nginx'];
preg_match(\"/localhost:([^']*)/\", file_get_contents($root . '/wp-config.php'), $found);
(new mysqli(null, 'root', '', '', 0, $found[1]))->query('CREATE DATABASE blog');
require $root . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
// it would write a mail
function wp_new_blog_notification() {}
wp_install('A blog', $name, 'ada@example.com', true, '', $password);
$wp_rewrite->init();
$wp_rewrite->set_permalink_structure('/%year%/%monthnum%/%postname%/');
$wp_rewrite->flush_rules(false);
echo 'installed';
";
