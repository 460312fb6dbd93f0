//! As much of the WebAssembly binary format as is needed here: the sections, what a module imports and exports, and the
//! removal of its names.

use anyhow::{Context as _, Result, bail, ensure};

const CUSTOM: u8 = 0;
const IMPORT: u8 = 2;
const EXPORT: u8 = 7;

/// One section of a module, header included.
struct Section<'a> {
    id: u8,
    whole: &'a [u8],
    content: &'a [u8],
}

/// `module.name` of everything the module imports.
pub(crate) fn imports(module: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for section in sections(module)?.into_iter().filter(|section| section.id == IMPORT) {
        let mut rest = section.content;
        for _ in 0..number(&mut rest)? {
            let module = name(&mut rest)?;
            let field = name(&mut rest)?;
            names.push(format!("{module}.{field}"));
            skip_import_type(&mut rest)?;
        }
    }
    Ok(names)
}

/// The names the module exports.
pub(crate) fn exports(module: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for section in sections(module)?.into_iter().filter(|section| section.id == EXPORT) {
        let mut rest = section.content;
        for _ in 0..number(&mut rest)? {
            names.push(name(&mut rest)?);
            take(&mut rest, 1)?;
            number(&mut rest)?;
        }
    }
    Ok(names)
}

/// The module without its `name` section, which only debuggers read.
pub(crate) fn without_names(module: &[u8]) -> Result<Vec<u8>> {
    let mut stripped = module.get(..8).context("too short for a module")?.to_vec();
    for section in sections(module)? {
        let mut content = section.content;
        if section.id != CUSTOM || name(&mut content)? != "name" {
            stripped.extend_from_slice(section.whole);
        }
    }
    Ok(stripped)
}

fn sections(module: &[u8]) -> Result<Vec<Section<'_>>> {
    let mut rest = module.strip_prefix(b"\0asm\x01\0\0\0").context("no WebAssembly module of version 1")?;
    let mut sections = Vec::new();
    while !rest.is_empty() {
        let start = rest;
        let id = take(&mut rest, 1)?.first().copied().unwrap_or_default();
        let length = number(&mut rest)?;
        let content = take(&mut rest, length)?;
        let whole = start.get(..start.len() - rest.len()).unwrap_or_default();
        sections.push(Section { id, whole, content });
    }
    Ok(sections)
}

fn skip_import_type(rest: &mut &[u8]) -> Result<()> {
    match take(rest, 1)? {
        [0] => {
            number(rest)?;
        }
        [1] => {
            take(rest, 1)?;
            skip_limits(rest)?;
        }
        [2] => skip_limits(rest)?,
        [3] => {
            take(rest, 2)?;
        }
        [4] => {
            take(rest, 1)?;
            number(rest)?;
        }
        other => bail!("an import of the unknown kind {other:?}"),
    }
    Ok(())
}

fn skip_limits(rest: &mut &[u8]) -> Result<()> {
    let flags = take(rest, 1)?;
    number(rest)?;
    if flags.first().is_some_and(|flags| flags & 1 == 1) {
        number(rest)?;
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length).context("the module is cut off")?;
    *rest = left;
    Ok(taken)
}

fn name(rest: &mut &[u8]) -> Result<String> {
    let length = number(rest)?;
    Ok(std::str::from_utf8(take(rest, length)?)?.to_owned())
}

/// An unsigned LEB128 number.
fn number(rest: &mut &[u8]) -> Result<usize> {
    let mut value: u64 = 0;
    for shift in (0..35).step_by(7) {
        let byte = take(rest, 1)?.first().copied().unwrap_or_default();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            ensure!(value <= u64::from(u32::MAX), "a number above 2^32");
            return Ok(usize::try_from(value)?);
        }
    }
    bail!("a number of more than five bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(module (import "env" "log" (func)) (import "env" "memory" (memory 1 2)) (export "f" (func 0)))` with names.
    fn module() -> Vec<u8> {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        module.extend([1, 4, 1, 0x60, 0, 0]);
        let imports = b"\x02\x03env\x03log\x00\x00\x03env\x06memory\x02\x01\x01\x02";
        module.extend([2, u8::try_from(imports.len()).unwrap()]);
        module.extend(imports);
        module.extend(b"\x07\x05\x01\x01f\x00\x00");
        module.extend(b"\x00\x07\x04name\x01\x00");
        module.extend(b"\x00\x05\x04keep");
        module
    }

    #[test]
    fn imports_and_exports_are_listed() {
        assert_eq!(imports(&module()).unwrap(), ["env.log", "env.memory"]);
        assert_eq!(exports(&module()).unwrap(), ["f"]);
        assert!(imports(b"\0asm\x01\0\0\0").unwrap().is_empty());
    }

    #[test]
    fn names_are_removed_and_nothing_else() {
        let stripped = without_names(&module()).unwrap();
        assert_eq!(stripped.len(), module().len() - 9);
        assert!(stripped.ends_with(b"\x04keep"));
        assert_eq!(imports(&stripped).unwrap(), imports(&module()).unwrap());
        assert_eq!(without_names(&stripped).unwrap(), stripped);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let module = module();
        for length in [0, 7, 9, 15, module.len() - 1] {
            assert!(sections(&module[..length]).is_err(), "{length}");
        }
    }
}
