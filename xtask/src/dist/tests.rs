//! Tests of a release's contents and sources.

use std::collections::BTreeSet;

use super::*;

pub(super) fn directory_of_test(name: &str) -> PathBuf {
    let directory = root().join("target/xtask/tests-of-dist").join(name);
    empty(&directory).unwrap();
    directory
}

#[test]
fn a_tree_with_changes_is_refused_with_the_names_of_the_files() {
    let repository = directory_of_test("repository");
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=test", "-c", "user.email=test"];
        run(command("git").args(identity).args(arguments).current_dir(&repository)).unwrap();
    };
    git(&["init", "--quiet"]);
    fs::write(repository.join("kept"), "1").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "kept"]);
    ensure_committed(&repository).unwrap();
    fs::write(repository.join("kept"), "2").unwrap();
    fs::write(repository.join("new"), "").unwrap();
    let refused = ensure_committed(&repository).unwrap_err().to_string();
    assert!(refused.ends_with(": M kept, ?? new"), "{refused}");
}

#[test]
fn copies_leave_out_what_tells_git_of_a_build() {
    let from = directory_of_test("copied");
    fs::create_dir(from.join("inner")).unwrap();
    for file in [".gitignore", "inner/.gitignore", "inner/index.js"] {
        fs::write(from.join(file), "").unwrap();
    }
    let to = directory_of_test("copy");
    copy(&from, &to).unwrap();
    assert!(to.join("inner/index.js").is_file());
    assert!(!to.join(".gitignore").exists() && !to.join("inner/.gitignore").exists());
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    let directory = directory_of_test("modes");
    let modes = [("inner", 0o700, 0o755), ("inner/text", 0o600, 0o644), ("inner/program", 0o700, 0o755)];
    fs::create_dir(directory.join("inner")).unwrap();
    for (name, before, _) in modes {
        let path = directory.join(name);
        if !path.exists() {
            fs::write(&path, "").unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(before)).unwrap();
    }
    set_modes(&directory).unwrap();
    for (name, _, expected) in modes {
        let mode = fs::metadata(directory.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected, "{name}");
    }
}

#[test]
fn the_programs_come_with_all_that_runs_and_watches_them() {
    let files = output_of(command("git").args(["ls-files", "*/systemd/*", "*/ops/*"])).unwrap();
    let folders: BTreeSet<String> =
        files.lines().map(|file| file.split('/').take(2).collect::<Vec<_>>().join("/")).collect();
    assert_eq!(folders, BTreeSet::from(OPERATIONS.map(str::to_owned)));
}

#[test]
fn the_wheel_has_the_texts_of_its_licences() {
    let python = root().join("python");
    for licence in LICENCES {
        assert_eq!(fs::read(python.join(licence)).unwrap(), fs::read(root().join(licence)).unwrap());
    }
    let project = fs::read_to_string(python.join("pyproject.toml")).unwrap();
    assert!(project.contains("\nlicense-files = [\"LICENSE-*\"]\n"), "{project}");
}

#[test]
fn a_release_has_one_version_and_a_section_of_the_changelog() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("browser/npm/package.json", format!("\"version\": \"{version}\"")),
        ("python/pyproject.toml", format!("\nversion = \"{version}\"")),
        ("CHANGELOG.md", format!("\n## [{version}] - ")),
    ] {
        assert!(fs::read_to_string(root().join(file)).unwrap().contains(&line), "{file}: {line}");
    }
    // Every mention of a version, by the text before it.
    for (file, before) in [
        ("deploy/compose.yaml", "image: agent-registry/"),
        ("deploy/compose.relayer.yaml", "image: agent-registry/"),
        ("docs/self-hosting.md", "-linux-amd64.tar.gz"),
        ("relayer-daemon/README.md", "  \"version\": \""),
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(before)).collect();
        assert!(!lines.is_empty(), "{file}: {before}");
        for line in lines {
            assert!(line.contains(version), "{file}: {line}");
        }
    }
}
