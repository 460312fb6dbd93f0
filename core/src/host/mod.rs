//! State that hosts keep between requests, as plain data: a host brings the time and the storage.

pub mod leases;
pub mod newest_block;
pub mod rate_limit;
pub mod shared_reads;
