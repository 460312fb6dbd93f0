//! Names of domains for people: the U-labels behind A-labels, and a check for names that look like others.

use std::collections::BTreeSet;

use icu_properties::{CodePointMapData, props::Script};
use registry_core::liability::DomainName;

/// Returns a name, with its U-labels behind it where it has some.
pub fn label(domain: &DomainName) -> String {
    match unicode(domain) {
        name if name == domain.as_str() => name,
        name => format!("{domain} ({name})"),
    }
}

/// Returns whether a label mixes scripts. Those of Chinese, Japanese and Korean count as one.
pub fn mixes_scripts(domain: &DomainName) -> bool {
    let scripts = CodePointMapData::<Script>::new();
    let mixes = |label: &str| {
        let scripts: BTreeSet<Script> = label
            .chars()
            .map(|letter| match scripts.get(letter) {
                Script::Hiragana | Script::Katakana | Script::Hangul | Script::Bopomofo => Script::Han,
                script => script,
            })
            .filter(|script| !matches!(*script, Script::Common | Script::Inherited))
            .collect();
        scripts.len() > 1
    };
    unicode(domain).split('.').any(mixes)
}

fn unicode(domain: &DomainName) -> String {
    idna::domain_to_unicode(domain.as_str()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_they_read_and_those_of_several_scripts_are_told() {
        for (name, shown, mixes) in [
            ("acme.example", "acme.example", false),
            ("xn--mller-kva.example", "xn--mller-kva.example (müller.example)", false),
            ("xn--e1afmkfd.xn--80akhbyknj4f", "xn--e1afmkfd.xn--80akhbyknj4f (пример.испытание)", false),
            // The first letter is Cyrillic.
            ("xn--cme-5cd.example", "xn--cme-5cd.example (аcme.example)", true),
            ("xn--r8jz45g.xn--zckzah", "xn--r8jz45g.xn--zckzah (例え.テスト)", false),
        ] {
            let name = DomainName::parse(name).unwrap();
            assert_eq!((label(&name).as_str(), mixes_scripts(&name)), (shown, mixes));
        }
    }
}
