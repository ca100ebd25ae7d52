//! Every input kept in `fuzz/seeds/config` goes through the checks of the fuzz target, with the
//! stable compiler and without a fuzzer. An input that broke something once stays there for ever.

use crate::checks;

#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn config_seeds() {
    corpus::each_seed("config", checks::check);
}
