//! A protocol and a transport made for the purpose. They use all that the seams between engine, protocol
//! and transport offer, and so show what each engine owes: many requests under way on a connection, sockets
//! besides the client's, an upgrade, sealed bytes.

mod client;
mod handler;
mod kit;
mod mix;
mod protocol;
mod sealed;
mod streams;
mod upstream;
mod veil;
mod waits;
