//! ApiVersions (key 18), versions 0 to 4: KIP-35, KIP-511 (who the client is, from 3). Exactly the table of served keys.

use barnabas_types::Condition;
use barnabas_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::error_code;

/// First version in which the client names its software.
const SOFTWARE_VERSION: i16 = 3;

pub(super) fn handle(version: i16, request: &ApiVersionsRequest) -> ApiVersionsResponse {
    let named = [&request.client_software_name, &request.client_software_version];
    if version >= SOFTWARE_VERSION && !named.into_iter().all(|text| is_plain(text.as_str())) {
        let mut response = ApiVersionsResponse::default();
        response.error_code = error_code(&Condition::InvalidRequest(String::new()));
        return response;
    }
    barnabas_wire::api_versions_response()
}

/// Kafka's rule for what may become the label of a metric: letters, digits, and dots and dashes between them.
fn is_plain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    outer(text.bytes().next()) && outer(text.bytes().last()) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn a_client_that_cannot_be_named_is_refused_from_version_3_on() {
        for (name, plain) in [
            ("librdkafka", true),
            ("a", true),
            ("a-1.b", true),
            ("", false),
            ("-a", false),
            ("a b", false),
        ] {
            let mut request = ApiVersionsRequest::default();
            request.client_software_name = name.into();
            request.client_software_version = "2.0.2".into();
            for version in 0..=4 {
                let response = handle(version, &request);
                let code = if plain || version < 3 { 0 } else { 42 };
                assert_eq!(response.error_code, code, "{name} {version}");
                reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}
