//! Tests of the configuration from outside the crate, with files and by properties.
#![forbid(unsafe_code)]

mod config;
mod config_files;
mod config_includes;
mod config_remarks;
mod isolated_remarks;
mod properties;
mod seeds;

// Properties of every text given as a configuration, shared with the fuzz target.
#[path = "../../../../fuzz/checks/config.rs"]
mod checks;
