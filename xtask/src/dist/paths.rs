//! No released file names a directory of the machine that built it: another machine would build other bytes.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use flate2::read::MultiGzDecoder;

use crate::run::{cargo_home, root};

/// Searches every file of a directory, compressed ones by their content. Wheels, which are zip files of
/// Python's sources, are searched as they are.
///
/// # Errors
/// A file names the clone's directory, cargo's or the user's. The message has the file and the directory.
/// Images are not searched for the user's: workerd names the directory of its own build, which may be the
/// same.
pub(super) fn ensure_none(directory: &Path) -> Result<()> {
    let of_clone_and_cargo = [root(), cargo_home()];
    let of_user = std::env::home_dir().filter(|home| home.parent().is_some());
    let in_images: Vec<String> = of_clone_and_cargo.iter().map(|path| prefix(path)).collect();
    let everywhere: Vec<String> =
        in_images.iter().cloned().chain(of_user.map(|path| prefix(&path))).collect();
    for file in files(directory)? {
        let is_image = file.starts_with(directory.join("images"));
        let paths = if is_image { &in_images } else { &everywhere };
        let content = content(&file).with_context(|| file.display().to_string())?;
        let content = String::from_utf8_lossy(&content);
        let named = paths.iter().find(|path| content.contains(path.as_str()));
        ensure!(named.is_none(), "{} names the path {}", file.display(), named.map_or("", String::as_str));
    }
    Ok(())
}

fn prefix(path: &Path) -> String {
    format!("{}/", path.display())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

fn content(file: &Path) -> Result<Vec<u8>> {
    const COMPRESSED: [&str; 3] = ["gz", "tgz", "crate"];
    let bytes = fs::read(file)?;
    if !file.extension().is_some_and(|extension| COMPRESSED.iter().any(|name| extension == *name)) {
        return Ok(bytes);
    }
    let mut content = Vec::new();
    MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::super::tests::directory_of_test;
    use super::*;

    #[test]
    fn a_file_that_names_the_clone_is_refused_also_if_it_is_compressed() {
        let directory = directory_of_test("paths");
        fs::create_dir(directory.join("bin")).unwrap();
        fs::write(directory.join("bin/clean"), b"\xff\0target/dist/").unwrap();
        ensure_none(&directory).unwrap();

        let told = [b"\xff\0", prefix(&root()).as_bytes(), b"core/src/lib.rs"].concat();
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        compressed.write_all(&told).unwrap();
        for (name, bytes) in [("bin/kya", told), ("packed.tgz", compressed.finish().unwrap())] {
            let file = directory.join(name);
            fs::write(&file, bytes).unwrap();
            let refused = ensure_none(&directory).unwrap_err().to_string();
            assert_eq!(refused, format!("{} names the path {}", file.display(), prefix(&root())));
            fs::remove_file(file).unwrap();
        }
        // A file that cannot be read is not skipped.
        fs::write(directory.join("broken.gz"), "no gzip").unwrap();
        assert!(format!("{:#}", ensure_none(&directory).unwrap_err()).contains("broken.gz"));
    }
}
