//! Rate limiting as arithmetic: fixed windows, counts and time in, a verdict out. The host stores the counts.
//!
//! One counter for a client is exact by itself ([`WindowLimit::charge`]). A host that runs many instances
//! lets every instance count and publish its count now and then through a shared store ([`Sharing`]). Shared
//! counts are late; they can only make a verdict stricter. What the store is asked has a price, and a
//! ceiling ([`Ceiling`]).

mod client_key;
mod sharing;
mod window;

pub use self::{
    client_key::{ClientKey, network},
    sharing::{Ceiling, Sharing, SyncTask},
    window::{RateLimitVerdict, WindowLimit, WindowTally},
};
