//! Requests mutated at random: only the one that was signed is admitted, and no field panics.

use registry_core::gate::{Links, Origin, Outcome, SignatureRules};

use crate::message::{COMPONENTS, EditableRequest, parameters, rules};
use crate::random::{Random, setting};

/// Replaces, adds or removes one byte of a text.
fn changed(text: &str, random: &mut Random) -> String {
    const ALPHABET: &[u8] = b"abcXYZ012/?&=%.-_ :";
    let mut bytes = text.as_bytes().to_vec();
    let at = random.place(bytes.len() + 1);
    match random.below(3) {
        0 if at < bytes.len() => bytes[at] = random.pick(ALPHABET),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        _ => bytes.insert(at, random.pick(ALPHABET)),
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_request_that_is_not_the_one_signed_is_never_admitted() {
    let mut random = Random::seeded(0);
    let vector = EditableRequest::vector().set("x-order", "7 of 9".to_owned());
    let extended: Vec<&str> = COMPONENTS.into_iter().chain(["x-order"]).collect();
    let signed = vector.sign(&extended, &parameters(1_700_000_000, 1_700_000_060));
    assert!(signed.verify(&rules()).is_ok());
    let mut tried = 0;
    while tried < 4_000 {
        let mut other = signed.clone();
        match random.below(7) {
            0 => other.method = changed(&other.method, &mut random),
            1 | 2 => other.target = changed(&other.target, &mut random),
            3 => other.content = changed(&other.content, &mut random),
            4 => {
                let origin = format!("https://{}", changed("api.example", &mut random));
                let Some(parsed) = Origin::parse(&origin) else { continue };
                if parsed == Origin::parse(&signed.origin).unwrap() {
                    continue;
                }
                other.origin = origin;
            }
            _ => {
                let name = random.pick(&["content-digest", "content-type", "x-order"]);
                other = other.edit(name, |value| changed(value, &mut random));
                if other.field(name).trim_matches([' ', '\t']) == signed.field(name) {
                    continue;
                }
            }
        }
        if other == signed {
            continue;
        }
        tried += 1;
        assert!(other.verify(&rules()).is_err(), "{other:?}");
    }
}

/// Parts of fields, and characters that fields must not hold.
#[rustfmt::skip]
const PIECES: [&str; 24] = [
    "request=", "(", ")", "\"@query\"", ";created=", "999999999999999", "-999999999999999", ";expires=", ";keyid=",
    "\"eip155:1:", ";tag=\"erc8128\"", ":AAAA:", ",", ";", "=", "\"", "?1", "1.5", "@1", "%\"a\"",
    "\"@query-param\";name=\"a\"", "sha-256=", "\u{e9}", "\0",
];

#[test]
fn no_field_panics() {
    let mut random = Random::seeded(1);
    let rules = SignatureRules { components: vec!["x".to_owned()], longest_validity: u64::MAX, ..rules() };
    for _ in 0..setting("GATE_MUTATIONS", 20_000) {
        let mut message = EditableRequest::vector();
        for _ in 0..=random.below(4) {
            let index = random.place(message.fields.len());
            let value = &mut message.fields[index].1;
            let places: Vec<usize> =
                (0..=value.len()).filter(|place| value.is_char_boundary(*place)).collect();
            let (from, to) = (random.pick(&places), random.pick(&places));
            match random.below(4) {
                0 => value.insert_str(from, random.pick(&PIECES)),
                1 => value.replace_range(from.min(to)..from.max(to), ""),
                2 => value.replace_range(from.min(to)..from.max(to), random.pick(&PIECES)),
                _ => {
                    let piece = value[from.min(to)..from.max(to)].to_owned();
                    value.insert_str(from, &piece);
                }
            }
        }
        if random.below(8) == 0 {
            message.target = changed(&message.target, &mut random);
            message.now = random.next();
        }
        let outcome = match message.verify(&rules) {
            Ok(_) => continue,
            Err(refusal) => Outcome::Refused(refusal),
        };
        let answer = message.with(|request| outcome.answer(request, &rules, &Links::default()));
        assert!(matches!(answer.status, 400 | 401), "{answer:?}");
    }
}
