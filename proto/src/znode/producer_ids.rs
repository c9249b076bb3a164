//! `/latest_producer_id_block`: the last block of producer ids that was handed out.

use barnabas_types::BrokerId;
use serde_json::json;

use super::json::{Fields, ZnodeError};
use super::paths;

/// A block of producer ids, taken by one broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerIdBlock {
    /// Who took it.
    pub broker: BrokerId,
    /// First id, inclusive, 0 or greater.
    pub first: i64,
    /// Last id, inclusive.
    pub last: i64,
}

impl ProducerIdBlock {
    /// Ids in a block (Kafka's).
    pub const LENGTH: i64 = 1000;

    /// The block after `last` (or the very first one) for `broker`; `None` if the ids are used up.
    #[must_use]
    pub fn after(last: Option<&Self>, broker: BrokerId) -> Option<Self> {
        let first = match last {
            None => 0,
            Some(block) => block.last.checked_add(1)?,
        };
        Some(Self { broker, first, last: first.checked_add(Self::LENGTH - 1)? })
    }

    /// The node's content.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        json!({
            "version": 1,
            "broker": self.broker.0,
            "block_start": self.first.to_string(),
            "block_end": self.last.to_string(),
        })
        .to_string()
        .into_bytes()
    }

    /// Reads the node's content.
    ///
    /// # Errors
    /// [`ZnodeError`] that names the field.
    pub fn parse(data: &[u8]) -> Result<Self, ZnodeError> {
        let fields = Fields::parse(paths::PRODUCER_ID_BLOCK, data)?;
        let id = |field: &str| -> Result<i64, ZnodeError> {
            let number = fields.text(field)?.parse::<i64>().ok().filter(|id| *id >= 0);
            number.ok_or_else(|| fields.error(field, "not a producer id"))
        };
        let block = Self {
            broker: BrokerId(fields.integer("broker")?),
            first: id("block_start")?,
            last: id("block_end")?,
        };
        if block.last < block.first {
            return Err(fields.error("block_end", "before block_start"));
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_one_another() {
        let first = ProducerIdBlock::after(None, BrokerId(1)).unwrap();
        assert_eq!((first.first, first.last), (0, 999));
        let second = ProducerIdBlock::after(Some(&first), BrokerId(2)).unwrap();
        assert_eq!((second.first, second.last), (1000, 1999));
        assert_eq!(ProducerIdBlock::parse(&second.write()), Ok(second));
        let end = ProducerIdBlock { broker: BrokerId(1), first: 0, last: i64::MAX - 5 };
        assert_eq!(ProducerIdBlock::after(Some(&end), BrokerId(1)), None);
    }

    #[test]
    fn kafkas_node_is_read_and_nonsense_refused() {
        let kafka = br#"{"version":1,"broker":1,"block_start":"0","block_end":"999"}"#;
        assert_eq!(ProducerIdBlock::parse(kafka).unwrap().last, 999);
        assert!(
            ProducerIdBlock::parse(br#"{"broker":1,"block_start":"-1","block_end":"9"}"#).is_err()
        );
        assert!(
            ProducerIdBlock::parse(br#"{"broker":1,"block_start":"10","block_end":"9"}"#).is_err()
        );
    }
}
