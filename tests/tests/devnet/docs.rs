//! The documentation as its readers follow it: links lead somewhere, every page is near the README.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::{fs, process};

use e2e::repo;

/// The path below the repository's root, without `..`.
fn tidy(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut tidy, part| {
        match part {
            Component::ParentDir => drop(tidy.pop()),
            Component::CurDir => {}
            part => tidy.push(part),
        }
        tidy
    })
}

/// A page's text without its blocks of code, and those spans of code that would look like links.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !is_fence && !in_block
    };
    text.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// The targets of a page's links and pictures.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, u32>::new();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let anchor = anchor(line.trim_start_matches('#'));
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere_and_every_page_is_two_links_from_the_readme() {
    let root = repo::root();
    let mut git = process::Command::new("git");
    git.args(["ls-files", "-co", "--exclude-standard", "*.md"]).current_dir(&root);
    let listed = git.output().unwrap().stdout;
    let pages: BTreeMap<PathBuf, String> = String::from_utf8(listed)
        .unwrap()
        .lines()
        .filter(|file| root.join(file).is_file())
        .map(|file| (file.into(), prose(&fs::read_to_string(root.join(file)).unwrap())))
        .collect();
    let (mut broken, mut targets) = (Vec::new(), BTreeMap::<&Path, BTreeSet<PathBuf>>::new());
    for (page, text) in &pages {
        for link in links(text) {
            let (file, part) = link.split_once('#').unwrap_or((&link, ""));
            let folder = page.parent().unwrap();
            let target = if file.is_empty() { page.clone() } else { tidy(&folder.join(file)) };
            let has_part = |text: &String| part.is_empty() || anchors(text).contains(part);
            if !root.join(&target).exists() || !pages.get(&target).is_none_or(has_part) {
                broken.push(format!("{}: {link}", page.display()));
            }
            targets.entry(page).or_default().insert(target);
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");

    let first = &targets[Path::new("README.md")];
    let second = first.iter().filter_map(|page| targets.get(page.as_path())).flatten();
    let near: BTreeSet<_> = first.iter().chain(second).collect();
    let far: Vec<_> = pages.keys().filter(|page| page.starts_with("docs") && !near.contains(page)).collect();
    assert!(far.is_empty(), "more than two links away: {far:#?}");
    // From the first screen: the doors.
    let readme = &pages[Path::new("README.md")];
    let doors = &readme[..readme.find("## Two commands").unwrap()];
    for (task, link) in [
        ("put the gate before nginx", "docs/gate.md#nginx"),
        ("register", "python/README.md"),
        ("run the relayer with Postgres", "docs/relayer-fleet.md#setting-it-up"),
        ("prove an admission of last year", "docs/admission-records.md#verifying-one"),
    ] {
        assert!(links(doors).iter().any(|target| target == link), "{task}");
    }
    let text = fs::read_to_string(root.join("README.md")).unwrap();
    let check = text.find("curl http://127.0.0.1:3000/api/v1/kya/").unwrap();
    assert!(check < text.find("## Two commands").unwrap(), "check a wallet from a shell");
}
