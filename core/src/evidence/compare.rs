//! Two JSON texts compared by what they say: the order of an object's members and the spaces do not count, everything else does.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The path to the first thing in which two texts differ, such as `agent.status`; `None` where they say the same.
pub(super) fn difference(left: &str, right: &str) -> Option<String> {
    let (left, right) = (left.trim(), right.trim());
    if let (Ok(Object(left)), Ok(Object(right))) = (parse::<Object<'_>>(left), parse::<Object<'_>>(right)) {
        let only_right = right.keys().find(|name| !left.contains_key(*name));
        return left
            .iter()
            .find_map(|(name, value)| match right.get(name) {
                Some(other) => difference(value.get(), other.get()).map(|rest| join(name, &rest)),
                None => Some(name.to_string()),
            })
            .or_else(|| only_right.map(ToString::to_string));
    }
    if let (Ok(left), Ok(right)) = (parse::<Vec<&RawValue>>(left), parse::<Vec<&RawValue>>(right)) {
        let same = left.len() == right.len();
        let pairs = left.iter().zip(right).enumerate();
        return pairs
            .filter_map(|(place, (value, other))| {
                difference(value.get(), other.get()).map(|rest| join(&place.to_string(), &rest))
            })
            .next()
            .or_else(|| (!same).then(|| "length".to_owned()));
    }
    let same = match (parse::<String>(left), parse::<String>(right)) {
        (Ok(left), Ok(right)) => left == right,
        // Numbers digit by digit, however long they are.
        _ => left == right,
    };
    (!same).then(String::new)
}

fn join(first: &str, rest: &str) -> String {
    if rest.is_empty() { first.to_owned() } else { format!("{first}.{rest}") }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> serde_json::Result<T> {
    serde_json::from_str(text)
}

/// An object no two members of which have the same name.
struct Object<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object<'de>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = access.next_entry::<Cow<'de, str>, &'de RawValue>()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a member is given twice"));
                    }
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let document = r#"{"a":1,"b":{"c":[1,{"d":"x"}],"e":null}}"#;
        assert_eq!(difference(document, document), None);
        assert_eq!(difference(document, r#" { "b": {"e":null, "c":[1, {"d":"\u0078"}]}, "a":1 } "#), None);
        for (other, path) in [
            (r#"{"a":2,"b":{"c":[1,{"d":"x"}],"e":null}}"#, "a"),
            (r#"{"a":1.0,"b":{"c":[1,{"d":"x"}],"e":null}}"#, "a"),
            (r#"{"a":1,"b":{"c":[1,{"d":"y"}],"e":null}}"#, "b.c.1.d"),
            (r#"{"a":1,"b":{"c":[1],"e":null}}"#, "b.c.length"),
            (r#"{"a":1,"b":{"c":[1,{"d":"x"}]}}"#, "b.e"),
            (r#"{"a":1,"b":{"c":[1,{"d":"x"}],"e":null},"f":0}"#, "f"),
            (r#"{"a":1,"b":{"c":[1,{"d":"x"}],"e":null,"e":null}}"#, "b"),
            (r#"{"a":"1","b":{"c":[1,{"d":"x"}],"e":null}}"#, "a"),
        ] {
            assert_eq!(difference(document, other).as_deref(), Some(path), "{other}");
        }
    }
}
