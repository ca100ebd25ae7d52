//! The guarantees that only the pipeline gives.

use crate::handler::Paths;
use crate::harness::{BY_DELAY, NEVER_FUSED, Setup, get, start_with};
use forebay_engine::pipeline;
use forebay_metrics::Gauge;
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn a_descriptor_is_small() {
    assert!(pipeline::descriptor_bytes::<Paths>() <= 1024);
}

#[test]
fn slow_receivers_get_threads_that_are_given_back() {
    for engine in [NEVER_FUSED, BY_DELAY] {
        // the pipeline to the letter of the paper
        let setup = Setup { send_wait_ms: u64::MAX, ..Setup::default() };
        let server = start_with(engine, setup);
        let slow: Vec<_> = (0..12)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(get("/big").as_bytes()).unwrap();
                stream.read_exact(&mut [0; 15]).unwrap();
                stream
            })
            .collect();
        // each of them has a thread, and a thread is left for others
        let mut client = server.connect();
        client.write_all(get("/x").as_bytes()).unwrap();
        client.read_exact(&mut [0; 15]).unwrap();
        let wait_for = |gauge, wanted: &dyn Fn(u64) -> bool| {
            while !wanted(server.gauge(gauge)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait_for(Gauge::PipelineGrown, &|grown| grown >= 11);
        drop((slow, client));
        wait_for(Gauge::SendThreads, &|threads| threads == 1);
        wait_for(Gauge::PipelineReturned, &|returned| returned >= 11);
        server.stop();
    }
}
