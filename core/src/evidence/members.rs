//! JSON objects read member by member, without a type for each. Pages and the Worker load this code: what serde derives for the same shapes is several times as
//! large, and so is an early return after each member. A fault gives the member its default; whoever reads asks for the first fault at the end.

use std::{cell::OnceCell, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{EvidenceError, wire::Spelled};

/// The most members that an object may have; those read here have half as many.
const MAX_MEMBERS: usize = 64;

/// The first fault that was met.
#[derive(Default)]
pub(super) struct Faults(OnceCell<String>);

impl Faults {
    /// The fault, if there was any.
    pub(super) fn end(self) -> Result<(), EvidenceError> {
        self.0.into_inner().map_or(Ok(()), |fault| Err(EvidenceError::Malformed(fault)))
    }

    #[inline(never)]
    fn add(&self, path: &str, name: &str, rule: &str) {
        self.0.get_or_init(|| format!("{path}{name} {rule}"));
    }
}

/// The members of an object that nobody has read yet.
pub(super) struct Members<'a> {
    faults: &'a Faults,
    /// Where the object is in the document: empty, or such as `layout.record.`.
    path: String,
    members: Object<'a>,
    /// Each value has one spelling, and no member is left over.
    strict: bool,
}

impl<'a> Members<'a> {
    /// Those of a document, in which each value has one spelling.
    pub(super) fn of_document(text: &'a str, faults: &'a Faults) -> Self {
        Self::parse(text, faults, true)
    }

    /// Those of what a node has answered, whatever else it says and however it spells it.
    pub(super) fn of_answer(text: &'a str, faults: &'a Faults) -> Self {
        Self::parse(text, faults, false)
    }

    fn parse(text: &'a str, faults: &'a Faults, strict: bool) -> Self {
        let members = parse(text).unwrap_or_else(|| {
            faults.add("", "it", "must be a JSON object, each member of which is there once");
            Object::default()
        });
        Self { faults, path: String::new(), members, strict }
    }

    /// Whether there is a member.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some()
    }

    /// A member, as JSON text.
    #[inline(never)]
    pub(super) fn take(&mut self, name: &str) -> &'a str {
        let place = self.members.0.iter().position(|(known, _)| *known == name);
        match place {
            Some(place) => self.members.0.swap_remove(place).1.get(),
            None => {
                self.fault(name, "is missing");
                ""
            }
        }
    }

    /// A member in Ethereum's spelling.
    pub(super) fn spelled<T: Spelled>(&mut self, name: &str) -> T {
        let text = self.take(name);
        self.value(name, text)
    }

    /// A member that may be absent.
    pub(super) fn optional<T: Spelled>(&mut self, name: &str) -> Option<T> {
        self.has(name).then(|| self.spelled(name))
    }

    /// A list of values.
    pub(super) fn list<T: Spelled>(&mut self, name: &str) -> Vec<T> {
        let items = self.items(name).into_iter().enumerate();
        items.map(|(place, item)| self.value(&format!("{name}[{place}]"), item.get())).collect()
    }

    /// A member that is an object.
    pub(super) fn object(&mut self, name: &str) -> Self {
        let text = self.take(name);
        self.object_in(name, text)
    }

    /// A list of objects.
    pub(super) fn objects(&mut self, name: &str) -> Vec<Self> {
        let items = self.items(name).into_iter().enumerate();
        items.map(|(place, item)| self.object_in(&format!("{name}[{place}]"), item.get())).collect()
    }

    /// A whole number in decimal digits, up to `max`.
    #[inline(never)]
    pub(super) fn number(&mut self, name: &str, max: u64) -> u64 {
        let digits = self.take(name);
        let number = digits.parse().ok().filter(|number: &u64| *number <= max);
        number.filter(|number| number.to_string() == digits).unwrap_or_else(|| {
            self.fault(name, "must be a whole number in decimal digits, and not too large");
            0
        })
    }

    /// Nothing is left.
    pub(super) fn end(self) {
        if let Some((name, _)) = self.members.0.first().filter(|_| self.strict) {
            self.fault(name, "does not belong here");
        }
    }

    fn fault(&self, name: &str, rule: &str) {
        self.faults.add(&self.path, name, rule);
    }

    fn value<T: Spelled>(&self, name: &str, text: &str) -> T {
        let spelled = |value: &T| !self.strict || value.spell() == string(text).unwrap_or_default();
        string(text).and_then(T::read).filter(spelled).unwrap_or_else(|| {
            self.fault(name, T::RULE);
            T::default()
        })
    }

    #[inline(never)]
    fn object_in(&self, name: &str, text: &'a str) -> Self {
        let members = parse(text).unwrap_or_else(|| {
            self.fault(name, "must be an object, each member of which is there once");
            Object::default()
        });
        Self { path: format!("{}{name}.", self.path), members, ..*self }
    }

    #[inline(never)]
    fn items(&mut self, name: &str) -> Vec<&'a RawValue> {
        parse(self.take(name)).unwrap_or_else(|| {
            self.fault(name, "must be a list");
            Vec::new()
        })
    }
}

/// What stands between a string's quotes. A string with escapes is none of those that a value here is spelled as.
pub(super) fn string(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// An object of a few members, no two of which have the same name, and whose names have no escapes.
#[derive(Default)]
pub(super) struct Object<'a>(pub(super) Vec<(&'a str, &'a RawValue)>);

impl<'a> Object<'a> {
    /// A member, as JSON text.
    #[inline(never)]
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
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
