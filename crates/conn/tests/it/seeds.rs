//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable
//! compiler and without a fuzzer. An input that broke something once stays there for ever.

#[path = "../../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/checks/hello.rs"]
mod hello;
#[path = "../../../../fuzz/checks/proxy.rs"]
mod proxy;

#[test]
fn hello_seeds() {
    corpus::each_seed("hello", hello::check);
}

#[test]
fn proxy_seeds() {
    corpus::each_seed("proxy", proxy::check);
}
