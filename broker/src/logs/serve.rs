//! Levels over gRPC: `barnabas broker log-level`.

use barnabas_controller::LogLevels;
use barnabas_proto::v1;
use barnabas_types::Condition;

use super::Logs;

impl LogLevels for Logs {
    fn log_levels(&self, request: v1::LogLevelsRequest) -> v1::LogLevelsResponse {
        let v1::LogLevelsRequest { reset, set } = request;
        let set: Vec<_> = set.into_iter().map(|one| (one.target, one.level)).collect();
        let changes = reset || !set.is_empty();
        let before = self.summary();
        if changes && let Err(error) = self.set(reset, &set) {
            let condition = Condition::InvalidRequest(error.to_string());
            return v1::LogLevelsResponse {
                failure: Some((&condition).into()),
                ..v1::LogLevelsResponse::default()
            };
        }
        if changes {
            // At a level that is nearly always logged: whoever reads the log later has to know why it says more, or less.
            tracing::warn!(before, levels = self.summary(), "the log levels were changed");
        }
        let levels = self.levels().into_iter().map(|one| v1::LogLevel {
            target: one.target,
            level: one.level.name().to_owned(),
            source: one.source.name().to_owned(),
        });
        v1::LogLevelsResponse { levels: levels.collect(), ..v1::LogLevelsResponse::default() }
    }
}
