//! Forward requests.
