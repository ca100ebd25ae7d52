//! Monotonic and wall time.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of `CLOCK_MONOTONIC_COARSE`: as cheap as reading memory, 1 to 4 ms behind.
#[inline]
pub fn coarse_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Milliseconds since 1970, 1 to 4 ms behind.
#[inline]
pub fn unix_coarse_ms() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec.max(0) as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Microseconds since 1970.
pub fn unix_us() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.max(0) as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Nanoseconds of CPU time, user and system, that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
