//! Writes the API's description without the spaces that people read it by, which are half of it: it is part of the Worker.

use std::{env, error::Error, fs, path::Path};

const DESCRIPTION: &str = "src/pages/openapi.json";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={DESCRIPTION}");
    // No string of it goes over two lines: JSON writes line ends as `\n`.
    let compact: String = fs::read_to_string(DESCRIPTION)?.lines().map(str::trim_start).collect();
    fs::write(Path::new(&env::var("OUT_DIR")?).join("openapi.json"), compact)?;
    Ok(())
}
