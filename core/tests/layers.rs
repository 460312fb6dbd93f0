//! The layers of this crate, checked by its `use` declarations and paths: a module imports from its own layer
//! and from lower ones only, and no modules import one another in a circle.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The layers, the lowest first.
const LAYERS: [&str; 11] =
    ["eth", "forward", "registry", "chain", "evidence", "index", "snapshot", "token", "gate", "api", "host"];

/// A module's path, such as `chain::lens::slice`; the parent's where the file is called `mod.rs`.
type Module = String;

/// The source of each module, without its tests and comments.
fn modules() -> BTreeMap<Module, String> {
    fn visit(directory: &Path, path: &[String], modules: &mut BTreeMap<Module, String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            if file.is_dir() {
                visit(&file, &[path, &[name]].concat(), modules);
            } else if file.extension().is_some_and(|extension| extension == "rs") && name != "lib" {
                let own = if name == "mod" { path.to_vec() } else { [path, &[name]].concat() };
                modules.insert(own.join("::"), code(&fs::read_to_string(&file).unwrap()));
            }
        }
    }
    let mut modules = BTreeMap::new();
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut modules);
    modules
}

/// A file up to its tests, without comments.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Every path in a tree of a `use` declaration: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn leaves(prefix: &str, tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let leaf = tree.split(" as ").next().unwrap().trim().trim_end_matches("::self");
        let path =
            if leaf == "self" { prefix.trim_end_matches("::").to_owned() } else { format!("{prefix}{leaf}") };
        return if leaf.is_empty() { Vec::new() } else { vec![path] };
    };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    let body = &rest[..rest.rfind('}').unwrap()];
    let prefix = format!("{prefix}{}", head.trim());
    for (place, character) in body.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(leaves(&prefix, &body[start..place]));
                start = place + 1;
            }
            _ => {}
        }
    }
    found.extend(leaves(&prefix, &body[start..]));
    found
}

/// The paths that a module names from the crate's root, `super::` and `self::` resolved, re-exports left out.
fn imports(module: &str, text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = text.to_owned();
    for (declaration, _) in text.split("use ").skip(1).filter_map(|after| after.split_once(';')) {
        if ["crate::", "super::", "self::"].iter().any(|root| declaration.starts_with(root)) {
            found.extend(leaves("", declaration));
            rest = rest.replace(declaration, "");
        }
    }
    for path in rest.split("crate::").skip(1) {
        let end = path.find(|character: char| !character.is_alphanumeric() && !"_:".contains(character));
        found.insert(format!("crate::{}", &path[..end.unwrap_or(path.len())]));
    }
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let resolve = |path: &str| {
        let (mut base, mut path) = (module.to_owned(), path);
        if let Some(inner) = path.strip_prefix("super::") {
            (base, path) = (parent.to_owned(), inner);
        } else if let Some(inner) = path.strip_prefix("self::") {
            path = inner;
        } else if let Some(inner) = path.strip_prefix("crate::") {
            (base, path) = (String::new(), inner);
        }
        while let Some(inner) = path.strip_prefix("super::") {
            base = base.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned());
            path = inner;
        }
        if base.is_empty() { path.to_owned() } else { format!("{base}::{path}") }
    };
    found.iter().map(|path| resolve(path)).collect()
}

/// The module that defines what a path names: the origin of a re-export, or else the longest module that the
/// path begins with.
fn owner(
    path: &str,
    modules: &BTreeMap<Module, String>,
    exports: &BTreeMap<String, String>,
) -> Option<Module> {
    let mut path = path.to_owned();
    while let Some(origin) = exports.get(&path).filter(|origin| **origin != path) {
        path.clone_from(origin);
    }
    let mut prefix = path.as_str();
    while !modules.contains_key(prefix) {
        prefix = prefix.rsplit_once("::")?.0;
    }
    Some(prefix.to_owned())
}

/// What `pub use` declarations give another path: from the path they make to the one they name.
fn exports(modules: &BTreeMap<Module, String>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for (module, text) in modules {
        for visibility in ["pub use ", "pub(crate) use ", "pub(super) use "] {
            for (tree, _) in text.split(visibility).skip(1).filter_map(|after| after.split_once(';')) {
                for leaf in leaves("", tree).iter().filter(|leaf| !leaf.starts_with("crate::")) {
                    let leaf = leaf.trim_start_matches("self::");
                    let name = leaf.rsplit("::").next().unwrap();
                    exports.insert(format!("{module}::{name}"), format!("{module}::{leaf}"));
                }
            }
        }
    }
    exports
}

/// Which modules each module imports from.
fn graph() -> BTreeMap<Module, BTreeSet<Module>> {
    let modules = modules();
    let exports = exports(&modules);
    let edges = modules.iter().map(|(module, text)| {
        let owners =
            imports(module, text).iter().filter_map(|path| owner(path, &modules, &exports)).collect();
        (module.clone(), owners)
    });
    edges.collect()
}

fn layer(module: &str) -> usize {
    let first = module.split("::").next().unwrap();
    LAYERS.iter().position(|layer| *layer == first).unwrap_or_else(|| panic!("{first} is in no layer"))
}

#[test]
fn no_layer_imports_a_higher_one() {
    let mut violations = Vec::new();
    let graph = graph();
    for (module, imported) in &graph {
        let higher = imported.iter().filter(|other| layer(other) > layer(module));
        violations.extend(higher.map(|other| format!("{module} imports {other}")));
    }
    println!("{}: {} modules, {} violations", LAYERS.join(" < "), graph.len(), violations.len());
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn no_modules_import_one_another_in_a_circle() {
    let mut graph = graph();
    for (module, imported) in &mut graph {
        imported.remove(module);
    }
    // Modules that import nothing that is left are no part of a circle.
    loop {
        let free: BTreeSet<Module> = graph
            .iter()
            .filter(|(_, imported)| imported.is_empty())
            .map(|(module, _)| module.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        graph.retain(|module, _| !free.contains(module));
        graph.values_mut().for_each(|imported| imported.retain(|other| !free.contains(other)));
    }
    assert!(graph.is_empty(), "circles among {graph:#?}");
}

#[test]
fn imports_are_read_as_they_are_written() {
    let text = "use super::{a::B, c};\nuse crate::eth::{self, json::{Hash, Integer as I}};\n\
                let x = crate::chain::Run::new();";
    let found: Vec<String> = imports("api::route", text).into_iter().collect();
    assert_eq!(
        found,
        ["api::a::B", "api::c", "chain::Run::new", "eth", "eth::json::Hash", "eth::json::Integer"]
    );
}
