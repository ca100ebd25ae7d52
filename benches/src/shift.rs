//! A load that shifts between hot small files, cold files and slow receivers, on a pipeline that
//! never fuses: do threads that move beat threads that stay?
//!
//! keta §5 compares its controller with fixed counts under a load that stays. What a controller is
//! for shows when the load changes: the phase that needs threads is another one each time.

pub mod load;
pub mod row;
pub mod storage;
pub mod verdict;
