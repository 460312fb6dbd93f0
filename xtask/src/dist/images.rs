//! `cargo xtask dist images`: a container image of each service, built by buildah without a daemon. Nothing
//! runs in them meanwhile, so that those of another processor are built the same way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{
    LICENCES, OF_WORKERS, STANDARD_LIBRARY, build_all, build_directory, commit_time, copy, directory, empty,
    fresh, set_modes,
};
use crate::debian;
use crate::run::{command, output_of, root, run};

/// The images' names for processors, and the targets of their programs.
const ARCHITECTURES: [(&str, &str); 2] =
    [("amd64", "x86_64-unknown-linux-musl"), ("arm64", "aarch64-unknown-linux-musl")];
const PROGRAMS: [&str; 2] = ["relayer-daemon", "kya-gate"];
const EDGE: &str = "edge";
/// Processor that npm has installed workerd for.
const OF_EDGE: &str = "amd64";
/// Libraries of Debian's libc6 that workerd is linked with.
const LIBRARIES: [&str; 5] = ["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"];

pub(super) fn images() -> Result<()> {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    ensure_debian(std::env::consts::ARCH, &system)?;
    debian::install(&debian::BUILDAH)?;
    build_all()?;
    let archives = fresh("images")?;
    let packages = packages()?;
    for (architecture, target) in ARCHITECTURES {
        let context = context(architecture, target, &packages)?;
        let edge = (architecture == OF_EDGE).then_some(EDGE);
        for name in PROGRAMS.into_iter().chain(edge) {
            image(name, architecture, &context, &archives)?;
        }
    }
    Ok(())
}

/// Checks the machine: images have files of Debian 12's packages, those of this machine's processor.
fn ensure_debian(processor: &str, system: &str) -> Result<()> {
    let of = |name: &str| {
        let value = system.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or("?").trim_matches('"').to_owned()
    };
    let (id, version) = (of("ID"), of("VERSION_ID"));
    ensure!(
        processor == "x86_64" && id == "debian" && version == "12",
        "images are made on Debian 12 on x86_64 and have files of its packages; this is {id} {version} on {processor}"
    );
    Ok(())
}

/// Returns the directory in which images are put together.
fn images_directory() -> PathBuf {
    build_directory().join("images")
}

/// Returns an emptied directory below it.
fn scratch(name: &str) -> Result<PathBuf> {
    let scratch = images_directory().join(name);
    empty(&scratch)?;
    Ok(scratch)
}

/// Unpacks the files of Debian's packages that images need a part of, and what dpkg would keep of each in
/// `status.d`. Installs nothing.
fn packages() -> Result<PathBuf> {
    const UNPACK: &str = r#"mkdir status.d
for file in *.deb; do
  dpkg-deb -x "$file" .
  dpkg-deb -f "$file" > "status.d/$(dpkg-deb -f "$file" Package)"
done"#;
    let packages = scratch("debian")?;
    run(command("apt-get")
        .args(["download", "-qq", "-o", "APT::Sandbox::User=root", "ca-certificates", "libc6"])
        .current_dir(&packages))?;
    run(command("sh").args(["-ec", UNPACK]).current_dir(&packages))?;
    Ok(packages)
}

/// Makes the directory that the images of a processor are copied from: a root for all, and one for each.
fn context(architecture: &str, target: &str, packages: &Path) -> Result<PathBuf> {
    let context = scratch(architecture)?;
    let base = context.join("base");
    let certificates = base.join("etc/ssl/certs");
    fs::create_dir_all(&certificates)?;
    fs::create_dir(context.join("data"))?;
    let mut authorities = Vec::new();
    let mut files = fs::read_dir(packages.join("usr/share/ca-certificates/mozilla"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    for file in files {
        authorities.extend(fs::read(file)?);
    }
    fs::write(certificates.join("ca-certificates.crt"), authorities)?;
    of_debian("ca-certificates", packages, &base)?;
    for name in PROGRAMS {
        let program = directory().join("bin").join(target).join(name);
        ensure!(program.is_file(), "{} is missing: cargo xtask dist binaries makes it", program.display());
        documents(&format!("{target}/{name}"), &context.join(name), name)?;
        copy(&program, &context.join(name).join(name))?;
    }
    if architecture == OF_EDGE {
        edge(&context.join(EDGE), packages)?;
    }
    set_modes(&context)?;
    Ok(context)
}

/// Copies a package's licence, and the file by which scanners of images know it.
fn of_debian(package: &str, packages: &Path, to: &Path) -> Result<()> {
    let licence = format!("usr/share/doc/{package}");
    let status = to.join("var/lib/dpkg/status.d");
    fs::create_dir_all(to.join(&licence))?;
    fs::create_dir_all(&status)?;
    copy(&packages.join(&licence).join("copyright"), &to.join(&licence).join("copyright"))?;
    copy(&packages.join("status.d").join(package), &status.join(package))
}

/// Copies the bill of materials of an image, and all licences.
fn documents(part: &str, to: &Path, name: &str) -> Result<()> {
    let (sbom, documents) = (directory().join("sbom"), to.join("usr/share/doc").join(name));
    fs::create_dir_all(&documents)?;
    for kind in ["cdx.json", "licences.txt"] {
        let file = sbom.join(format!("{part}.{kind}"));
        ensure!(file.is_file(), "{} is missing: cargo xtask dist sbom makes it", file.display());
        copy(&file, &documents.join(format!("{name}.{kind}")))?;
    }
    copy(&directory().join(STANDARD_LIBRARY), &documents.join("rust-std.html"))?;
    LICENCES.iter().try_for_each(|licence| copy(&root().join(licence), &documents.join(licence)))
}

/// Fills the edge's root: workerd, its libraries, and both Workers.
fn edge(to: &Path, packages: &Path) -> Result<()> {
    for directory in ["usr/bin", "lib64", "lib/x86_64-linux-gnu"] {
        fs::create_dir_all(to.join(directory))?;
    }
    copy(&root().join("node_modules/@cloudflare/workerd-linux-64/bin/workerd"), &to.join("usr/bin/workerd"))?;
    for part in OF_WORKERS {
        copy(&root().join(part), &to.join("srv").join(part))?;
    }
    // At the path where workerd looks for it; a link in the package.
    let libraries = packages.join("lib/x86_64-linux-gnu");
    copy(&libraries.join("ld-linux-x86-64.so.2"), &to.join("lib64/ld-linux-x86-64.so.2"))?;
    for library in LIBRARIES {
        copy(&libraries.join(library), &to.join("lib/x86_64-linux-gnu").join(library))?;
    }
    of_debian("libc6", packages, to)?;
    documents(EDGE, to, EDGE)
}

/// Returns a command of buildah, with a storage of its own.
fn buildah() -> Command {
    let storage = images_directory();
    let mut buildah = command("buildah");
    buildah.args(["--storage-driver", "vfs", "--root"]).arg(storage.join("storage"));
    buildah.arg("--runroot").arg(storage.join("run"));
    buildah
}

/// Script that makes an archive of an image the same for each build: in the format of Docker, which health
/// checks need, buildah writes the names of its containers. The arguments are the archive, an empty
/// directory, and the time of its files.
const WITHOUT_CONTAINERS: &str = r#"set -eu
tar -xf "$1" -C "$2"
cd "$2"
rm -rf -- repositories $(find . -mindepth 1 -maxdepth 1 -type d)
config=$(find . -name '*.json' ! -name manifest.json -printf %f)
sed -E -i -e 's/"Hostname":"[0-9a-f]{12}"/"Hostname":""/g' -e 's/"(container|parent)":"(sha256:)?[0-9a-f]{64}",//g' \
  -e 's/,"comment":"FROM [0-9a-f]{12}"//g' "$config"
digest=$(sha256sum "$config" | cut -d ' ' -f 1)
mv "$config" "$digest.json"
sed -i "s/$config/$digest.json/" manifest.json
tar --sort=name --mtime="@$3" --owner=0 --group=0 --numeric-owner -c -- * | gzip --no-name > "$1.gz"
rm "$1"
"#;

/// Builds an image, and writes it to an archive that `docker load` and `podman load` take.
fn image(name: &str, architecture: &str, context: &Path, archives: &Path) -> Result<()> {
    let revision = output_of(command("git").args(["rev-parse", "HEAD"])).context("the commit")?;
    let version = env!("CARGO_PKG_VERSION");
    // Set in a workflow.
    let [server, repository] =
        ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY"].map(|name| std::env::var(name).unwrap_or_default());
    let labels = [
        ("title", name),
        ("version", version),
        ("revision", &revision),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("source", &format!("{server}/{repository}")),
    ];
    let tag = format!("agent-registry/{name}:{version}");
    run(buildah()
        // OCI's own format has no health checks.
        .args(["build", "--quiet", "--format", "docker", "--no-cache", "--identity-label=false"])
        .args(["--platform", &format!("linux/{architecture}"), "--timestamp", &commit_time()?])
        .args(
            labels
                .iter()
                .filter(|(_, value)| *value != "/")
                .map(|(label, value)| format!("--label=org.opencontainers.image.{label}={value}")),
        )
        .args(["--target", name, "--tag", &tag, "--file", "deploy/Containerfile"])
        .arg(context))?;
    let archive = archives.join(format!("{name}-{version}-linux-{architecture}.tar"));
    run(buildah()
        .args(["push", "--quiet", &tag])
        .arg(format!("docker-archive:{}:{tag}", archive.display())))?;
    run(command("sh")
        .args(["-c", WITHOUT_CONTAINERS, "sh"])
        .args([archive, scratch("archive")?])
        .arg(commit_time()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_refused_where_debian_12_of_x86_64_is_not() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n";
        ensure_debian("x86_64", debian).unwrap();
        for (processor, system, this) in [
            ("aarch64", debian, "debian 12 on aarch64"),
            ("x86_64", "ID=ubuntu\nVERSION_ID=\"24.04\"\n", "ubuntu 24.04 on x86_64"),
            ("x86_64", "ID=debian\nVERSION_ID=\"13\"\n", "debian 13 on x86_64"),
            ("x86_64", "", "? ? on x86_64"),
        ] {
            let refused = ensure_debian(processor, system).unwrap_err().to_string();
            assert!(refused.ends_with(&format!("; this is {this}")), "{refused}");
        }
    }
}
