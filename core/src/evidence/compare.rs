//! A comparison of JSON texts. The order of members and white space do not matter, everything else does.

use serde_json::value::RawValue;

use crate::eth::members::{Object, parse};

/// Returns the path of the first difference, such as `agent.status`; `None` if the texts are equal.
pub(super) fn difference(left: &str, right: &str) -> Option<String> {
    let (left, right) = (left.trim(), right.trim());
    if let (Some(left), Some(right)) = (parse::<Object<'_>>(left), parse::<Object<'_>>(right)) {
        let only_right = right.0.iter().find(|(name, _)| left.get(name).is_none());
        return left
            .0
            .iter()
            .find_map(|(name, value)| match right.get(name) {
                Some(other) => difference(value.get(), other).map(|rest| join(name, &rest)),
                None => Some((*name).to_owned()),
            })
            .or_else(|| only_right.map(|(name, _)| (*name).to_owned()));
    }
    if let (Some(left), Some(right)) = (parse::<Vec<&RawValue>>(left), parse::<Vec<&RawValue>>(right)) {
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
        (Some(left), Some(right)) => left == right,
        // Numbers are compared digit by digit, of any length.
        _ => left == right,
    };
    (!same).then(String::new)
}

fn join(first: &str, rest: &str) -> String {
    if rest.is_empty() { first.to_owned() } else { format!("{first}.{rest}") }
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
