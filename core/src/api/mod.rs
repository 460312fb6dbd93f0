//! The read API of `service.md`: from routes to documents or errors.

pub mod accept;
pub mod acceptance;
pub mod document;
pub mod download;
pub mod error;
pub mod health;
pub mod index_documents;
mod links;
pub mod mcp;
pub mod question;
pub mod route;
pub mod scan;
pub mod snapshot_documents;
