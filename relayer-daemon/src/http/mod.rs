//! The HTTP side: [`connections`] accepts and bounds them, [`middleware`] is what every answer carries,
//! [`client_address`] says whom a request counts for. The paths are [`crate::routes`].

pub mod client_address;
pub mod connections;
mod middleware;
