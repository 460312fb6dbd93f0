//! The registry's rules: pure functions from records and a given time to the shapes of `service.md`.

pub mod agent;
pub mod agent_detail;
pub mod agent_item;
pub mod agent_query;
pub mod ancestors;
pub mod changes;
pub mod compliance;
pub mod cursor;
pub mod error_code;
#[cfg(test)]
pub(crate) mod fixture;
pub mod history;
pub mod kya;
pub mod liability;
pub mod liable;
pub mod lineage;
pub mod page;
pub mod revenue;
pub(crate) mod row;
#[cfg(feature = "schema")]
mod schema;
pub mod stats;
pub mod well_known;
