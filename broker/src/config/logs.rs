//! What a file says of the broker's own log.

use super::error::ConfigError;
use super::settings::Settings;
use crate::logs::{BadLevel, Format, Levels, LogConfig};

const LEVEL: &str = "logging.level";
const FORMAT: &str = "logging.format";

pub(super) fn read(s: &Settings) -> Result<LogConfig, ConfigError> {
    let format = match s.required(FORMAT)?.as_str() {
        "text" => Format::Text,
        "json" => Format::Json,
        _ => return Err(s.bad(FORMAT)),
    };
    // What is not given is the default of each target, and no word of the file.
    let given = s.given(LEVEL)?.unwrap_or_default();
    let levels = Levels::parse(&given).map_err(|error| match error {
        BadLevel::Level { .. } => s.bad(LEVEL),
        other => s.not_served(LEVEL, &given, &other.to_string()),
    })?;
    Ok(LogConfig { format, levels })
}
