//! Why a question is not answered.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;

use super::super::answer::Answer;

/// How long a page that came too early waits, in milliseconds.
const RETRY_AFTER_MS: u64 = 2_000;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct Refusal {
    status: StatusCode,
    code: &'static str,
    /// For people.
    pub(in crate::http) message: String,
    retry_after_ms: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_ms: None }
    }

    /// The question is no question.
    pub(in crate::http) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// There is no such thing.
    pub(in crate::http) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Later.
    pub(in crate::http) fn not_ready(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message);
        Self { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
    }

    /// Too many ask.
    pub(in crate::http) fn too_many(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message);
        Self { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
    }

    /// To be asked again when so much time has passed.
    pub(in crate::http) fn after(self, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self { retry_after_ms: Some(wait), ..self }
    }

    /// Making the answer failed.
    pub(in crate::http) fn failed() -> Self {
        let said = "the answer could not be made; the broker's log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", said)
    }

    /// Nobody changes anything through this port.
    pub(in crate::http) fn read_only() -> Self {
        let said = "this broker has no operator token (http.operator.token.file): nothing can be changed through this port";
        Self::new(StatusCode::FORBIDDEN, "read_only", said)
    }

    /// Not from there.
    pub(in crate::http) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The token is missing or wrong.
    pub(in crate::http) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// The cluster has moved on, or the plan was run.
    pub(in crate::http) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// The body is of another kind.
    pub(in crate::http) fn media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_request", message)
    }

    /// The body is too large.
    pub(in crate::http) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_request", message)
    }

    /// The body does not come.
    pub(in crate::http) fn too_slow(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "bad_request", message)
    }

    #[cfg(test)]
    pub(in crate::http) fn status(&self) -> StatusCode {
        self.status
    }

    /// As it goes out.
    pub(in crate::http) fn answer(&self) -> Answer {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(wait) = self.retry_after_ms {
            error["retry_after_ms"] = wait.into();
        }
        Answer::json(&json!({ "error": error })).with(self.status)
    }
}
