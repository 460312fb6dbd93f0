//! Documents changed in one byte or one element: none of them verifies.
//!
//! Every element is changed in every way listed here; `MUTATIONS` is the number of changed bytes (8,000 by
//! default), `MUTATION_SEED` the seed of the random numbers.

use std::collections::BTreeMap;

use registry_core::evidence;
use serde_json::{Value, json};

use crate::common::random::{Random, setting};
use crate::{KINDS, Recorded};

/// Changes, removes or doubles one byte of the text, or cuts the text there.
fn change_byte(text: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    // The registry's code is half of a document, and guarded by one hash: most changes are elsewhere.
    let start = text.find("\"code\":").unwrap();
    let code = start..start + text[start..].find(',').unwrap();
    let places = std::iter::repeat_with(|| random.place(bytes.len())).take(4);
    let at = places.reduce(|at, next| if code.contains(&at) { next } else { at }).unwrap();
    match random.below(8) {
        0 => bytes[at] = random.next() as u8,
        1 => bytes[at] = random.pick(b"{}[]\",:x\\ "),
        2 => bytes[at] ^= 1 << random.below(8),
        3 => drop(bytes.remove(at)),
        4 => bytes.insert(at, bytes[at]),
        5 => bytes.truncate(at),
        // Still a digit where it was one.
        _ => bytes[at] = random.pick(b"0123456789abcdef"),
    }
    bytes
}

/// Collects the paths to everything in a document.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| pointers(value, &format!("{path}/{name}"), found));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(place, item)| pointers(item, &format!("{path}/{place}"), found));
        }
        _ => {}
    }
}

/// Returns variants of an element: a member or item missing, doubled or moved, a longer or shorter text,
/// another number.
fn others_like(element: &Value) -> Vec<Value> {
    match element {
        Value::Array(items) => {
            let reversed = items.iter().rev().cloned().collect();
            let twice = items.iter().chain(items.first()).cloned().collect();
            let shorter = |place| [&items[..place], &items[place + 1..]].concat();
            (0..items.len()).map(shorter).chain([reversed, twice, Vec::new()]).map(Value::from).collect()
        }
        Value::Object(members) => {
            let without = |name: &String| {
                let mut other = members.clone();
                other.remove(name);
                other
            };
            let mut more = members.clone();
            more.insert("more".to_owned(), Value::Null);
            members.keys().map(without).chain([more]).map(Value::from).collect()
        }
        Value::String(text) => {
            let upper = text.to_uppercase().replace("0X", "0x");
            let (start, end) = text.split_at(text.len().min(2));
            let shorter = &text[..text.len().saturating_sub(1)];
            [json!(format!("{text}00")), json!(shorter), json!(upper), json!(format!("{start}0{end}"))].into()
        }
        Value::Number(number) => {
            vec![json!(number.as_u64().unwrap() + 1), json!(0), json!(number.to_string())]
        }
        Value::Bool(holds) => vec![json!(!holds)],
        Value::Null => vec![json!({})],
    }
}

#[test]
fn ten_thousand_changed_documents_are_all_refused() {
    let recorded = KINDS.map(Recorded::load);
    let texts: Vec<String> = recorded.iter().map(Recorded::document).collect();
    let documents: Vec<Value> = texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let mut random = Random::seeded(0);
    let (mut refused, mut reasons) = (0_u64, BTreeMap::<String, u64>::new());
    for ((recorded, text), document) in recorded.iter().zip(&texts).zip(&documents) {
        let expected = recorded.expected();
        assert!(evidence::verify(text, &expected).is_ok());
        let mut is_refused = |changed: &str| match evidence::verify(changed, &expected) {
            Err(error) => {
                refused += 1;
                let kind = format!("{error:?}");
                let kind = kind.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                *reasons.entry(kind.to_owned()).or_default() += 1;
            }
            // Two equal nodes swapped, or a space between two members, leave the same document.
            Ok(_) => assert!(serde_json::from_str::<Value>(changed).unwrap() == *document, "{changed}"),
        };
        for _ in 0..setting("MUTATIONS", 8_000) / 5 {
            is_refused(&String::from_utf8(change_byte(text, &mut random)).unwrap_or_default());
        }
        let mut paths = Vec::new();
        pointers(document, "", &mut paths);
        for path in paths {
            let element = document.pointer(&path).unwrap();
            // Null, and what the other documents have there, as well.
            let elsewhere = documents.iter().filter_map(|other| other.pointer(&path)).cloned();
            for other in others_like(element).into_iter().chain(elsewhere).chain([Value::Null]) {
                let mut changed = document.clone();
                *changed.pointer_mut(&path).unwrap() = other;
                is_refused(&changed.to_string());
            }
        }
    }
    println!("{refused} changed documents refused: {reasons:?}");
    assert!(refused > 10_000, "only {refused} documents were changed");
    // Each check has had its share of the work.
    for kind in
        "Malformed AccountProof StorageProof Value OtherSlot HeaderHash Code Verdict Account".split(' ')
    {
        assert!(reasons.contains_key(kind), "{kind}: {reasons:?}");
    }
}
