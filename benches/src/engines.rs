//! The engines beside one another: what each workload costs at each number of connections.
//!
//! One server process per measurement, pinned to one core with one loop; the load comes from this
//! process on another core. A row says throughput, processor time per request, the 99th percentile,
//! threads and memory.

pub mod cold;
pub mod row;
pub mod server;
pub mod workload;
