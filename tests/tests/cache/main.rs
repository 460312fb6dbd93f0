//! The caches, in an instance's memory and in the data centre: repeated requests are read once per TTL.
//!
//! Entries:
//!
//! 1. A second call reaches no RPC, and its age grows.
//! 2. Two spellings of one question share an entry; two questions do not.
//! 3. Errors that may pass are not stored: an unknown agent is found once it is registered, a dead node's 500
//!    ends with the node's return.
//! 4. Revenue histories and `/health` are never stored.
//! 5. After its TTL an entry is read again. A TTL of 0 stores nothing.
//! 6. A KYA verdict is not given out past the moment at which time alone ends it.
//! 7. The data centre's entries serve other instances, but none that reads another chain or other endpoints.
//! 8. A cache of the data centre that does not answer holds up no request for long.
//!
//! Concurrent requests for the same answer:
//!
//! 1. Concurrent requests are coalesced, also where nothing is stored, and where the first client leaves.
//! 2. Answers about the whole registry are made from one scan for all pages, and agree with one another.
//! 3. An entry that is requested all the time is renewed before it expires, and no request waits.
//! 4. An error goes to all coalesced requests. One that is certain to repeat itself is kept for seconds.

mod entries;
mod sharing;

use std::sync::atomic::{AtomicU64, Ordering};

use e2e::seed::Showcase;
use e2e::stage::{Exclusive, Stage};
use tokio::sync::MutexGuard;

/// The stage with the documented TTLs.
struct Scene {
    stage: Stage,
    showcase: Showcase,
    /// No test has asked for an agent above this one. The first is asked for by spellings of its id.
    asked: AtomicU64,
}

impl Scene {
    /// An agent that no test has asked for: every answer about it is cold.
    fn cold_agent(&self) -> u64 {
        let id = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(id <= self.showcase.total, "the showcase has too few agents");
        id
    }
}

/// The scene, for one test at a time: they count.
async fn documented() -> (MutexGuard<'static, ()>, &'static Scene) {
    static SCENE: Exclusive<Scene> = Exclusive::empty();
    let start = async || {
        let (stage, showcase) = Stage::showcase(|options| options).await.unwrap();
        Scene { stage, showcase, asked: AtomicU64::new(0) }
    };
    let (turn, scene) = SCENE.take(start).await;
    scene.stage.proxy.heal();
    (turn, scene)
}
