//! What hosts keep from one request to the next, as plain data: a host brings the time and the storage.

pub mod rate_limit;
pub mod shared_reads;
pub mod stream_slots;
