//! One configuration file's values, read as their keys want them; every refusal names place, key and form.

use std::path::{Path, PathBuf};

use serde_yaml::Value;

use super::address::{HostPort, ZooKeeperConnect};
use super::error::ConfigError;
use super::keys::Key;
use super::{keys, units, yaml};

/// The settings of one file, each key known and given once.
pub(super) struct Settings {
    pub(super) file: PathBuf,
    pub(super) entries: Vec<yaml::Entry>,
}

impl Settings {
    pub(super) fn read(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let settings = Self::lines(file, text)?;
        match (0..settings.entries.len()).find_map(|i| settings.refused(i)) {
            Some(error) => Err(error),
            None => Ok(settings),
        }
    }

    /// What the file says, known or not.
    pub(super) fn lines(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let entries = yaml::entries(text)
            .map_err(|message| ConfigError::Syntax { file: file.to_owned(), message })?;
        Ok(Self { file: file.to_owned(), entries })
    }

    /// Why an entry's key cannot stand where it does, if so.
    pub(super) fn refused(&self, index: usize) -> Option<ConfigError> {
        let entry = &self.entries[index];
        if keys::find(&entry.key).is_none() {
            let remedy = match keys::nearest(&entry.key) {
                Some(nearest) => format!("did you mean '{nearest}'?"),
                None => {
                    "it is not served by this version; remove it (README lists the keys)".to_owned()
                }
            };
            let key = entry.key.chars().filter(|c| !c.is_control()).take(120).collect();
            return Some(ConfigError::UnknownKey { place: self.place(entry), key, remedy });
        }
        let is_second = self.entries[..index].iter().any(|earlier| earlier.key == entry.key);
        is_second.then(|| ConfigError::Twice { place: self.place(entry), key: entry.key.clone() })
    }

    pub(super) fn place(&self, entry: &yaml::Entry) -> String {
        match entry.line {
            Some(line) => format!("{}, line {line}", self.file.display()),
            None => self.file.display().to_string(),
        }
    }

    /// The entry of a key; an empty value (`key:`) counts as absent.
    pub(super) fn entry(&self, key: &'static str) -> Option<&yaml::Entry> {
        self.entries.iter().find(|entry| entry.key == key && entry.value != Value::Null)
    }

    /// The value as text, or the key's default; `None` if there is neither. No key takes control characters.
    pub(super) fn raw(&self, key: &'static str) -> Result<Option<String>, ConfigError> {
        let Some(entry) = self.entry(key) else {
            let spec = keys::find(key);
            return Ok(spec.map(|s| s.default.clone()).filter(|d| !d.is_empty()));
        };
        let text = match &entry.value {
            Value::String(_) | Value::Number(_) | Value::Bool(_) => yaml::text(&entry.value),
            // A list is Kafka's comma-separated text, where a key takes one.
            Value::Sequence(items)
                if keys::find(key).is_some_and(Key::takes_a_list)
                    && items.iter().all(|item| !item.is_sequence() && !item.is_mapping()) =>
            {
                items.iter().map(yaml::text).collect::<Vec<_>>().join(",")
            }
            _ => return Err(self.bad(key)),
        };
        if text.chars().any(char::is_control) { Err(self.bad(key)) } else { Ok(Some(text)) }
    }

    /// The value as text if the file gives one.
    pub(super) fn given(&self, key: &'static str) -> Result<Option<String>, ConfigError> {
        if self.entry(key).is_some() { self.raw(key) } else { Ok(None) }
    }

    pub(super) fn required(&self, key: &'static str) -> Result<String, ConfigError> {
        self.raw(key)?.ok_or_else(|| ConfigError::Missing {
            file: self.file.clone(),
            key,
            form: keys::find(key).map(|spec| spec.form.clone()).unwrap_or_default(),
        })
    }

    pub(super) fn bad(&self, key: &'static str) -> ConfigError {
        let value = self.entry(key).map(|entry| yaml::shown(&entry.value)).unwrap_or_default();
        let mut form = keys::find(key).map(|spec| spec.form.clone()).unwrap_or_default();
        let is_list = self.entry(key).is_some_and(|entry| entry.value.is_sequence());
        if let Some(plain) = keys::find(key).and_then(|spec| units::plain(spec, &value)) {
            form = format!("{form}, as a number alone: write {plain}");
        } else if is_list && keys::find(key).is_some_and(|spec| !spec.takes_a_list()) {
            form = format!("{form}, and no list: write the value alone");
        }
        ConfigError::BadValue { place: self.place_of(key), key, value, form }
    }

    pub(super) fn not_served(
        &self,
        key: &'static str,
        value: impl ToString,
        reason: &str,
    ) -> ConfigError {
        let place = self.place_of(key);
        let (value, reason) = (value.to_string(), reason.to_owned());
        ConfigError::NotServed { place, key, value, reason, other: None }
    }

    /// As [`Settings::not_served`], because of what another key says.
    pub(super) fn contradicts(
        &self,
        key: &'static str,
        other: &'static str,
        value: impl ToString,
        reason: &str,
    ) -> ConfigError {
        // The line that is in the file, if only one is.
        let place = self.place_of(if self.entry(key).is_some() { key } else { other });
        let (value, reason) = (value.to_string(), reason.to_owned());
        ConfigError::NotServed { place, key, value, reason, other: Some(other) }
    }

    pub(super) fn place_of(&self, key: &'static str) -> String {
        self.entry(key).map_or_else(|| self.file.display().to_string(), |entry| self.place(entry))
    }

    /// A whole number in `min..=max`.
    pub(super) fn number<T: TryFrom<i64>>(
        &self,
        key: &'static str,
        min: i64,
        max: i64,
    ) -> Result<T, ConfigError> {
        let value: i64 = self.required(key)?.parse().map_err(|_| self.bad(key))?;
        if value < min || value > max {
            return Err(self.bad(key));
        }
        T::try_from(value).map_err(|_| self.bad(key))
    }

    pub(super) fn switch(&self, key: &'static str) -> Result<bool, ConfigError> {
        match self.required(key)?.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.bad(key)),
        }
    }

    pub(super) fn text(&self, key: &'static str) -> Result<Option<String>, ConfigError> {
        match self.raw(key)? {
            Some(text) if text.is_empty() => Err(self.bad(key)),
            text => Ok(text),
        }
    }

    pub(super) fn address(&self, key: &'static str) -> Result<HostPort, ConfigError> {
        HostPort::parse(&self.required(key)?).ok_or_else(|| self.bad(key))
    }

    /// One PLAINTEXT listener.
    pub(super) fn plaintext(&self, key: &'static str) -> Result<HostPort, ConfigError> {
        let text = self.required(key)?;
        if text.contains(',') {
            return Err(self.not_served(key, text, "this version serves one listener; keep one"));
        }
        HostPort::parse_plaintext(&text).ok_or_else(|| self.bad(key))
    }

    /// An advertised address: as given, or that of the listener unless nobody could dial it.
    pub(super) fn advertised(
        &self,
        key: &'static str,
        of: &'static str,
        listener: &HostPort,
    ) -> Result<HostPort, ConfigError> {
        let Some(text) = self.raw(key)? else {
            if listener.is_wildcard() {
                let reason = format!(
                    "it cannot be advertised as it is; add `{key}` with an address that others can dial"
                );
                return Err(self.not_served(of, listener, &reason));
            }
            return Ok(listener.clone());
        };
        let parsed = match key {
            "advertised.listeners" => self.plaintext(key)?,
            _ => HostPort::parse(&text).ok_or_else(|| self.bad(key))?,
        };
        if parsed.is_wildcard() {
            let reason = "clients cannot dial every address; give one that they can reach";
            return Err(self.not_served(key, parsed, reason));
        }
        Ok(parsed)
    }

    /// One or more directories, none twice.
    pub(super) fn directories(&self, key: &'static str) -> Result<Vec<PathBuf>, ConfigError> {
        let text = self.required(key)?;
        let mut found: Vec<PathBuf> = Vec::new();
        for name in text.split(',').map(str::trim) {
            if name.is_empty() {
                return Err(self.bad(key));
            }
            let path = PathBuf::from(name);
            if found.contains(&path) {
                return Err(self.not_served(
                    key,
                    &text,
                    &format!("{name} is named twice; keep one"),
                ));
            }
            found.push(path);
        }
        Ok(found)
    }

    pub(super) fn zookeeper(&self) -> Result<ZooKeeperConnect, ConfigError> {
        let key = "zookeeper.connect";
        ZooKeeperConnect::parse(&self.required(key)?).ok_or_else(|| self.bad(key))
    }
}
