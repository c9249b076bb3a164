//! Reading JSON by field, with errors that name the node and the field.

use serde_json::{Map, Value};

/// A node whose content makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("ZooKeeper node {path}: {field}: {reason}")]
pub struct ZnodeError {
    /// The node.
    pub path: String,
    /// The field, or `content` for the whole.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The fields of one JSON object of one node.
pub(super) struct Fields<'a> {
    path: &'a str,
    within: &'static str,
    map: Map<String, Value>,
}

/// Largest node content that is parsed, in bytes (ZooKeeper's own default limit).
const CONTENT_BYTES_MAX: usize = 1024 * 1024;

impl<'a> Fields<'a> {
    pub(super) fn parse(path: &'a str, data: &[u8]) -> Result<Self, ZnodeError> {
        let refuse =
            |reason: String| ZnodeError { path: path.into(), field: "content".into(), reason };
        if data.len() > CONTENT_BYTES_MAX {
            return Err(refuse(format!("{} bytes are too many", data.len())));
        }
        match serde_json::from_slice(data) {
            Ok(Value::Object(map)) => Ok(Self { path, within: "", map }),
            Ok(_) => Err(refuse("not a JSON object".into())),
            Err(error) => Err(refuse(format!("not JSON ({error})"))),
        }
    }

    pub(super) fn error(&self, field: &str, reason: impl Into<String>) -> ZnodeError {
        ZnodeError {
            path: self.path.into(),
            field: format!("{}{field}", self.within),
            reason: reason.into(),
        }
    }

    pub(super) fn optional(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn required(&self, field: &str) -> Result<&Value, ZnodeError> {
        self.optional(field).ok_or_else(|| self.error(field, "missing"))
    }

    pub(super) fn integer<T: TryFrom<i64>>(&self, field: &str) -> Result<T, ZnodeError> {
        self.to_integer(field, self.required(field)?)
    }

    pub(super) fn to_integer<T: TryFrom<i64>>(
        &self,
        field: &str,
        value: &Value,
    ) -> Result<T, ZnodeError> {
        let number = value.as_i64().ok_or_else(|| self.error(field, "not a whole number"))?;
        T::try_from(number).map_err(|_| self.error(field, format!("{number} is out of range")))
    }

    pub(super) fn text(&self, field: &str) -> Result<&str, ZnodeError> {
        self.required(field)?.as_str().ok_or_else(|| self.error(field, "not a string"))
    }

    pub(super) fn object(&self, field: &str) -> Result<&Map<String, Value>, ZnodeError> {
        self.required(field)?.as_object().ok_or_else(|| self.error(field, "not an object"))
    }

    pub(super) fn array(&self, field: &str) -> Result<&Vec<Value>, ZnodeError> {
        self.required(field)?.as_array().ok_or_else(|| self.error(field, "not a list"))
    }

    /// The fields of an object inside this one; errors name it as `within` + field.
    pub(super) fn inner(
        &self,
        field: &str,
        within: &'static str,
    ) -> Result<Fields<'a>, ZnodeError> {
        Ok(Fields { path: self.path, within, map: self.object(field)?.clone() })
    }
}

/// Key of a JSON object that must be a number (a partition index, a broker id), 0 or greater.
pub(super) fn numeric_key(key: &str) -> Option<i32> {
    let canonical =
        key == "0" || (!key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit()));
    if canonical { key.parse().ok() } else { None }
}

/// A plain number as node content.
pub(super) fn plain_number(path: &str, data: &[u8]) -> Result<i32, ZnodeError> {
    let number = std::str::from_utf8(data).ok().and_then(|text| text.trim().parse::<i32>().ok());
    number.filter(|n| *n >= 0).ok_or_else(|| ZnodeError {
        path: path.into(),
        field: "content".into(),
        reason: "not a number of 0 or more".into(),
    })
}
