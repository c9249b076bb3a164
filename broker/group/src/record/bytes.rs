//! Kafka's primitive types, read from a slice and written to a buffer.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::DamagedRecord;

/// Reads fields from the front.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Lengths are varints plus one and structures end with tagged fields (KIP-482).
    flexible: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, flexible: false }
    }

    /// From here on, lengths are compact.
    pub(super) fn flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DamagedRecord> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DamagedRecord::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DamagedRecord> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DamagedRecord::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn i16(&mut self) -> Result<i16, DamagedRecord> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, DamagedRecord> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, DamagedRecord> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn varint(&mut self) -> Result<u32, DamagedRecord> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| DamagedRecord::Length);
            }
        }
        Err(DamagedRecord::Length)
    }

    /// A length; `None` is null.
    fn length(&mut self, short: bool) -> Result<Option<usize>, DamagedRecord> {
        let length = if self.flexible {
            i64::from(self.varint()?) - 1
        } else if short {
            i64::from(self.i16()?)
        } else {
            i64::from(self.i32()?)
        };
        match length {
            -1 => Ok(None),
            _ => usize::try_from(length).map(Some).map_err(|_| DamagedRecord::Length),
        }
    }

    pub(super) fn nullable_string(&mut self) -> Result<Option<Arc<str>>, DamagedRecord> {
        let Some(length) = self.length(true)? else { return Ok(None) };
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| DamagedRecord::NotUtf8)?;
        Ok(Some(text.into()))
    }

    pub(super) fn string(&mut self) -> Result<Arc<str>, DamagedRecord> {
        self.nullable_string()?.ok_or(DamagedRecord::Length)
    }

    /// Bytes, copied.
    pub(super) fn bytes(&mut self) -> Result<Bytes, DamagedRecord> {
        let length = self.length(false)?.ok_or(DamagedRecord::Length)?;
        Ok(Bytes::copy_from_slice(self.take(length)?))
    }

    /// Elements of an array. The count is checked against what is there: each takes at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, DamagedRecord> {
        let count = self.length(false)?.ok_or(DamagedRecord::Length)?;
        if count > self.rest.len() { Err(DamagedRecord::Length) } else { Ok(count) }
    }

    /// Skips the tagged fields that end a flexible structure.
    pub(super) fn tags(&mut self) -> Result<(), DamagedRecord> {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            let _tag = self.varint()?;
            let length = self.varint()?;
            self.take(usize::try_from(length).map_err(|_| DamagedRecord::Length)?)?;
        }
        Ok(())
    }
}

/// Longest string of a record, in bytes. Longer ones are refused before they get here.
pub(crate) const NAME_BYTES_MAX: usize = i16::MAX as usize;

/// The text's beginning, at most so many bytes of whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Writes Kafka's non-flexible types.
pub(super) trait Writer {
    /// A string; one of more than [`NAME_BYTES_MAX`] is cut.
    fn put_string(&mut self, text: &str);
    fn put_nullable_string(&mut self, text: Option<&str>);
    fn put_length_and_bytes(&mut self, bytes: &[u8]);
}

impl Writer for BytesMut {
    fn put_string(&mut self, text: &str) {
        let text = cut(text, NAME_BYTES_MAX);
        self.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        self.put_slice(text.as_bytes());
    }

    fn put_nullable_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.put_string(text),
            None => self.put_i16(-1),
        }
    }

    fn put_length_and_bytes(&mut self, bytes: &[u8]) {
        self.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.put_slice(bytes);
    }
}
