//! Tests of a site's answers, seen from outside: one file per promise.

mod aliases;
mod answers;
mod applications;
mod bodies;
mod clients;
mod conditions;
mod fixed;
mod hosts;
mod lists;
mod paths;
mod rules;
mod storm;
mod truth;
mod variables;
