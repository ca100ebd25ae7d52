//! The state machine from outside: bytes in, events and bytes out.
