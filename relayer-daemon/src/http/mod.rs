//! HTTP, from the connection to the answer:
//!
//! | file | decides |
//! |---|---|
//! | [`connections`] | limits and timeouts of connections |
//! | [`middleware`] | what every answer gets |
//! | [`client_address`] | the client that a request counts for |
//! | [`readiness`] | `GET /readyz` |
//! | [`routes`] | the paths: bodies in, JSON out |
//! | `shapes` | the JSON of answers |
//! | `description` | `/openapi.json` |

pub mod client_address;
pub mod connections;
mod description;
mod middleware;
pub mod readiness;
pub mod routes;
mod shapes;
mod waiting;
