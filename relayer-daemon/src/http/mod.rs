//! HTTP, from the connection to the answer:
//!
//! | file | decides |
//! |---|---|
//! | [`connections`] | limits and timeouts of connections |
//! | [`middleware`] | what every answer gets |
//! | [`client_address`] | the client that a request counts for |
//! | `client_shares` | how much of a resource one client has |
//! | [`readiness`] | `GET /readyz` |
//! | [`routes`] | the paths: bodies in, JSON out |
//! | [`waiting`] | which answers wait, and for how long |
//! | `shapes` | the JSON of answers |
//! | `description` | `/openapi.json` |

pub mod client_address;
mod client_shares;
pub mod connections;
mod description;
mod middleware;
pub mod readiness;
pub mod routes;
mod shapes;
pub mod waiting;
