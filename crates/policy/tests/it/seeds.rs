//! Runs every input in `fuzz/seeds` through the checks of its fuzz target, with the stable compiler
//! and without a fuzzer. An input that once broke something stays there for ever.

#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/policy.rs"]
mod policy;

#[test]
fn policy_seeds() {
    corpus::each_seed("policy", policy::check);
}
