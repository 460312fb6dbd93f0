//! The words of texts, as the full-text table holds them and as they are searched. Splitting them here makes
//! a search of a record's text agree with one of the table.

/// Returns a text's words in lower case, separated by single spaces. A word is a run of letters and digits.
pub(super) fn words(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().map(lower));
    }
    words
}

/// Returns the lower case of a Latin, Greek or Cyrillic letter. The standard library's tables for all scripts
/// would add 5 KB to the Worker.
fn lower(letter: char) -> char {
    let code = u32::from(letter);
    let lower = match letter {
        'A'..='Z' | 'À'..='Ö' | 'Ø'..='Þ' | 'Α'..='Ρ' | 'Σ'..='Ϋ' | 'А'..='Я' => code + 32,
        'Ѐ'..='Џ' => code + 80,
        // In Latin Extended-A small letters follow capital ones.
        'Ā'..='į' | 'Ĳ'..='ķ' | 'Ŋ'..='ŷ' => code | 1,
        'Ĺ'..='ň' | 'Ź'..='ž' => code + code % 2,
        'Ÿ' => u32::from('ÿ'),
        _ => code,
    };
    char::from_u32(lower).unwrap_or(letter)
}

/// Returns whether a text has all these [`words`]; the last may be a prefix.
pub(super) fn has_words(text: &str, wanted: &str) -> bool {
    let text = words(text);
    let (whole, last) = wanted.rsplit_once(' ').unwrap_or(("", wanted));
    whole.split_terminator(' ').all(|word| text.split(' ').any(|found| found == word))
        && text.split(' ').any(|found| found.starts_with(last))
}

/// Quotes each of the [`words`] for a full-text query, so that nothing in it is syntax.
pub(super) fn expression(wanted: &str) -> String {
    format!("\"{}\"*", wanted.replace(' ', "\" \""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_run_of_letters_and_digits_in_lower_case() {
        for (text, expected) in [
            ("", ""),
            ("’ — …", ""),
            ("Trades  CO2-rights\u{0}, für Ärzte", "trades co2 rights für ärzte"),
            ("\"NEAR(a, 2)\" OR *", "near a 2 or"),
            ("研究 ΑΘΗΝΑ Ёлка Ѓ", "研究 αθηνα ёлка ѓ"),
            ("ŁÓDŹ Žižkov Ÿ ĿĶŸ ×", "łódź žižkov ÿ ŀķÿ"),
        ] {
            assert_eq!(words(text), expected);
        }
        assert_eq!(expression("carbon ri"), "\"carbon\" \"ri\"*");
    }

    #[test]
    fn letters_have_the_lower_case_that_unicode_says() {
        for letter in ('\0'..'ƀ').chain('Ͱ'..='ϯ').chain('Ѐ'..='џ') {
            let expected: Vec<char> = letter.to_lowercase().collect();
            let is_left = matches!(letter, 'İ' | 'Ͱ'..='Ώ' | 'Ϗ'..='ϯ');
            assert!(is_left || [lower(letter)] == *expected, "{letter}: {}", lower(letter));
        }
    }
}
