//! Text from elsewhere (clients, other brokers, ZooKeeper) on its way into a log line.
//!
//! It cannot begin a line of its own, move a terminal's cursor, turn the direction of what follows, pass for another field, or be long.

use std::fmt::{self, Display, Write};

/// Characters of a name that are written.
const NAME_CHARS_MAX: usize = 128;
/// Characters of a sentence that are written.
const SENTENCE_CHARS_MAX: usize = 1024;

/// What is written of a text from elsewhere: control characters and those that no reader sees (U+202E and its kin) escaped as in
/// Rust's literals, the rest cut behind a bound, with `…`. In log lines as a `%field`.
#[derive(Clone, Copy)]
pub struct Sanitised<T> {
    text: T,
    chars_max: usize,
    quoted: bool,
}

impl<T: Display> Sanitised<T> {
    /// A client id, a group, a name, an address: 128 characters; in quotes unless it is one plain word.
    pub fn name(text: T) -> Self {
        Self { text, chars_max: NAME_CHARS_MAX, quoted: true }
    }

    /// A sentence that has such text in it: 1,024 characters.
    pub fn sentence(text: T) -> Self {
        Self { text, chars_max: SENTENCE_CHARS_MAX, quoted: false }
    }
}

impl<T: Display> Display for Sanitised<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = self.quoted && !is_plain(&self.text);
        if quoted {
            f.write_char('"')?;
        }
        let mut out = Out { to: f, left: self.chars_max, quoted };
        // An error is the bound, or that of `f`, which says so again below.
        let whole = write!(out, "{}", self.text).is_ok();
        if !whole {
            f.write_char('…')?;
        }
        if quoted { f.write_char('"') } else { Ok(()) }
    }
}

impl<T: Display> fmt::Debug for Sanitised<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// One word of printable ASCII that needs no escape.
fn is_plain(text: &impl Display) -> bool {
    struct Look {
        any: bool,
    }
    impl Write for Look {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.any |= !part.is_empty();
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
            if part.chars().all(plain) { Ok(()) } else { Err(fmt::Error) }
        }
    }
    let mut look = Look { any: false };
    write!(look, "{text}").is_ok() && look.any
}

/// Escapes what passes through; an error once more than `left` characters came.
struct Out<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    left: usize,
    quoted: bool,
}

impl Write for Out<'_, '_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            match c {
                // Only between quotes could it end something.
                '\'' => self.to.write_char(c)?,
                '"' if !self.quoted => self.to.write_char(c)?,
                _ => write!(self.to, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_or_in_quotes() {
        for (from, to) in [
            ("rdkafka", "rdkafka"),
            ("orders-app_1.b/c:9", "orders-app_1.b/c:9"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("x\" topic=t", "\"x\\\" topic=t\""),
            ("topic=t", "\"topic=t\""),
            ("a\\b", "\"a\\\\b\""),
            ("a\nINFO forged", "\"a\\nINFO forged\""),
            ("\u{1b}[2J", "\"\\u{1b}[2J\""),
            ("gpj.\u{202e}exe", "\"gpj.\\u{202e}exe\""),
            ("\u{2066}\u{200b}\u{feff}\u{2028}", "\"\\u{2066}\\u{200b}\\u{feff}\\u{2028}\""),
            ("Größe", "\"Größe\""),
        ] {
            assert_eq!(Sanitised::name(from).to_string(), to, "{from:?}");
        }
    }

    #[test]
    fn what_is_long_is_cut_wherever_the_parts_end() {
        let exactly = "x".repeat(NAME_CHARS_MAX);
        assert_eq!(Sanitised::name(&exactly).to_string(), exactly);
        let long = format!("{exactly}y");
        assert_eq!(Sanitised::name(&long).to_string(), format!("{exactly}…"));
        let parts = format_args!("{exactly}{}", "y").to_string();
        assert_eq!(Sanitised::name(parts).to_string(), format!("{exactly}…"));
        let many = Sanitised::name("\n".repeat(1_000_000)).to_string();
        assert_eq!(many, format!("\"{}…\"", "\\n".repeat(NAME_CHARS_MAX)));
        let sentence = Sanitised::sentence("s ".repeat(SENTENCE_CHARS_MAX)).to_string();
        assert_eq!(sentence.chars().count(), SENTENCE_CHARS_MAX + 1);
    }

    #[test]
    fn sentences_keep_their_quotes_and_lose_what_is_not_seen() {
        let said = "topic 'a\u{7}' is \"b\"\r\n\u{202e}";
        assert_eq!(
            Sanitised::sentence(said).to_string(),
            "topic 'a\\u{7}' is \"b\"\\r\\n\\u{202e}"
        );
    }

    #[test]
    fn no_text_writes_a_character_that_is_not_seen() {
        for c in
            ('\0'..=char::MAX).filter(|c| c.is_control() || ('\u{200b}'..'\u{2010}').contains(c))
        {
            let text = format!("a{c}b");
            for shown in [Sanitised::name(&text), Sanitised::sentence(&text)] {
                assert!(!shown.to_string().contains(c), "{c:?}");
            }
        }
    }
}
