//! The body of a request that was admitted: bounded in size and time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};

use super::super::api::Refusal;

/// The largest plan that can be asked for: a move of some hundred partitions.
const BODY_BYTES_MAX: usize = 256 << 10;
/// How long it may take to come.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// The whole body.
pub(in crate::http) async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::too_large(format!("the body may have {BODY_BYTES_MAX} bytes"));
    let least = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if least > BODY_BYTES_MAX {
        return Err(too_large());
    }
    let whole = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_DEADLINE, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::bad("the body broke off")),
        Err(_) => Err(Refusal::too_slow("the body took too long")),
    }
}
