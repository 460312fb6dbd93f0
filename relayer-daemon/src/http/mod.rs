//! The HTTP side, from the connection to the answer:
//!
//! | file | decides |
//! |---|---|
//! | [`connections`] | how many connections there may be, and how long each may wait |
//! | [`middleware`] | what every answer carries |
//! | [`client_address`] | whom a request counts for |
//! | [`routes`] | the paths: bodies in, JSON out |
//! | `shapes` | the JSON of good answers |
//! | `description` | `/openapi.json` |

pub mod client_address;
pub mod connections;
mod description;
mod middleware;
pub mod readiness;
pub mod routes;
mod shapes;
