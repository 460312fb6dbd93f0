//! The layers are those of the table in `src/lib.rs`: a folder imports only from the rows above its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folders of each row, lowest layer first.
fn layers(lib: &str) -> Vec<Vec<&str>> {
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | [")?.split(" | ").next());
    rows.map(|row| row.split('`').skip(1).step_by(2).collect()).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The top-level folders that a file names in `crate::a` or `crate::{a, b::{c, d}}`.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let (mut depth, mut name) = (0, String::new());
        for character in rest.chars() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => found.push(std::mem::take(&mut name)),
                _ => {}
            }
            if depth <= 0 && !(character.is_alphanumeric() || character == '_') {
                break;
            }
            if depth <= 1 && !"{},".contains(character) {
                name.push(character);
            }
        }
        found.push(name);
    }
    let first = |path: String| path.trim().split("::").next().unwrap_or_default().to_owned();
    found.into_iter().map(first).filter(|name| !name.is_empty()).collect()
}

#[test]
fn lower_layers_never_import_higher_ones() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap();
    let layers = layers(&lib);
    let level = |name: &str| layers.iter().position(|layer| layer.contains(&name));
    for module in lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')) {
        assert!(level(module).is_some(), "{module} is in no layer");
    }
    let mut checked = 0;
    for path in files(&src).into_iter().filter(|path| path.extension().is_some_and(|rs| rs == "rs")) {
        let inside = path.strip_prefix(&src).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let Some(own_level) = level(own) else { continue };
        let text = fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for import in imports(&code.join("\n")).iter().filter(|import| *import != own) {
            let other = level(import).unwrap_or_else(|| panic!("{}: crate::{import}?", inside.display()));
            assert!(other < own_level, "{} imports {import}, which is not below {own}", inside.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} imports: what was read?");
}

/// The sibling modules that a file of the store's statements imports.
fn siblings(code: &str) -> Vec<&str> {
    let Some((_, imports)) = code.split_once("use super::{") else { return Vec::new() };
    let (imports, _) = imports.split_once("\n};").unwrap_or(imports.split_once("};").unwrap());
    let outside = imports.split('{').map(|part| part.rsplit('}').next().unwrap());
    outside
        .flat_map(|part| part.split([',', ':', '\n']))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn the_tables_of_the_store_import_one_another_in_no_circle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sql");
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let own = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut left: Vec<(String, String)> = own
        .map(|path| (name(&path), fs::read_to_string(&path).unwrap()))
        .filter(|(name, _)| name != "mod" && name != "query_plans")
        .collect();
    assert!(left.len() > 10, "what was read?");
    while !left.is_empty() {
        let names: Vec<String> = left.iter().map(|(name, _)| name.clone()).collect();
        left.retain(|(own, code)| {
            siblings(code).iter().any(|other| own != other && names.contains(&(*other).to_owned()))
        });
        assert!(left.len() < names.len(), "a circle among {names:?}");
    }
}
