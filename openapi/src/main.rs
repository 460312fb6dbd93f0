//! `cargo run -p openapi` writes the read API's description, `edge-api/src/pages/openapi.json`, which the
//! Worker serves as it is, and the tools of MCP, `core/src/api/mcp/tools.json`. Run it after a change to
//! anything that clients see; a test fails where a file is out of date.

mod examples;
mod operations;
mod read_api;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Returns the files and their texts.
fn files() -> anyhow::Result<[(&'static str, String); 2]> {
    let description = read_api::description()?;
    Ok([
        ("edge-api/src/pages/openapi.json", openapi::text(&description)),
        ("core/src/api/mcp/tools.json", tools::text(&description)?),
    ])
}

/// Returns the path of a file.
fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

fn main() -> anyhow::Result<()> {
    for (file, text) in files()? {
        fs::write(path(file), text).with_context(|| format!("{file} is not written"))?;
    }
    Ok(())
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
    fn the_files_are_what_the_types_say() {
        for (file, text) in files().unwrap() {
            let written = fs::read_to_string(path(file)).unwrap();
            assert!(written == text, "{file} is out of date: run `cargo run -p openapi`");
        }
    }

    /// Generators take a union of constants for a union of types.
    #[test]
    fn closed_sets_are_enumerations() {
        let (_, text) = &files().unwrap()[0];
        let description: serde_json::Value = serde_json::from_str(text).unwrap();
        let status = &description["components"]["schemas"]["Status"];
        assert_eq!(status["enum"], serde_json::json!(["Active", "Suspended", "Revoked", "Terminated"]));
        assert_eq!(status["x-enum-descriptions"].as_array().map(Vec::len), Some(4));
        let choices = text.split("\"oneOf\": [").skip(1);
        let first = choices.map(|choice| choice.trim_start_matches(['\n', ' ', '{']));
        assert_eq!(first.filter(|first| first.starts_with("\"const\"")).count(), 0);
    }
}
