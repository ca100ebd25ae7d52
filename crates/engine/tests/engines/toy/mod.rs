//! A protocol and a transport made for the purpose. They use all that the interfaces between
//! engine, protocol and transport offer, and so show what each engine guarantees: many requests
//! under way on a connection, sockets other than the client's, an upgrade, encrypted bytes.

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
