//! Documents changed in one byte or one element: not one of them proves anything.
//!
//! `MUTATIONS` says how many (11,000 if it does not), `MUTATION_SEED` where the random numbers begin.

use registry_core::evidence;
use serde_json::Value;

use crate::{
    KINDS, Recorded,
    random::{Random, setting},
};

/// One byte of the text is another one, is gone, or is there twice.
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

/// The paths to everything in a document.
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

/// A document, and the paths to everything in it.
struct Document {
    text: String,
    value: Value,
    paths: Vec<String>,
}

impl Document {
    fn of(text: String) -> Self {
        let value: Value = serde_json::from_str(&text).unwrap();
        let mut paths = Vec::new();
        pointers(&value, "", &mut paths);
        Self { text, value, paths }
    }

    /// An element like the one at `path`: as deep, and in a list where that one is in a list.
    fn like(&self, path: &str, random: &mut Random) -> Option<&Value> {
        let kind = |path: &str| {
            let last = path.rsplit('/').next().unwrap_or_default();
            (path.matches('/').count(), last.parse::<usize>().is_ok())
        };
        let paths: Vec<&String> = self.paths.iter().filter(|other| kind(other) == kind(path)).collect();
        let place = random.place(paths.len());
        paths.get(place).and_then(|path| self.value.pointer(path))
    }
}

/// One element is another one, is gone, is there twice or elsewhere. `others` are documents to take one from.
fn change_element(document: &Document, others: &[Document], random: &mut Random) -> Value {
    let mut changed = document.value.clone();
    let path = &document.paths[random.place(document.paths.len())];
    // Two thirds by another element of the same kind: one from another place, or another document.
    if random.below(3) > 0 {
        let other = if random.below(2) == 0 { document } else { &others[random.place(others.len())] };
        if let Some(replacement) = other.like(path, random) {
            *changed.pointer_mut(path).unwrap() = replacement.clone();
        }
        return changed;
    }
    match changed.pointer_mut(path).unwrap() {
        Value::Array(items) if !items.is_empty() => {
            let (at, other) = (random.place(items.len()), random.place(items.len()));
            match random.below(5) {
                0 => drop(items.remove(at)),
                1 => items.insert(other, items[at].clone()),
                2 => items.swap(at, other),
                3 => items.truncate(at),
                _ => items.reverse(),
            }
        }
        Value::Object(members) if !members.is_empty() => {
            let name = members.keys().nth(random.place(members.len())).unwrap().clone();
            let value = members.remove(&name).unwrap();
            match random.below(3) {
                0 => {}
                1 => drop(members.insert(format!("{name}s"), value)),
                _ => {
                    members.insert(name, value);
                    members.insert("more".to_owned(), Value::Null);
                }
            }
        }
        Value::String(text) => match random.below(4) {
            0 => text.push_str("00"),
            1 => drop(text.pop()),
            2 => *text = text.to_uppercase().replace("0X", "0x"),
            _ => text.insert(text.len().min(2), '0'),
        },
        value => *value = Value::from(random.next() >> random.below(64)),
    }
    changed
}

#[test]
fn ten_thousand_changed_documents_are_all_refused() {
    let recorded = KINDS.map(Recorded::load);
    let documents: Vec<Document> =
        recorded.iter().map(|recorded| Document::of(recorded.document())).collect();
    let mut random = Random::seeded(0);
    let (count, mut refused) = (setting("MUTATIONS", 11_000), 0);
    let mut reasons = std::collections::BTreeMap::<String, u64>::new();
    for (recorded, document) in recorded.iter().zip(&documents) {
        let expected = recorded.expected();
        let verified = evidence::verify(&document.text, &expected).unwrap();
        // An agent's document is three times as long as one without: both kinds take the same time.
        let share = if verified.verdict.agent.is_some() { 9 } else { 3 };
        for _ in 0..count.div_ceil(share) {
            let changed = if random.below(2) == 0 {
                String::from_utf8(change_byte(&document.text, &mut random)).unwrap_or_default()
            } else {
                change_element(document, &documents, &mut random).to_string()
            };
            match evidence::verify(&changed, &expected) {
                Err(error) => {
                    refused += 1;
                    let kind = format!("{error:?}");
                    let kind = kind.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                    *reasons.entry(kind.to_owned()).or_default() += 1;
                }
                // Two equal nodes in one another's place, a space between two members: the same document.
                Ok(_) => {
                    let changed: Value = serde_json::from_str(&changed).unwrap();
                    assert!(changed == document.value, "accepted: {changed}");
                }
            }
        }
    }
    assert!(refused >= count / 11 * 10, "only {refused} documents were changed");
    // Each check has had its share of the work.
    let kinds = "Malformed AccountProof StorageProof Value OtherSlot HeaderHash Code Verdict Account";
    for kind in kinds.split(' ') {
        assert!(reasons.contains_key(kind), "{kind}: {reasons:?}");
    }
    println!("{refused} changed documents refused: {reasons:?}");
}
