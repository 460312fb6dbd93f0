//! The documentation as its readers follow it: no link is broken, every page is near the README, and the
//! commands and the Python package's example work on `cargo xtask dev`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::{fs, process};

use e2e::kya::Kya;
use e2e::process::output;
use e2e::{repo, seed, signers};

/// Resolves `.` and `..` in a path below the repository's root.
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

/// Returns a page's text without its blocks of code.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !is_fence && !in_block
    };
    text.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
}

/// Returns the targets of a page's links and pictures, without URLs.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// Makes a heading's anchor as GitHub does.
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

/// Lists the paths of all documents, from the repository's root.
fn documents() -> Vec<PathBuf> {
    let root = repo::root();
    let mut git = process::Command::new("git");
    // The clone may be another user's.
    git.args(["-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "*.md"]).current_dir(&root);
    let output = git.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    listed.lines().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect()
}

#[test]
fn every_link_leads_somewhere_and_every_page_is_two_links_from_the_readme() {
    let root = repo::root();
    let text = |file: &Path| prose(&fs::read_to_string(root.join(file)).unwrap());
    let pages = documents().into_iter().map(|file| (file.clone(), text(&file)));
    let pages: BTreeMap<PathBuf, String> = pages.collect();
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
    // The README's first screen links to the entry point of each task.
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

/// Returns the blocks of code of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Commands that do not run here: their page, the beginning of the block, and the reason.
const ELSEWHERE: [(&str, &str, &str); 18] = [
    ("README.md", "cargo xtask dev", "is what the others run beside"),
    ("docs/admission-records.md", "cargo run -p kya -- verify record", "needs records: `kya_gate`"),
    ("docs/changes.md", "curl -N", "never ends: `index_worker`"),
    ("docs/gate.md", "kya sign GET https://api.example/items", "beside each proxy: `kya_gate`"),
    ("docs/installing.md", "cargo xtask dist", "takes half an hour: `cargo xtask test wrangler` does a part"),
    ("docs/installing.md", "npx wrangler deploy", "needs an account"),
    ("docs/installing.md", "sha256sum --check", "needs a release"),
    ("docs/installing.md", "tar -xzf", "needs a release"),
    ("docs/kya.md", "kya register --at", "needs a service with a name: `kya_cli`"),
    ("docs/kya.md", "kya attest 92 93 --watch", "never ends: `kya_cli`"),
    ("docs/liable-person.md", "kya accept", "needs a hardware wallet"),
    ("docs/operating.md", "npx wrangler dev", "never ends, and is what `cargo xtask dev` starts"),
    ("docs/relayer-fleet.md", "export STORE_URL", "names databases on other machines"),
    ("docs/relayer-fleet.md", "cargo build --release", "takes ten minutes"),
    ("docs/self-hosting.md", "gunzip -c", "needs Docker"),
    ("docs/self-hosting.md", "npm install workerd", "never ends: `read_api`"),
    ("docs/signed-verdicts.md", "curl -H 'Accept: application/jwt'", "needs an API with a key: `read_api`"),
    ("docs/testing.md", "for i in 1 2", "loads the machine"),
];

/// Replacements that readers make: the page, its text, and the replacement. They also answer prompts on the
/// terminal, and interrupt a command.
const THEIRS: [(&str, &str, &str); 8] = [
    (
        "docs/api.md",
        "$ACCEPTANCE\" http://127.0.0.1:3000/api/v1/kya/0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1",
        // Once the API has the registration.
        "$(until curl http://127.0.0.1:3000/api/v1/kya/AGENT | grep -q isRegistered.:true; do sleep 1; done; \
         kya accept AGENT --registry REGISTRY --chain 31337 --rpc CHAIN --key liable.key --yes --header)\" \
         http://127.0.0.1:3000/api/v1/kya/AGENT",
    ),
    ("docs/changes.md", "sleep 60", "break"),
    (
        "docs/evidence.md",
        "--block-hash 0x... --registry 0x...",
        "--block-hash $(jq -r .blockHash proof.json) --registry REGISTRY",
    ),
    ("docs/evidence.md", "--wallet 0x...", "--wallet WALLET"),
    ("docs/kya.md", "--liable 0x...", "--liable $(kya key liable.key | head -1)"),
    ("docs/kya.md", "kya attest 92", "echo 92 | kya attest 92"),
    (
        "docs/liable-person.md",
        "kya accept AGENT_WALLET --chain 84532 --rpc https://sepolia.base.org",
        "echo 92 | kya accept AGENT --chain 31337 --rpc CHAIN",
    ),
    ("docs/liable-person.md", "--registry 0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23", "--registry REGISTRY"),
];

/// Runs the commands of README and docs against the running `dev`: those of docs in the directory of the
/// agent that docs/kya.md registers, those of the README, with another agent, in a directory of their own.
pub(crate) async fn commands_work(api: &str, relayer: &str, chain: &str, guarded: &str, registry: &str) {
    let root = repo::root();
    let wallet = seed::wallet("kyoto").address().to_string();
    let names = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let pages = names.map(|name| format!("docs/{}", name.to_str().unwrap()));
    let mut pages: Vec<_> = pages.filter(|page| page.ends_with(".md")).collect();
    // docs/kya.md registers the first agent after those of `dev`.
    pages.sort_by_key(|page| (page != "docs/kya.md", page.clone()));
    pages.push("README.md".to_owned());
    let users = [Kya::new().unwrap(), Kya::new().unwrap()];
    for user in &users {
        symlink(root.join("docs"), user.path("docs")).unwrap();
    }
    let rows = ELSEWHERE.iter().chain(&THEIRS);
    let mut unused: BTreeSet<_> = rows.map(|(page, text, _)| (*page, *text)).collect();
    let mut said = BTreeMap::<_, String>::new();
    for page in &pages {
        let user = &users[usize::from(page == "README.md")];
        for block in blocks(&fs::read_to_string(root.join(page)).unwrap(), "sh") {
            let is_it =
                |(of, start, _): &&(&str, &str, &str)| of == page && block.trim_start().starts_with(start);
            if let Some((page, start, _)) = ELSEWHERE.iter().find(is_it) {
                unused.remove(&(*page, *start));
                continue;
            }
            let mut command = block.replace("cargo run -p kya --", "kya");
            for (of, text, theirs) in THEIRS.iter().filter(|(of, ..)| of == page) {
                if command.contains(text) {
                    unused.remove(&(*of, *text));
                }
                command = command.replace(text, theirs);
            }
            for (text, here) in [
                ("http://127.0.0.1:3000", api),
                ("https://kya.example", api),
                ("http://127.0.0.1:3001", relayer),
                ("http://127.0.0.1:3002", guarded),
                ("http://127.0.0.1:8545", chain),
                ("CHAIN", chain),
                ("REGISTRY", registry),
                ("WALLET", &wallet),
                ("AGENT", "$(kya key agent.key | head -1)"),
            ] {
                command = command.replace(text, here);
            }
            let printed =
                user.shell(&command).await.unwrap_or_else(|error| panic!("{page}: {block}{error:#}"));
            said.entry(page).or_default().push_str(&printed);
        }
    }
    assert!(unused.is_empty(), "no command begins with, or contains: {unused:#?}");
    for (page, words) in [
        ("README.md", "\"decision\":\"provision\""),
        ("docs/api.md", "\"basis\":\"accepted\""),
        ("docs/evidence.md", "proved: provision"),
        ("docs/kya.md", "your items"),
    ] {
        assert!(said[&page.to_owned()].contains(words), "{page}: {said:#?}");
    }
}

/// Runs the Python package's example, from two fresh keys to a request that the guarded service admits;
/// returns its output.
pub(crate) async fn python_example(relayer: &str, registry: &str, service: &str) -> String {
    let page = fs::read_to_string(repo::root().join("python/README.md")).unwrap();
    let values = [("RELAYER_URL", relayer), ("REGISTRY", registry), ("SERVICE_URL", service)];
    let values = values.map(|(name, value)| format!("{name} = {value:?}\n")).concat();
    let program = format!("{values}CHAIN_ID = 31337\n{}", blocks(&page, "python").concat());
    let mut python = signers::with_package().await.unwrap();
    String::from_utf8(output(python.args(["-c", &program])).await.unwrap()).unwrap()
}
