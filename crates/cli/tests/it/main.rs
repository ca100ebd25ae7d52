//! The program `forebay` as it is called, and the layers of the workspace.
#![forbid(unsafe_code)]

mod circles;
mod commands;
mod layers;
mod maps;
mod names;
mod source;
