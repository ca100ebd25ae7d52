//! The real program from outside, in one test program: what shares the machine with other tests.
//!
//! A file is a module: `cargo test -p forebay-tests --test e2e faults_drain::`.
#![forbid(unsafe_code)]

mod acme;
mod activation;
mod admin;
mod agents;
mod aliases;
mod at_once;
mod auth;
mod behind;
mod calibrate;
mod classes;
mod client_certificates;
mod clients;
mod cold;
mod compress;
mod fastcgi;
mod faults_drain;
mod faults_limits;
mod faults_sending;
mod gone;
mod http2;
mod http2_oracle;
mod httplint;
mod identities;
mod install;
mod isolated;
mod kept_threads;
mod leaks;
mod load_command;
mod load_tls;
mod log_choice;
mod logs;
mod metrics;
mod names;
mod on_the_way;
mod pipeline;
mod policy;
mod proxy;
mod queue;
mod reload;
mod repeats;
mod rules;
mod runner;
mod serve_command;
mod sites;
mod smuggling;
mod stage_tunnels;
mod stages;
mod tls;
mod tls_changes;
mod warnings;
mod websocket;
mod wordpress;
mod work;
