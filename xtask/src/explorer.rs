//! The explorer page: the bundle, the static files that the Worker's assets binding serves, the type checks
//! and the tests.
//!
//! File names carry a hash of their content, so that browsers may keep them for good; `index.html` alone is
//! asked for again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::build::print_size;
use crate::fingerprint::{Stamp, lock};
use crate::run::{command, node_tool, root, run};

/// The most that scripts and styles may be together, gzipped; the core's wasm has a limit of its own.
const SIZE_LIMIT: usize = 150 * 1024;

/// The texts of the Worker's own pages.
const PAGES: &str = "edge-api/src/pages";

/// What `index.html` names, and the bundler writes with a hash in between.
const NAMED: [(&str, &str); 3] = [("main", "css"), ("main", "js"), ("theme", "js")];

/// What sets markup, in Preact or in the DOM. Text from the chain is untrusted.
const SETS_MARKUP: [&str; 8] = [
    "dangerouslySetInnerHTML",
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "setHTMLUnsafe",
    "createContextualFragment",
    "document.write",
    "srcdoc",
];

/// Bundles the page into `browser/explorer/dist` if anything changed, and prints the size of its scripts and
/// styles. The browser package has to be built.
pub(crate) fn build() -> Result<()> {
    let _turn = lock("explorer")?;
    let (explorer, dist) = (explorer(), explorer().join("dist"));
    let mut inputs: Vec<PathBuf> =
        ["index.html", "src", "static", "styles", "tsconfig.json"].map(|path| explorer.join(path)).into();
    inputs.extend(
        ["browser/pkg", "package-lock.json", PAGES, "xtask/src/explorer.rs"].map(|path| root().join(path)),
    );
    let stamp = Stamp::of(root().join("target/xtask/explorer.stamp"), &inputs)?;
    if !stamp.is_current() || !dist.join("index.html").is_file() {
        bundle(&explorer, &dist)?;
        stamp.set()?;
    }
    let mut counted = files(&dist.join("assets"))?;
    counted.retain(|file| file.extension().is_some_and(|extension| extension == "js" || extension == "css"));
    print_size("Explorer: scripts and styles", &counted, SIZE_LIMIT)
}

/// Checks that the page's code sets no markup, how it is formatted, and its types. The browser package has to
/// be built: the page is written against its declarations.
pub(crate) fn check() -> Result<()> {
    for directory in ["src", "src/parts", "src/views"] {
        for file in files(&explorer().join(directory))? {
            if let Some(name) = sets_markup(&fs::read_to_string(&file)?) {
                bail!("{} names {name}: nothing in the explorer sets markup", file.display());
            }
        }
    }
    run(command(node_tool("prettier")).args([
        "--check",
        "browser/*.mjs",
        "openapi/src/*.json",
        "browser/explorer/{src,tests}/**/*.{ts,tsx,js}",
    ]))?;
    run(command(node_tool("tsc")).arg("--project").arg(explorer()))
}

/// The first thing that a source names and that sets markup.
fn sets_markup(source: &str) -> Option<&'static str> {
    let source = source.to_lowercase();
    SETS_MARKUP.into_iter().find(|name| source.contains(&name.to_lowercase()))
}

/// Runs the tests of what needs no browser, in Node.
pub(crate) fn test() -> Result<()> {
    let bundles = emptied("target/xtask/explorer-tests")?;
    run(command(node_tool("esbuild"))
        .args(files(&explorer().join("tests"))?)
        .args(["--bundle", "--format=esm", "--platform=node", "--out-extension:.js=.mjs"])
        .args(["--loader:.wasm=empty", "--log-level=warning"])
        .arg(format!("--outdir={}", bundles.display())))?;
    run(command("node").arg("--test").args(files(&bundles)?))
}

fn bundle(explorer: &Path, dist: &Path) -> Result<()> {
    // Put together aside, so that what fails leaves the last page as it is.
    let fresh = emptied("target/xtask/explorer")?;
    let (assets, metafile) = (fresh.join("assets"), root().join("target/xtask/explorer.json"));
    run(command(node_tool("esbuild"))
        .args(["src/main.tsx", "src/theme.ts", "--bundle", "--splitting", "--format=esm", "--minify"])
        .args(["--target=es2022", "--loader:.wasm=file", "--log-level=warning"])
        .args(["--entry-names=[name]-[hash]", "--chunk-names=[name]-[hash]", "--asset-names=[name]-[hash]"])
        .arg(format!("--outdir={}", assets.display()))
        .arg(format!("--metafile={}", metafile.display()))
        .current_dir(explorer))?;

    let mut page = fs::read_to_string(explorer.join("index.html"))?;
    for (stem, extension) in NAMED {
        let plain = format!("/assets/{stem}.{extension}");
        if !page.contains(&plain) {
            bail!("index.html does not name {plain}");
        }
        page = page.replace(&plain, &format!("/assets/{}", hashed(&assets, stem, extension)?));
    }
    fs::write(fresh.join("index.html"), page)?;
    fs::write(fresh.join("licences.txt"), licences(&fs::read_to_string(metafile)?)?)?;
    copy(&explorer.join("static"), &fresh)?;
    write_pages(&fresh)?;

    // What the page names is there before the page is, and goes after it.
    copy(&assets, &dist.join("assets"))?;
    copy(&fresh, dist)?;
    remove_others(&assets, &dist.join("assets"))?;
    remove_others(&fresh, dist)
}

/// Writes the texts of the Worker's own pages; the API's description without its indentation, which is half
/// of it.
fn write_pages(directory: &Path) -> Result<()> {
    let pages = root().join(PAGES);
    for name in ["api-catalog.json", "llms.txt"] {
        fs::copy(pages.join(name), directory.join(name))?;
    }
    // No string of it goes over two lines: JSON writes line ends as `\n`.
    let description = fs::read_to_string(pages.join("openapi.json"))?;
    let compact: String = description.lines().map(str::trim_start).collect();
    Ok(fs::write(directory.join("openapi.json"), compact)?)
}

/// The name the bundler gave to an entry point.
fn hashed(assets: &Path, stem: &str, extension: &str) -> Result<String> {
    let (start, end) = (format!("{stem}-"), format!(".{extension}"));
    let names = files(assets)?.into_iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned()));
    let mut matching = names.filter(|name| name.starts_with(&start) && name.ends_with(&end));
    matching.next().with_context(|| format!("the bundler wrote no {start}*{end}"))
}

/// The licences of the libraries that the bundler says are in the page, as they ask for.
fn licences(metafile: &str) -> Result<String> {
    let mut text = "Libraries in this page, and their licences.\n".to_owned();
    for package in bundled(metafile) {
        let file = root().join("node_modules").join(package).join("LICENSE");
        let licence = fs::read_to_string(&file).with_context(|| format!("{package} has no LICENSE"))?;
        text.push_str(&format!("\n{package}\n\n{licence}"));
    }
    Ok(text)
}

/// The packages of `node_modules` that esbuild's metafile names.
fn bundled(metafile: &str) -> BTreeSet<&str> {
    metafile.split("node_modules/").skip(1).filter_map(|rest| rest.split('/').next()).collect()
}

/// Copies the files of one directory into another. Not the directory itself: a Worker that runs meanwhile
/// watches it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for file in files(from)? {
        let target = to.join(file.file_name().context("a file has a name")?);
        fs::copy(&file, &target).with_context(|| format!("cannot write {}", target.display()))?;
    }
    Ok(())
}

/// Removes the files of `to` that `from` does not have.
fn remove_others(from: &Path, to: &Path) -> Result<()> {
    for file in files(to)? {
        if !from.join(file.file_name().context("a file has a name")?).exists() {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// The files of a directory, without those below it.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        files.push(entry?.path());
    }
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

/// A directory of this repository, with nothing in it.
fn emptied(path: &str) -> Result<PathBuf> {
    let directory = root().join(path);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn explorer() -> PathBuf {
    root().join("browser/explorer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_packages_are_those_the_bundler_names() {
        let metafile = r#"{"inputs":{"../../node_modules/d3-zoom/src/zoom.js":{"imports":[{"path":"../../node_modules/d3-drag/src/x.js"}]},
            "src/main.ts":{},"../../node_modules/d3-zoom/src/index.js":{}}}"#;
        assert_eq!(bundled(metafile).into_iter().collect::<Vec<_>>(), ["d3-drag", "d3-zoom"]);
    }

    #[test]
    fn a_source_that_sets_markup_is_found_out() {
        for source in [
            r#"<p dangerouslySetInnerHTML={{ __html: scope }} />"#,
            "element.innerHTML = scope;",
            "<p innerHTML={scope} />",
            "<iframe srcDoc={scope} />",
            "element.insertAdjacentHTML('beforeend', scope);",
        ] {
            assert!(sets_markup(source).is_some(), "{source}");
        }
        assert_eq!(sets_markup("<p>{scope}</p>"), None);
    }

    #[test]
    fn a_directory_is_renewed_file_by_file() {
        let (from, to) =
            (emptied("target/xtask/test-from").unwrap(), emptied("target/xtask/test-to").unwrap());
        fs::create_dir(to.join("below")).unwrap();
        for (directory, name) in [(&from, "kept"), (&from, "new"), (&to, "kept"), (&to, "old")] {
            fs::write(directory.join(name), directory.to_str().unwrap()).unwrap();
        }
        copy(&from, &to).unwrap();
        remove_others(&from, &to).unwrap();
        assert_eq!(files(&to).unwrap(), [to.join("kept"), to.join("new")]);
        assert_eq!(fs::read_to_string(to.join("kept")).unwrap(), from.to_str().unwrap());
        assert!(to.join("below").is_dir());
    }
}
