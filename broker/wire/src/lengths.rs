//! How lengths and strings are written in one version of a response that has a writer of its own.

use bytes::{BufMut, BytesMut};

use crate::reply::ReplyError;

/// The version's form of lengths.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    /// For errors: which message.
    pub(crate) message: &'static str,
    /// Whether lengths are compact, and structures end with tagged fields (KIP-482).
    pub(crate) flexible: bool,
}

impl Lengths {
    /// An empty tag section, where there is one.
    pub(crate) fn no_tags(self, buffer: &mut BytesMut) {
        if self.flexible {
            buffer.put_u8(0);
        }
    }

    /// An array that is not there.
    pub(crate) fn null_array(self, buffer: &mut BytesMut) {
        if self.flexible {
            buffer.put_u8(0);
        } else {
            buffer.put_i32(-1);
        }
    }

    /// The number of elements of an array.
    pub(crate) fn array(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        length: usize,
    ) -> Result<(), ReplyError> {
        self.length(buffer, field, length)
    }

    /// A four-byte length, or one more than it as an unsigned varint.
    pub(crate) fn length(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        length: usize,
    ) -> Result<(), ReplyError> {
        let max = i32::MAX as usize - 1;
        let too_long = ReplyError::FieldTooLong { message: self.message, field, length, max };
        let value = i32::try_from(length).ok().filter(|v| *v < i32::MAX).ok_or(too_long)?;
        if self.flexible {
            put_unsigned_varint(buffer, value.unsigned_abs() + 1);
        } else {
            buffer.put_i32(value);
        }
        Ok(())
    }

    /// A string that may not be null.
    pub(crate) fn string(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        text: &str,
    ) -> Result<(), ReplyError> {
        let too_long = |_| ReplyError::FieldTooLong {
            message: self.message,
            field,
            length: text.len(),
            max: 32_767,
        };
        let length = i16::try_from(text.len()).map_err(too_long)?;
        if self.flexible {
            put_unsigned_varint(buffer, u32::from(length.unsigned_abs()) + 1);
        } else {
            buffer.put_i16(length);
        }
        buffer.put_slice(text.as_bytes());
        Ok(())
    }

    /// A string that may be null.
    pub(crate) fn nullable_string(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        text: Option<&str>,
    ) -> Result<(), ReplyError> {
        match text {
            Some(text) => self.string(buffer, field, text)?,
            None if self.flexible => buffer.put_u8(0),
            None => buffer.put_i16(-1),
        }
        Ok(())
    }

    /// The size of a tagged field.
    pub(crate) fn tag_size(
        self,
        buffer: &mut BytesMut,
        field: &'static str,
        length: usize,
    ) -> Result<(), ReplyError> {
        let max = u32::MAX as usize;
        let too_long = |_| ReplyError::FieldTooLong { message: self.message, field, length, max };
        put_unsigned_varint(buffer, u32::try_from(length).map_err(too_long)?);
        Ok(())
    }
}

fn put_unsigned_varint(buffer: &mut BytesMut, mut value: u32) {
    while value > 0x7f {
        buffer.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    buffer.put_u8(value as u8);
}
