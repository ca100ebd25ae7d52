//! Tests of connections without sockets, and the inputs that fuzzers left.

mod conn;
mod front;
mod relay;
mod seeds;
mod withdrawn;
mod worker;
