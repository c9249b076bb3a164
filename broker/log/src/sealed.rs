//! A checksum for text files whose format is Kafka's and has none.
//!
//! In checkpoints it is 32 blanks at the end of the last line, a space for each 0 and a tab for each 1: Kafka splits lines at
//! white space and does not see them. In `partition.metadata` it is a third line, which Kafka does not read. Without it a
//! flipped bit could move a log start up, and take acknowledged records with it. Files without one are Kafka's, and taken as
//! they are.

use std::fmt::Write as _;

use crate::batch::CrcStream;

const BITS: u32 = 32;
const COMMENT: &str = "# crc32c ";

fn crc(text: &str) -> u32 {
    let mut crc = CrcStream::new();
    crc.update(text.as_bytes());
    crc.finish()
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// Adds the blanks to a checkpoint that has an entry and ends with a newline.
pub(crate) fn seal_blank(text: &mut String) {
    text.truncate(text.trim_end_matches('\n').len());
    let crc = crc(text);
    text.extend((0..BITS).rev().map(|bit| if crc >> bit & 1 == 1 { '\t' } else { ' ' }));
    text.push('\n');
}

/// Whether a checkpoint is what was written, as far as it tells.
pub(crate) fn blank_fits(text: &str) -> bool {
    // Kafka's end with a newline too: without it this one was cut.
    let Some(text) = text.strip_suffix('\n') else { return false };
    let content = text.trim_end_matches(is_blank);
    let blanks = &text[content.len()..];
    if blanks.is_empty() {
        return true;
    }
    let bits = blanks.chars().fold(0_u64, |bits, c| bits << 1 | u64::from(c == '\t'));
    blanks.len() == BITS as usize && bits == u64::from(crc(content))
}

/// Adds the comment to a properties file.
pub(crate) fn seal_comment(text: &mut String) {
    let crc = crc(text);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{COMMENT}{crc:08x}");
}

/// Whether a properties file is what was written, as far as it tells.
pub(crate) fn comment_fits(text: &str) -> bool {
    let Some(at) = text.find(COMMENT) else { return true };
    let (content, comment) = text.split_at(at);
    comment == format!("{COMMENT}{:08x}\n", crc(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All single bit flips that leave a text, and all beginnings.
    fn damaged(text: &str) -> impl Iterator<Item = String> {
        let bytes = text.as_bytes().to_vec();
        let cuts = (0..bytes.len()).map({
            let bytes = bytes.clone();
            move |length| bytes[..length].to_vec()
        });
        let flips = (0..bytes.len() * 8).map(move |bit| {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        cuts.chain(flips).filter_map(|bytes| String::from_utf8(bytes).ok())
    }

    #[test]
    fn a_sealed_checkpoint_shows_every_flipped_bit_and_every_cut_within_its_entries() {
        let mut text = "0\n2\na 0 4\nb 11 90\n".to_owned();
        assert!(blank_fits(&text), "Kafka's");
        seal_blank(&mut text);
        assert!(blank_fits(&text));
        assert_eq!(text.lines().last().unwrap().split_whitespace().count(), 3);
        // A flip in the last blank itself may hide the checksum, but then the entries are whole. A cut after a whole line
        // leaves too few of them.
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let good = words(&text);
        let harmless = |text: &str| text.lines().count() < 4 || words(text).starts_with(&good);
        assert!(damaged(&text).all(|text| !blank_fits(&text) || harmless(&text)));
    }

    #[test]
    fn a_sealed_properties_file_shows_every_flipped_bit_of_its_content() {
        let mut text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n".to_owned();
        let content = text.clone();
        assert!(comment_fits(&text), "Kafka's");
        seal_comment(&mut text);
        assert!(comment_fits(&text));
        assert!(
            damaged(&text)
                .filter(|text| !text.starts_with(&content))
                .all(|text| !comment_fits(&text) || !text.contains(COMMENT))
        );
    }
}
