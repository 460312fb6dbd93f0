//! Rate limiting as arithmetic: fixed windows, counts and time in, a verdict out. The host stores the counts.
//!
//! One counter for a client is exact by itself ([`WindowLimit::charge`]). A host that runs many instances
//! either asks one counter from all of them ([`WindowLimit::adopt`]), or lets every instance count and
//! publish its count now and then through a shared store ([`Sharing`]). Shared counts are late; they can only
//! make a verdict stricter.

mod client_key;
mod sharing;
mod window;

pub use self::{
    client_key::{ClientKey, network},
    sharing::{Sharing, SyncTask},
    window::{RateLimitVerdict, WindowLimit, WindowTally},
};
