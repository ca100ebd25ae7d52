//! Tests of the real program with the system: those that change users, limits and mounts, or boot a
//! systemd.
//!
//! A file is a module: `cargo test -p forebay-tests --test system faults_hang::`.
#![forbid(unsafe_code)]

mod cgi_groups;
mod cgroups;
mod descriptors_in_flight;
mod faults_descriptors;
mod faults_hang;
mod faults_log;
mod firewall;
mod first_requests;
mod gate;
mod kernel_answers;
mod ladder;
mod machines;
mod net;
mod paced;
mod path_mtu;
mod privileges;
mod protect;
mod services;
mod sets;
mod stage_confined;
mod stage_gate;
mod steer;
mod steer_tls;
mod systemd;
mod threads_short;
