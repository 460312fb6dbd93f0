//! A local copy that commit 3ad2b3d wrote (`tests/fixtures/3ad2b3d/local`) answers without a service.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::{fs, path::Path, time::Duration};

use kya_local::{LocalKya, Options};
use registry_core::registry::agent::Status;
use registry_core::registry::kya::Registration;

const REGISTRY: &str = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512";
const CENTURIES: Duration = Duration::from_secs(10_000_000_000);

#[test]
fn a_copy_of_an_old_version_still_knows_its_agents() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/3ad2b3d/local");
    let directory = tempfile::tempdir().unwrap();
    for name in ["registry.kya", "registry.kya.head"] {
        fs::copy(fixture.join(name), directory.path().join(name)).unwrap();
    }
    let file = directory.path().join("registry.kya");
    let options = Options::new("http://127.0.0.1:1", 31_337, REGISTRY.parse().unwrap(), file);
    let local = LocalKya::open(Options { max_age: CENTURIES, ..options }).unwrap();
    let active = |id| Some((id, Status::Active));
    for (wallet, agent, registration) in [
        ("0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1", active("11"), Registration::Current),
        ("0xb309312A0d70f6ea4bECF0337df3f704aAA0fd12", active("6"), Registration::Current),
        ("0x596D514f5CcCFDb30340BB14F6bb8a39ecD16A58", Some(("1", Status::Suspended)), Registration::Current),
        ("0xF0D914Ce7dACD39f6939076EAD056A8Ee2945746", None, Registration::Former),
        ("0x0101010101010101010101010101010101010101", None, Registration::Never),
    ] {
        let verdict = local.kya(wallet.parse().unwrap()).unwrap();
        assert_eq!(verdict.as_of.block_number, 22);
        assert_eq!(verdict.registration, registration, "{wallet}");
        let found = verdict.agent.map(|agent| (agent.agent_id.to_string(), agent.status));
        assert_eq!(found, agent.map(|(id, status): (&str, _)| (id.to_owned(), status)), "{wallet}");
    }
}
