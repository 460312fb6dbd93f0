//! `cargo run -p openapi` writes the read API's description, `edge-api/src/pages/openapi.json`, which the
//! Worker serves as it is. Run it after a change to anything that clients see; a test fails where the file is
//! out of date.

mod examples;
mod operations;
mod read_api;

use std::fs;

use anyhow::Context as _;

/// The file that the Worker serves.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge-api/src/pages/openapi.json");

fn main() -> anyhow::Result<()> {
    fs::write(PATH, openapi::text(&read_api::description()?))
        .context("edge-api/src/pages/openapi.json is not written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reference_leads_nowhere() {
        assert_eq!(openapi::dangling(&read_api::description().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn every_limit_is_written_out() {
        let text = openapi::text(&read_api::description().unwrap());
        let left = text.split('{').find(|rest| rest.starts_with(|next: char| next.is_ascii_uppercase()));
        assert_eq!(left, None);
    }

    #[test]
    fn the_file_the_worker_serves_is_what_the_types_say() {
        let served = fs::read_to_string(PATH).unwrap();
        assert!(
            served == openapi::text(&read_api::description().unwrap()),
            "edge-api/src/pages/openapi.json is out of date: run `cargo run -p openapi`"
        );
    }
}
