//! What a site answers, seen from outside: one file per promise.

mod answers;
mod bodies;
mod paths;
mod storm;
mod truth;
