//! Reads JSON objects member by member, with errors that name the member's path. Web pages load this code:
//! serde's derived code for the same shapes is several times as large, and does not name paths. A member that
//! breaks a rule reads as its default; the caller checks for the first error at the end.

use std::{cell::OnceCell, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::spelled::Spelled;

/// The most members of an object; those read here have at most half as many.
const MAX_MEMBERS: usize = 64;

/// The most elements of a list: a verdict rests on at most 140 slots, and a proof has at most 64 nodes.
const MAX_ITEMS: usize = 256;

/// A member and the rule that it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {rule}")]
pub struct MemberError {
    /// The member's path in the document, such as `layout.record.status`; `it` is the document.
    pub path: String,
    /// The rule.
    pub rule: &'static str,
}

/// The first error found.
#[derive(Default)]
pub(crate) struct FirstError(OnceCell<MemberError>);

impl FirstError {
    /// Returns the error, if there is one.
    pub(crate) fn end(self) -> Result<(), MemberError> {
        self.0.into_inner().map_or(Ok(()), Err)
    }

    fn add(&self, path: &str, name: &str, rule: &'static str) {
        self.0.get_or_init(|| MemberError { path: format!("{path}{name}"), rule });
    }
}

/// Strictness of reading an object.
#[derive(Clone, Copy)]
struct Strictness {
    /// Each value has one spelling.
    one_spelling: bool,
    /// Members may be left over.
    open: bool,
    /// Lists may be as long as the document allows.
    long_lists: bool,
}

/// The members of an object that are not read yet.
pub(crate) struct Members<'a> {
    errors: &'a FirstError,
    /// The path of the object in the document: empty, or such as `layout.record.`.
    path: String,
    members: Object<'a>,
    reading: Strictness,
}

impl<'a> Members<'a> {
    /// Reads a document, in which each value has one spelling.
    pub(crate) fn of_document(text: &'a str, errors: &'a FirstError) -> Self {
        Self::parse(text, errors, Strictness { one_spelling: true, open: false, long_lists: false })
    }

    /// Reads a document that people write: no unknown members, digits in either case. Its lists are as long
    /// as its bytes allow.
    pub(crate) fn of_written(text: &'a str, errors: &'a FirstError) -> Self {
        Self::parse(text, errors, Strictness { one_spelling: false, open: false, long_lists: true })
    }

    /// Reads a node's result, which may have other members and other spellings.
    pub(crate) fn of_answer(text: &'a str, errors: &'a FirstError) -> Self {
        Self::parse(text, errors, Strictness { one_spelling: false, open: true, long_lists: false })
    }

    fn parse(text: &'a str, errors: &'a FirstError, reading: Strictness) -> Self {
        let members = parse(text).unwrap_or_else(|| {
            errors.add("", "it", "must be a JSON object, each member of which is there once");
            Object::default()
        });
        Self { errors, path: String::new(), members, reading }
    }

    /// Returns whether there is a member with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some()
    }

    /// Takes a member as JSON text; empty if it is missing.
    pub(crate) fn take(&mut self, name: &str) -> &'a str {
        let place = self.members.0.iter().position(|(known, _)| *known == name);
        match place {
            Some(place) => self.members.0.swap_remove(place).1.get(),
            None => {
                self.fault(name, "is missing");
                ""
            }
        }
    }

    /// Takes a member in Ethereum's spelling.
    pub(crate) fn spelled<T: Spelled>(&mut self, name: &str) -> T {
        let text = self.take(name);
        self.value(name, text)
    }

    /// Takes a member that may be absent.
    pub(crate) fn optional<T: Spelled>(&mut self, name: &str) -> Option<T> {
        self.has(name).then(|| self.spelled(name))
    }

    /// Takes a list of values.
    pub(crate) fn list<T: Spelled>(&mut self, name: &str) -> Vec<T> {
        let items = self.items(name).into_iter().enumerate();
        items.map(|(place, item)| self.value(&format!("{name}[{place}]"), item.get())).collect()
    }

    /// Takes a text of any characters.
    pub(crate) fn text(&mut self, name: &str) -> String {
        parse(self.take(name)).unwrap_or_else(|| {
            self.fault(name, "must be a string");
            String::new()
        })
    }

    /// Takes a member that is an object.
    pub(crate) fn object(&mut self, name: &str) -> Self {
        let text = self.take(name);
        self.object_in(name, text)
    }

    /// Takes a list of objects.
    pub(crate) fn objects(&mut self, name: &str) -> Vec<Self> {
        let items = self.items(name).into_iter().enumerate();
        items.map(|(place, item)| self.object_in(&format!("{name}[{place}]"), item.get())).collect()
    }

    /// Takes a whole number in decimal digits, up to `max`.
    pub(crate) fn number(&mut self, name: &str, max: u64) -> u64 {
        let digits = self.take(name);
        let number = digits.parse().ok().filter(|number: &u64| *number <= max);
        number.filter(|number| number.to_string() == digits).unwrap_or_else(|| {
            self.fault(name, "must be a whole number in decimal digits, and not too large");
            0
        })
    }

    /// Checks that no member is left.
    pub(crate) fn end(self) {
        if let Some((name, _)) = self.members.0.first().filter(|_| !self.reading.open) {
            self.fault(name, "does not belong here");
        }
    }

    fn fault(&self, name: &str, rule: &'static str) {
        self.errors.add(&self.path, name, rule);
    }

    fn value<T: Spelled>(&self, name: &str, text: &str) -> T {
        let read = |text| T::read(text).filter(|value| self.takes(text, &value.spell()));
        string(text).and_then(read).unwrap_or_else(|| {
            self.fault(name, T::RULE);
            T::default()
        })
    }

    /// Returns whether a value may be written like this. People may choose the case of digits alone.
    fn takes(&self, text: &str, spelling: &str) -> bool {
        let Strictness { one_spelling, open, .. } = self.reading;
        let is_written = || !text.starts_with("0X") && text.eq_ignore_ascii_case(spelling);
        open || text == spelling || (!one_spelling && is_written())
    }

    fn object_in(&self, name: &str, text: &'a str) -> Self {
        let members = parse(text).unwrap_or_else(|| {
            self.fault(name, "must be an object, each member of which is there once");
            Object::default()
        });
        Self { path: format!("{}{name}.", self.path), members, ..*self }
    }

    fn items(&mut self, name: &str) -> Vec<&'a RawValue> {
        let text = self.take(name);
        let items = if self.reading.long_lists {
            parse::<Vec<&RawValue>>(text)
        } else {
            parse(text).map(|List(items)| items)
        };
        items.unwrap_or_else(|| {
            let rule = if self.reading.long_lists {
                "must be a list"
            } else {
                "must be a list of at most 256 elements"
            };
            self.fault(name, rule);
            Vec::new()
        })
    }
}

/// Returns the text between a string's quotes. No value here is spelled with escapes.
pub(crate) fn string(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// A list with few elements.
#[derive(Default)]
struct List<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<List<'de>, A::Error> {
                let mut list = List::default();
                while let Some(item) = access.next_element()? {
                    if list.0.len() == MAX_ITEMS {
                        return Err(A::Error::custom("there are too many elements"));
                    }
                    list.0.push(item);
                }
                Ok(list)
            }
        }

        deserializer.deserialize_seq(Visit)
    }
}

/// An object with few members, unique names, and no escapes in the names.
#[derive(Default)]
pub(crate) struct Object<'a>(pub(crate) Vec<(&'a str, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Returns a member as JSON text.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.get())
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object<'de>, A::Error> {
                let mut object = Object::default();
                while let Some((name, value)) = access.next_entry()? {
                    if object.0.len() == MAX_MEMBERS || object.get(name).is_some() {
                        return Err(A::Error::custom("a member is given twice, or there are too many"));
                    }
                    object.0.push((name, value));
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Visit)
    }
}
