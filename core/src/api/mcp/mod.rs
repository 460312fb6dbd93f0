//! The read API as tools of the Model Context Protocol (MCP), revision 2026-07-28, over Streamable HTTP: each
//! POST is one JSON-RPC message, each answer one JSON object, and no state is kept between them.
//!
//! A tool is a route of the API, and the body of the route's answer is its result. Clients of earlier
//! revisions, which begin with `initialize`, get the same tools, without a session.
//!
//! JSON is read into types and written as text: trees of values would take 10 KB more in the Worker.

mod message;
mod reply;
mod server;
mod tools;

pub use message::Headers;
pub use reply::Reply;
pub use server::{MESSAGE_BYTES_MAX, Message, PATH, ToolCall, forbidden, refused};

#[cfg(test)]
mod tests;
