//! Rate limiting as arithmetic over fixed windows: from counts and time to a verdict. The host stores counts.
//!
//! One counter for a client is exact by itself ([`WindowLimit::charge`]). A host that runs many instances
//! lets every instance count and publish its count now and then through a shared store ([`Sharing`]). Shared
//! counts are late; they can only make a verdict stricter. Operations of the store are billed, so their
//! number has a ceiling ([`Ceiling`]).

mod client_key;
mod sharing;
mod window;

pub use self::{
    client_key::{ClientKey, network},
    sharing::{Ceiling, Sharing, SyncTask},
    window::{RateLimitVerdict, WindowLimit, WindowTally},
};
