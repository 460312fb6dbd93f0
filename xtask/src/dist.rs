//! `cargo xtask dist`: makes the parts of a release, in `target/dist`.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::run::{cargo, command, node_tool, output_of, root, run, without_paths};
use crate::{build, debian, setup};

mod images;
mod paths;
#[cfg(test)]
mod tests;

/// The programs for servers and shells.
const PROGRAMS: [&str; 3] = ["relayer-daemon", "kya-gate", "kya"];
/// Static targets: their programs run on any Linux of that processor.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];
/// The crates that users build on, each after those that it needs.
const CRATES: [&str; 5] = ["registry-core", "host-kit", "kya", "kya-local", "kya-gate"];
const CONFIGURATIONS: [&str; 2] = ["wrangler.toml", "wrangler.index.toml"];
/// Compose files, and the files that their services read.
const DEPLOY: [&str; 5] = [
    "deploy/.env.example",
    "deploy/compose.yaml",
    "deploy/compose.relayer.yaml",
    "deploy/edge",
    "deploy/gate.example.toml",
];
/// Files that run and watch the programs: units, alert rules and dashboards.
const OPERATIONS: [&str; 5] =
    ["kya/systemd", "kya-gate/ops", "kya-gate/systemd", "relayer-daemon/ops", "relayer-daemon/systemd"];
/// The licences of Rust's standard library, which is a part of all that is compiled.
const STANDARD_LIBRARY: &str = "sbom/rust-std.html";
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// Paths that the configurations name, in the same places below them.
const OF_WORKERS: [&str; 4] = ["edge-api/build", "edge-index/build", "browser/explorer/dist", "deploy/edge"];

const ALLOW_DIRTY: &str = "--allow-dirty";
const SUMS: &str = "SHA256SUMS";

/// A part's name, and the function that makes it.
type DistPart = (&'static str, fn() -> Result<()>);

/// Makes these parts; all without any. A part that was made before is made anew, and all are removed before
/// all are made. Refuses a tree with uncommitted changes, unless with `--allow-dirty`.
pub(crate) fn dist(arguments: &[String]) -> Result<()> {
    const PARTS: [DistPart; 8] = [
        ("workers", || build_all().and_then(|()| workers(&directory().join("workers")))),
        ("npm", || build_all().and_then(|()| npm())),
        ("crates", crates),
        ("python", python),
        ("binaries", binaries),
        ("sbom", || build_all().and_then(|()| sbom())),
        ("images", images::images),
        ("archives", archives),
    ];
    let parts: Vec<&String> = arguments.iter().filter(|argument| *argument != ALLOW_DIRTY).collect();
    if let Some(unknown) = parts.iter().find(|part| !PARTS.iter().any(|(name, _)| name == *part)) {
        bail!("no part {unknown}: {}", PARTS.map(|(name, _)| name).join(", "));
    }
    if parts.len() == arguments.len() {
        ensure_committed(&root())?;
    }
    fs::create_dir_all(directory())?;
    // A run that fails leaves no sums of files that it did not make.
    remove(&directory().join(SUMS))?;
    if parts.is_empty() {
        empty(&directory())?;
    }
    for (name, make) in PARTS {
        if parts.is_empty() || parts.iter().any(|part| *part == name) {
            eprintln!("dist: {name}");
            make().with_context(|| name.to_owned())?;
        }
    }
    paths::ensure_none(&directory())?;
    sums(&directory())
}

fn directory() -> PathBuf {
    root().join("target/dist")
}

/// Returns the directory that is compiled into for a release alone.
fn build_directory() -> PathBuf {
    root().join("target/dist-build")
}

fn build_all() -> Result<()> {
    setup::setup()?;
    build::build()
}

/// Checks that nothing is uncommitted: the commit names what is built.
fn ensure_committed(repository: &Path) -> Result<()> {
    let mut git = command("git");
    let output = git.args(["status", "--porcelain"]).current_dir(repository).output().context("git")?;
    ensure!(output.status.success(), "git status: {}", String::from_utf8_lossy(&output.stderr).trim());
    let changes = String::from_utf8_lossy(&output.stdout);
    let changes: Vec<&str> = changes.lines().map(str::trim).collect();
    ensure!(
        changes.is_empty(),
        "uncommitted changes (build them with {ALLOW_DIRTY}): {}",
        changes.join(", ")
    );
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn empty(directory: &Path) -> Result<()> {
    remove(directory)?;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}

/// Returns an emptied directory below `target/dist`.
fn fresh(name: &str) -> Result<PathBuf> {
    let directory = directory().join(name);
    empty(&directory)?;
    Ok(directory)
}

/// Fills a directory with both Workers as they were built, the explorer, and configurations that build
/// nothing.
fn workers(directory: &Path) -> Result<()> {
    empty(directory)?;
    for part in OF_WORKERS {
        copy(&root().join(part), &directory.join(part))?;
    }
    for configuration in CONFIGURATIONS {
        let text = fs::read_to_string(root().join(configuration))?;
        let (before, rest) = text.split_once("[build]\n").context("[build]")?;
        let (_, after) = rest.split_once("\n\n").context("the end of [build]")?;
        fs::write(directory.join(configuration), format!("{before}{after}"))?;
    }
    Ok(())
}

/// Copies a file, or a directory without the `.gitignore` files of its build outputs.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        if entry.file_name() == ".gitignore" {
            continue;
        }
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Gives everything below a directory the modes that it has on other machines: copied modes depend on the
/// umask.
fn set_modes(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).with_context(|| path.display().to_string())?;
    let mode = if metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            set_modes(&entry?.path())?;
        }
    }
    Ok(())
}

/// Bundles the uploads of a deployment for each configuration and each environment, where nothing can be
/// built. Needs no account.
pub(crate) fn dry_run() -> Result<()> {
    let directory = root().join("target/xtask/workers");
    workers(&directory)?;
    // The free plan has no index.
    for (config, environment) in [
        ("wrangler.toml", ""),
        ("wrangler.toml", "base-sepolia"),
        ("wrangler.toml", "free"),
        ("wrangler.index.toml", ""),
        ("wrangler.index.toml", "base-sepolia"),
    ] {
        run(command(node_tool("wrangler"))
            .current_dir(&directory)
            .args(["deploy", "--dry-run", "--config", config, "--env", environment, "--outdir"])
            .arg(root().join("target/xtask/dry-run"))
            .env("CI", "true")
            .env("WRANGLER_SEND_METRICS", "false"))?;
    }
    Ok(())
}

fn npm() -> Result<()> {
    let (directory, package) = (fresh("npm")?, root().join("browser/pkg"));
    set_modes(&package)?;
    run(command("npm").args(["pack", "--silent", "--pack-destination"]).arg(directory).current_dir(package))
}

/// Packs the crates as `cargo publish` would upload them, into `package` of this directory.
pub(crate) fn pack_crates(target: &Path) -> Result<PathBuf> {
    let packed = target.join("package");
    empty(&packed)?;
    run(cargo()
        .args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"])
        .arg(target)
        .args(CRATES.map(|name| ["-p", name]).as_flattened()))?;
    Ok(packed)
}

fn crates() -> Result<()> {
    let directory = fresh("crates")?;
    for entry in fs::read_dir(pack_crates(&build_directory())?)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "crate") {
            fs::copy(&file, directory.join(file.file_name().context("a name")?))?;
        }
    }
    Ok(())
}

/// Returns a directory of Python programs, with these packages of PyPI.
fn venv(packages: &[&str]) -> Result<PathBuf> {
    let venv = build_directory().join("venv");
    if !venv.join("bin/pip").exists() {
        debian::install(&debian::VENV)?;
        run(command("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    run(command(venv.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    Ok(venv.join("bin"))
}

/// The maker of the wheel, and its dependencies: other versions may write other bytes.
const WHEEL: [&str; 7] = [
    "pip==26.3",
    "hatchling==1.33.0",
    "packaging==26.4",
    "pathspec==1.1.1",
    "pluggy==1.7.0",
    "tomlkit==0.15.2",
    "trove-classifiers==2026.9.21.13",
];

fn python() -> Result<()> {
    let directory = fresh("python")?;
    run(command(venv(&WHEEL)?.join("python"))
        .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"])
        .arg(directory)
        .arg(root().join("python"))
        .env("SOURCE_DATE_EPOCH", commit_time()?))
}

/// Returns the commit's time in unix seconds, the only time in build outputs.
fn commit_time() -> Result<String> {
    output_of(command("git").args(["log", "-1", "--format=%ct"])).context("the commit's time")
}

/// The linker of the programs, and its C compiler and C library for each target.
const ZIG: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];

/// Returns the directory of the wrapper of rustc that writes the list of dependencies into each program, for
/// `cargo audit bin` to read.
fn auditable() -> Result<PathBuf> {
    // Older versions ask for the symbol in a way that Zig's linker does not know.
    const PACKAGE: &str = "cargo-auditable@0.7.7";
    let root = build_directory().join(PACKAGE);
    let directory = root.join("bin");
    if !directory.join("cargo-auditable").exists() {
        run(cargo().args(["install", "--quiet", "--locked", PACKAGE, "--root"]).arg(&root))?;
    }
    Ok(directory)
}

fn binaries() -> Result<()> {
    let directory = fresh("bin")?;
    let tools = venv(&ZIG)?;
    let path = std::env::join_paths(
        [tools.clone(), auditable()?]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let target_dir = build_directory();
    for target in TARGETS {
        run(command("rustup").args(["target", "add", target]))?;
        let programs = PROGRAMS.map(|name| ["--bin", name]);
        let packages = PROGRAMS.map(|name| ["-p", name]);
        run(without_paths(&mut command(tools.join("cargo-zigbuild")))
            .args(["zigbuild", "--locked", "--profile", "dist", "--target", target])
            .arg("--target-dir")
            .arg(&target_dir)
            .args(packages.as_flattened())
            .args(programs.as_flattened())
            .env("PATH", &path)
            // As `cargo auditable` sets them, but for the wrapper's directory: cargo hashes its path into all
            // symbols.
            .env("RUSTC_WORKSPACE_WRAPPER", "cargo-auditable")
            .env("CARGO_AUDITABLE_ORIG_ARGS", r#"{"offline":false,"locked":true,"frozen":false,"config":[]}"#)
            .env("SOURCE_DATE_EPOCH", commit_time()?))?;
        let to = directory.join(target);
        fs::create_dir_all(&to)?;
        for name in PROGRAMS {
            fs::copy(target_dir.join(target).join("dist").join(name), to.join(name))?;
        }
    }
    shell_files(&directory.join(format!("{}-unknown-linux-musl", std::env::consts::ARCH)))
}

/// Writes manual pages and completions, the same for every target, by this machine's programs.
fn shell_files(programs: &Path) -> Result<()> {
    let share = fresh("share")?;
    for name in PROGRAMS {
        // Defaults are below the reader's home, not the builder's.
        let program = || {
            let mut program = command(programs.join(name));
            program.env_clear().env("HOME", "~");
            program
        };
        run(program().arg("man").arg(share.join("man/man1")))?;
        for (shell, place, file) in [
            ("bash", "bash-completion/completions", name.to_owned()),
            ("zsh", "zsh/site-functions", format!("_{name}")),
            ("fish", "fish/vendor_completions.d", format!("{name}.fish")),
        ] {
            let text = output_of(program().args(["completions", shell]))
                .with_context(|| format!("{name} completions {shell}"))?;
            fs::create_dir_all(share.join(place))?;
            fs::write(share.join(place).join(file), text + "\n")?;
        }
    }
    Ok(())
}

/// Writes bills of materials and licences of third parties.
fn sbom() -> Result<()> {
    venv(&ZIG)?;
    run(command("node")
        .arg("xtask/sbom.mjs")
        .arg(fresh("sbom")?)
        .args([commit_time()?, PROGRAMS.join(",")])
        .args(TARGETS))
}

/// Fills one folder with the files to download: the packages as they are, the other parts packed.
fn archives() -> Result<()> {
    let to = fresh("archives")?;
    let time = commit_time()?;
    let dist = directory();
    let pack = |name: &str, of_root: &[&str], from: &Path, files: &[&str]| {
        let name = format!("agent-registry-edge-{}-{name}", env!("CARGO_PKG_VERSION"));
        run(command("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"])
            .args(["--transform=s,^bin/[^/]*,bin,", "--transform=s,^sbom\\(/[^/]*-musl\\)\\?,sbom,"])
            .args(["--transform=s,^\\(LICENSE\\|sbom\\|relayer\\|kya\\),share/doc/agent-registry-edge/\\1,"])
            .args([format!("--transform=s,^,{name}/,"), format!("--mtime=@{time}")])
            .args(["--use-compress-program=gzip -9n", "--create", "--file"])
            .arg(to.join(format!("{name}.tar.gz")))
            .args(LICENCES)
            .args(of_root)
            .arg("--directory")
            .arg(from)
            .args(files))
    };
    pack("deploy", &[], &root(), &DEPLOY)?;
    pack(
        "workers",
        &[],
        &dist,
        &["workers", STANDARD_LIBRARY, "sbom/workers.cdx.json", "sbom/workers.licences.txt"],
    )?;
    for target in TARGETS {
        pack(
            target,
            &OPERATIONS,
            &dist,
            &[&format!("bin/{target}"), "share", STANDARD_LIBRARY, &format!("sbom/{target}")],
        )?;
    }
    // A release workflow makes no images.
    let images = Some("images").filter(|part| dist.join(part).is_dir());
    for part in ["npm", "crates", "python"].into_iter().chain(images) {
        copy(&dist.join(part), &to)?;
    }
    for file in ["npm.cdx.json", "npm.licences.txt"] {
        copy(&dist.join("sbom").join(file), &to.join(format!("agent-registry.{file}")))?;
    }
    sums(&to)
}

/// Writes the checksums of all files of a directory.
fn sums(directory: &Path) -> Result<()> {
    let script = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum";
    let sums = output_of(command("sh").args(["-c", script]).current_dir(directory)).context("sha256sum")?;
    let file = directory.join(SUMS);
    fs::write(&file, sums + "\n").with_context(|| file.display().to_string())?;
    println!("{}", file.display());
    Ok(())
}
