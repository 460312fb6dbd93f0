//! The layers of this crate, checked by its `use` declarations and paths: a module imports only from its own
//! layer and lower ones. No modules of this crate, or of the read API's Worker, import one another in a
//! circle. In the relayer, layers are the rows of folders in the table of its `lib.rs`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, the lowest first.
const LAYERS: [&str; 12] = [
    "eth",
    "forward",
    "registry",
    "liability",
    "chain",
    "evidence",
    "index",
    "snapshot",
    "token",
    "gate",
    "api",
    "host",
];

/// A module's path, such as `chain::lens::slice`; for a `mod.rs` its folder's.
type Module = String;

fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Reads the source of each module of a crate, up to its tests and without comments.
fn modules(of: &str) -> BTreeMap<Module, String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src");
    let module = |file: &PathBuf| {
        let name = file.strip_prefix(&src).unwrap().to_str().unwrap().strip_suffix(".rs")?.to_owned();
        let text = fs::read_to_string(file).unwrap();
        let lines = text.split("#[cfg(test)]\nmod tests").next().unwrap().lines();
        let code = lines.map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
        (name != "lib").then(|| (name.trim_end_matches("/mod").replace('/', "::"), code))
    };
    files(&src).iter().filter_map(module).collect()
}

/// Returns every path in the tree of a `use` declaration: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_owned()];
    };
    let mut depth = 0;
    let branches = rest[..rest.rfind('}').unwrap()].split(|character: char| {
        depth += i32::from(character == '{') - i32::from(character == '}');
        character == ',' && depth == 0
    });
    let branches: Vec<&str> = branches.map(str::trim).filter(|branch| !branch.is_empty()).collect();
    let leaves = branches.into_iter().flat_map(leaves);
    leaves.map(|leaf| format!("{}{leaf}", prefix.trim()).trim_end_matches("::self").to_owned()).collect()
}

/// Resolves `super::` and `self::` to a path from the crate's root.
fn resolve(module: &str, path: &str) -> String {
    let (mut base, mut path) = match path.strip_prefix("crate::") {
        Some(inner) => ("", inner),
        None => (module, path.trim_start_matches("self::")),
    };
    while let Some(inner) = path.strip_prefix("super::") {
        (base, path) = (base.rsplit_once("::").map_or("", |(parent, _)| parent), inner);
    }
    if base.is_empty() { path.to_owned() } else { format!("{base}::{path}") }
}

/// Returns the paths that a module names, from the crate's root and without re-exports.
fn imports(module: &str, text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = text.to_owned();
    for (declaration, _) in text.split("use ").skip(1).filter_map(|after| after.split_once(';')) {
        if ["crate::", "super::", "self::"].iter().any(|root| declaration.starts_with(root)) {
            found.extend(leaves(declaration));
            rest = rest.replace(declaration, "");
        }
    }
    for path in rest.split("crate::").skip(1) {
        let end = path.find(|character: char| !character.is_alphanumeric() && !"_:".contains(character));
        found.insert(format!("crate::{}", &path[..end.unwrap_or(path.len())]));
    }
    found.iter().map(|path| resolve(module, path)).collect()
}

/// Returns the module that defines a path's item: the origin of a re-export, or else the longest module that
/// the path begins with.
fn owner(
    mut path: String,
    modules: &BTreeMap<Module, String>,
    exports: &BTreeMap<String, String>,
) -> Option<Module> {
    while let Some(origin) = exports.get(&path).filter(|origin| **origin != path) {
        path.clone_from(origin);
    }
    let mut prefix = path.as_str();
    while !modules.contains_key(prefix) {
        prefix = prefix.rsplit_once("::")?.0;
    }
    Some(prefix.to_owned())
}

/// Returns the re-exports of `pub use` declarations: from the new path to the original one.
fn exports(modules: &BTreeMap<Module, String>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for (module, text) in modules {
        for visibility in ["pub use ", "pub(crate) use ", "pub(super) use "] {
            for (tree, _) in text.split(visibility).skip(1).filter_map(|after| after.split_once(';')) {
                for leaf in leaves(tree).iter().filter(|leaf| !leaf.starts_with("crate::")) {
                    let leaf = leaf.trim_start_matches("self::");
                    let name = leaf.rsplit("::").next().unwrap();
                    exports.insert(format!("{module}::{name}"), format!("{module}::{leaf}"));
                }
            }
        }
    }
    exports
}

/// Returns the modules that each module of a crate imports from.
fn graph(of: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let modules = modules(of);
    let exports = exports(&modules);
    let edges = modules.iter().map(|(module, text)| {
        let owners = imports(module, text).into_iter();
        (module.clone(), owners.filter_map(|path| owner(path, &modules, &exports)).collect())
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
    for (module, imported) in graph("core") {
        let higher = imported.iter().filter(|other| layer(other) > layer(&module));
        violations.extend(higher.map(|other| format!("{module} imports {other}")));
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn no_folder_of_the_relayer_imports_one_of_its_own_row_or_of_a_higher_one() {
    let lib = concat!(env!("CARGO_MANIFEST_DIR"), "/../relayer-daemon/src/lib.rs");
    let lib = fs::read_to_string(lib).unwrap();
    // The lowest first.
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | [")?.split(" | ").next());
    let rows: Vec<&str> = rows.collect();
    let folder = |module: &str| format!("`{}`", module.split("::").next().unwrap());
    let row = |folder: &String| {
        rows.iter().position(|row| row.contains(folder)).unwrap_or_else(|| panic!("{folder} is in no row"))
    };
    for module in lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')) {
        row(&folder(module));
    }
    let mut checked = 0;
    for (module, imported) in graph("relayer-daemon") {
        let own = folder(&module);
        for other in imported.iter().filter(|other| folder(other) != own) {
            assert!(row(&folder(other)) < row(&own), "{module} imports {other}, which is not below {own}");
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} imports: what was read?");
}

#[test]
fn no_modules_import_one_another_in_a_circle() {
    // Of the relayer, only the tables of its store are checked.
    let is_of_relayer = |module: &str| {
        module.strip_prefix("store::sql::").is_some_and(|table| !table.contains("::") && table != "engine")
    };
    for of in ["core", "edge-shared", "edge-api", "relayer-daemon"] {
        let mut graph = graph(of);
        if of == "relayer-daemon" {
            graph.retain(|module, _| is_of_relayer(module));
            graph.values_mut().for_each(|imported| imported.retain(|other| is_of_relayer(other)));
        }
        assert!(graph.len() > 3, "{of}: what was read?");
        for (module, imported) in &mut graph {
            imported.remove(module);
        }
        // Modules that import none of the remaining ones are not part of a circle.
        loop {
            let free = graph.iter().filter(|(_, imported)| imported.is_empty());
            let free: BTreeSet<Module> = free.map(|(module, _)| module.clone()).collect();
            if free.is_empty() {
                break;
            }
            graph.retain(|module, _| !free.contains(module));
            graph.values_mut().for_each(|imported| imported.retain(|other| !free.contains(other)));
        }
        assert!(graph.is_empty(), "{of}: circles among {graph:#?}");
    }
}

#[test]
fn imports_are_read_as_they_are_written() {
    let text = "use super::{a::B, c};\nuse crate::eth::{self, json::{Hash, Integer as I}};\n\
                let x = crate::chain::Run::new();";
    let found: Vec<String> = imports("api::route", text).into_iter().collect();
    let expected = ["api::a::B", "api::c", "chain::Run::new", "eth", "eth::json::Hash", "eth::json::Integer"];
    assert_eq!(found, expected);
}
