//! Expect
