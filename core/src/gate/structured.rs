//! Structured fields (RFC 9651), as `sfv` parses and serialises them.

use sfv::{BareItem, Dictionary, InnerList, Item, ListEntry, Parameters, Parser};

/// Parses the dictionary in a combined field value; `None` for a syntax error.
pub(super) fn dictionary(value: &str) -> Option<Dictionary> {
    Parser::new(value).parse::<Dictionary>().ok()
}

/// Returns the bytes of a member that is a byte sequence.
pub(super) fn bytes_of<'a>(dictionary: &'a Dictionary, label: &str) -> Option<&'a [u8]> {
    match dictionary.get(label)? {
        ListEntry::Item(Item { bare_item: BareItem::ByteSequence(bytes), .. }) => Some(bytes),
        _ => None,
    }
}

/// Returns a parameter that is a String.
pub(super) fn text<'a>(parameters: &'a Parameters, key: &str) -> Option<&'a str> {
    match parameters.get(key)? {
        BareItem::String(text) => Some(text.as_str()),
        _ => None,
    }
}

/// Returns a parameter that is an Integer.
pub(super) fn integer(parameters: &Parameters, key: &str) -> Option<i64> {
    match parameters.get(key)? {
        BareItem::Integer(number) => Some(i64::from(*number)),
        _ => None,
    }
}

/// Serializes an item.
pub(super) fn item(item: &Item) -> Option<String> {
    use sfv::FieldType as _;
    Some(item.serialize())
}

/// Serializes an inner list with its parameters.
pub(super) fn inner_list(list: &InnerList) -> Option<String> {
    use sfv::FieldType as _;
    vec![ListEntry::InnerList(list.clone())].serialize()
}
