//! ApiVersions (key 18), versions 0 to 3: KIP-35, KIP-511. Exactly the table of served keys.

use barnabas_wire::messages::ApiVersionsResponse;

pub(super) fn handle() -> ApiVersionsResponse {
    barnabas_wire::api_versions_response()
}
