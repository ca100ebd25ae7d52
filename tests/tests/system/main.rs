//! The real program and the system: what changes users, limits and mounts, or boots a systemd.
//!
//! A file is a module: `cargo test -p forebay-tests --test system faults_hang::`.
#![forbid(unsafe_code)]

mod cgi_groups;
mod cgroups;
mod faults_descriptors;
mod faults_hang;
mod faults_log;
mod firewall;
mod first_requests;
mod gate;
mod ladder;
mod machines;
mod net;
mod paced;
mod privileges;
mod protect;
mod services;
mod steer;
mod steer_tls;
mod systemd;
mod threads_short;
