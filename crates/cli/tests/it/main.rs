//! Tests of the program `forebay` on its command line, and of the workspace's sources.
#![forbid(unsafe_code)]

mod circles;
mod commands;
mod layers;
mod maps;
mod names;
mod source;
