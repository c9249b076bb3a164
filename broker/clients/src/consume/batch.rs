//! Records that are processed together, and their result.

use std::collections::BTreeMap;

use rdkafka::message::{BorrowedMessage, Message as _};

/// One record, as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Vec<u8>,
}

impl From<&BorrowedMessage<'_>> for Taken {
    fn from(message: &BorrowedMessage<'_>) -> Self {
        Self {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().unwrap_or_default().to_vec(),
        }
    }
}

/// How a record is shown in the output.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Shown<'a> {
    pub(super) with_offsets: bool,
    pub(super) key_separator: Option<&'a str>,
}

/// The result of the records processed so far, and the offsets that go with it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Processed {
    pub(super) output: Vec<u8>,
    /// Next offset of each partition, exclusive end of what is in the output.
    pub(super) offsets: BTreeMap<i32, i64>,
    pub(super) records: u64,
}

impl Processed {
    pub(super) fn push(&mut self, taken: &Taken, shown: Shown<'_>) {
        if shown.with_offsets {
            self.output
                .extend_from_slice(format!("{} {} ", taken.partition, taken.offset).as_bytes());
        }
        if let (Some(separator), Some(key)) = (shown.key_separator, &taken.key) {
            self.output.extend_from_slice(key);
            self.output.extend_from_slice(separator.as_bytes());
        }
        self.output.extend_from_slice(&taken.value);
        self.output.push(b'\n');
        self.offsets.insert(taken.partition, taken.offset + 1);
        self.records += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_and_its_offsets_go_together() {
        let taken = |partition, offset, key: Option<&str>| Taken {
            partition,
            offset,
            key: key.map(|key| key.as_bytes().to_vec()),
            value: format!("v{offset}").into_bytes(),
        };
        let mut processed = Processed::default();
        processed.push(&taken(0, 4, Some("k")), Shown::default());
        processed
            .push(&taken(1, 9, Some("k")), Shown { with_offsets: true, key_separator: Some("=") });
        processed.push(&taken(0, 5, None), Shown { with_offsets: false, key_separator: Some("=") });
        assert_eq!(String::from_utf8(processed.output.clone()).unwrap(), "v4\n1 9 k=v9\nv5\n");
        assert_eq!((processed.offsets, processed.records), (BTreeMap::from([(0, 6), (1, 10)]), 3));
    }
}
