//! Policies from outside the crate: what they decide, charge and say.
#![forbid(unsafe_code)]

mod explain;
mod naive;
mod seeds;
mod state;
mod tables;
mod threads;
