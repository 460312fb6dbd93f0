//! Faults of a configuration file, without its values, which may hold keys and passwords.

use std::{fmt, ops::Range};

/// A file that cannot be read, or has a field that is missing, unknown or of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The line, and the key or the table that stands there.
    pub place: String,
    /// The rule that is broken there.
    pub rule: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

impl std::error::Error for ConfigFault {}

impl ConfigFault {
    /// Creates the fault that a parser found at `span` of the TOML `text`, with the parser's message.
    #[must_use]
    pub fn new(text: &str, span: Option<Range<usize>>, message: &str) -> Self {
        let before = text.get(..span.map_or(0, |span| span.start)).unwrap_or_default();
        let number = before.matches('\n').count();
        let line = text.lines().nth(number).unwrap_or_default().trim();
        let name = match line.split_once('=') {
            Some((key, _)) => key.trim(),
            None if line.starts_with('[') => line,
            None => "",
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.[]".contains(&byte);
        let mut place = format!("line {}", number + 1);
        if !name.is_empty() && name.bytes().all(is_plain) {
            place.push_str(": ");
            place.push_str(name);
        }
        Self { place, rule: without_values(message) }
    }
}

/// Removes the texts that a message of serde's quotes.
#[must_use]
pub fn without_values(message: &str) -> String {
    let (mut kept, mut is_quoted, mut is_escaped) = (String::new(), false, false);
    for character in message.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => {
                kept.push_str(if is_quoted { "…\"" } else { "\"" });
                is_quoted = !is_quoted;
            }
            _ if is_quoted => {}
            _ => kept.push(character),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_place_and_no_value() {
        let text = "[chain]\nid = 1\nrpc = [\n  \"https://a/k3y?a=1\",\n]\n";
        for (at, message, expected) in [
            (0, "missing field `id`", "line 1: [chain]: missing field `id`"),
            (8, "invalid type", "line 2: id: invalid type"),
            (
                15,
                "invalid type: string \"k3y\", expected u64",
                "line 3: rpc: invalid type: string \"…\", expected u64",
            ),
            (24, "relative URL: \"k\\\"3y\\\\\"", "line 4: relative URL: \"…\""),
            (999, "an end: \"k3y", "line 1: [chain]: an end: \""),
        ] {
            assert_eq!(ConfigFault::new(text, Some(at..at), message).to_string(), expected);
        }
    }
}
