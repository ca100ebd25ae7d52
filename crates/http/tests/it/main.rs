//! HTTP messages from outside the crate: properties, and the inputs that fuzzers left.
#![forbid(unsafe_code)]

mod properties;
mod seeds;

// Properties that hold for every input, shared with the fuzz targets.
#[path = "../../../../fuzz/checks/body.rs"]
mod body;
#[path = "../../../../fuzz/checks/condition.rs"]
mod condition;
#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/forwarded.rs"]
mod forwarded;
#[path = "../../../../fuzz/checks/head.rs"]
mod head;
#[path = "../../../../fuzz/checks/range.rs"]
mod range;
#[path = "../../../../fuzz/checks/response.rs"]
mod response;
#[path = "../../../../fuzz/checks/target_path.rs"]
mod target_path;
