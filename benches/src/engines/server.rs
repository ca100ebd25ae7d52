//! The servers: Forebay with each engine, those of one process and the one with three stages, and for the cold set nginx with threads and Apache.

use crate::Error;
use crate::engines::workload::Workload;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The engine that is no loop of its own.
const ISOLATED: &str = "isolated";

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Forebay with this engine.
    Engine(String),
    /// nginx that reads files on a pool of threads (`aio threads`).
    NginxThreads,
    /// Apache with its event module.
    Apache,
}

/// Everything a command line is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'s> {
    /// Forebay's binary.
    pub forebay: &'s Path,
    /// What is served.
    pub root: &'s Path,
    /// A folder of this server alone.
    pub scratch: &'s Path,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    /// What it will be asked.
    pub workload: Workload,
    /// Connections that will be open at once, in all.
    pub connections: u32,
}

impl Server {
    /// As `--servers` takes it and the tables show it.
    pub fn name(&self) -> &str {
        match self {
            Server::Engine(name) => name,
            Server::NginxThreads => "nginx-aio",
            Server::Apache => "apache",
        }
    }

    /// The server called `name`, if there is one.
    pub fn find(name: &str) -> Option<Server> {
        match name {
            "nginx-aio" => Some(Server::NginxThreads),
            "apache" => Some(Server::Apache),
            // a mode of the pipeline is part of the name: pipeline-never
            name => is_engine(engine(name)).then(|| Server::Engine(name.to_owned())),
        }
    }

    /// Forebay with each of its engines.
    pub fn engines() -> Vec<Server> {
        engine_names().map(|name| Server::Engine(name.to_owned())).collect()
    }

    /// The command that starts it.
    ///
    /// # Errors
    /// When its configuration cannot be written.
    pub fn command(&self, setup: &Setup<'_>) -> Result<Command, Error> {
        let file = setup.scratch.join("server.conf");
        let (program, arguments, text): (PathBuf, &[&str], _) = match self {
            Server::Engine(name) => (setup.forebay.into(), &["run", "-c"], ours(name, setup)),
            Server::NginxThreads => ("nginx".into(), &["-c"], nginx(setup)),
            Server::Apache => ("apache2".into(), &["-D", "FOREGROUND", "-f"], apache(setup)),
        };
        fs::write(&file, text).map_err(Error::io("cannot write", &file))?;
        let mut command = Command::new(program);
        command.args(arguments).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

/// Every engine: those that are whole in one process, and the one that is three stages.
pub fn engine_names() -> impl Iterator<Item = &'static str> {
    forebay_engine::NAMES.iter().copied().chain([ISOLATED])
}

fn is_engine(name: &str) -> bool {
    engine_names().any(|known| known == name)
}

/// The engine in a name such as `pipeline-never`.
fn engine(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

fn ours(name: &str, setup: &Setup<'_>) -> String {
    // engines with a thread per connection have one for each
    let workers = match engine(name) {
        "threads" | "pool" => u64::from(setup.connections) + 8,
        _ => 1,
    };
    let mode = match name.split_once('-') {
        Some(("pipeline", mode)) => format!("pipeline.fuse = \"{mode}\"\n"),
        _ => String::new(),
    };
    let cache = if setup.workload == Workload::Cold { "16MiB" } else { "256MiB" };
    format!(
        "listen = [\"127.0.0.1:{}\"]\nroot = {:?}\nengine = \"{}\"\nworkers = {workers}\n{mode}\
         log.access = \"off\"\ncache.bytes = \"{cache}\"\nlimits.requests_per_connection = 0\n\
         limits.connections_per_client = 100000\ncontrol.socket = \"off\"\n",
        setup.port,
        setup.root,
        engine(name),
    )
}

fn nginx(setup: &Setup<'_>) -> String {
    let Setup { root, scratch, port, .. } = setup;
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\nworker_rlimit_nofile 20000;\n\
         pid {scratch}/nginx.pid;\nerror_log /dev/null;\nthread_pool default threads=32;\n\
         events {{ worker_connections 16000; }}\n\
         http {{ access_log off; keepalive_timeout 65s; keepalive_requests 1000000000;\n\
         open_file_cache max=1000 inactive=60s; open_file_cache_valid 60s;\n\
         sendfile on; aio threads; tcp_nopush on;\n\
         client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy;\n\
         fastcgi_temp_path {scratch}/fastcgi; uwsgi_temp_path {scratch}/uwsgi;\n\
         scgi_temp_path {scratch}/scgi;\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; root {root}; }} }}\n",
        root = root.display(),
        scratch = scratch.display(),
    )
}

fn apache(setup: &Setup<'_>) -> String {
    let threads = 256;
    include_str!("../../peers/apache2.conf")
        .lines()
        .filter(|line| !line.starts_with("@log@"))
        .map(|line| {
            line.trim_start_matches("@root@ ")
                .replace("@PORT@", &setup.port.to_string())
                .replace("@ROOT@", &setup.root.display().to_string())
                .replace("@TMP@", &setup.scratch.display().to_string())
                .replace("User www-data", "User nobody")
                .replace("Group www-data", "Group nogroup")
                .replace("128", &threads.to_string())
                + "\n"
        })
        .collect()
}
