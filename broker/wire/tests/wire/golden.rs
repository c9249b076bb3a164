//! ApiVersions, byte for byte: the first answer that every client reads.

use barnabas_wire::{SERVED, api_versions_response, api_versions_unsupported, reply};

/// key, lowest, highest version.
const ADVERTISED: [[u8; 6]; 32] = [
    [0, 0, 0, 0, 0, 11],
    [0, 1, 0, 4, 0, 17],
    [0, 2, 0, 1, 0, 9],
    [0, 3, 0, 0, 0, 13],
    [0, 8, 0, 2, 0, 9],
    [0, 9, 0, 1, 0, 9],
    [0, 10, 0, 0, 0, 6],
    [0, 11, 0, 0, 0, 9],
    [0, 12, 0, 0, 0, 4],
    [0, 13, 0, 0, 0, 5],
    [0, 14, 0, 0, 0, 5],
    [0, 15, 0, 0, 0, 5],
    [0, 16, 0, 0, 0, 5],
    [0, 18, 0, 0, 0, 4],
    [0, 19, 0, 2, 0, 7],
    [0, 20, 0, 1, 0, 6],
    [0, 21, 0, 0, 0, 2],
    [0, 22, 0, 0, 0, 5],
    [0, 23, 0, 2, 0, 4],
    [0, 32, 0, 1, 0, 4],
    [0, 33, 0, 0, 0, 2],
    [0, 35, 0, 1, 0, 4],
    [0, 37, 0, 0, 0, 3],
    [0, 42, 0, 0, 0, 2],
    [0, 43, 0, 0, 0, 2],
    [0, 44, 0, 0, 0, 1],
    [0, 45, 0, 0, 0, 0],
    [0, 46, 0, 0, 0, 0],
    [0, 47, 0, 0, 0, 0],
    [0, 60, 0, 0, 0, 1],
    [0, 61, 0, 0, 0, 0],
    [0, 75, 0, 0, 0, 0],
];

const COUNT: u8 = ADVERTISED.len() as u8;

fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

#[test]
fn api_versions_0_to_2_in_golden_bytes() {
    let v0 = [&[0, 0, 0, 7, 0, 0, 0, 0, 0, COUNT][..], &ADVERTISED.concat()].concat();
    assert_eq!(reply(7, 0, &api_versions_response()).unwrap(), framed(&v0));
    let v1 = [&v0[..], &[0, 0, 0, 0]].concat();
    assert_eq!(reply(7, 1, &api_versions_response()).unwrap(), framed(&v1));
    assert_eq!(reply(7, 2, &api_versions_response()).unwrap(), framed(&v1));
}

#[test]
fn api_versions_3_and_4_have_header_0_and_empty_tag_sections() {
    let entries: Vec<u8> = ADVERTISED.iter().flat_map(|e| e.iter().copied().chain([0])).collect();
    let v3 = [&[0, 0, 0, 7, 0, 0, COUNT + 1][..], &entries, &[0, 0, 0, 0, 0]].concat();
    assert_eq!(reply(7, 3, &api_versions_response()).unwrap(), framed(&v3));
    assert_eq!(reply(7, 4, &api_versions_response()).unwrap(), framed(&v3));
}

#[test]
fn an_unsupported_api_versions_is_answered_in_version_0_with_error_35_and_the_list() {
    let v0 = [&[0, 0, 0, 7, 0, 35, 0, 0, 0, COUNT][..], &ADVERTISED.concat()].concat();
    assert_eq!(api_versions_unsupported(7).unwrap(), framed(&v0));
    assert_eq!(ADVERTISED.len(), SERVED.len());
}

#[test]
fn the_readme_lists_every_key_with_its_versions() {
    let readme = include_str!("../../../../README.md");
    // Its lines are wrapped anywhere between two words.
    let words: Vec<&str> = readme.split_whitespace().collect();
    let readme = words.join(" ");
    for row in SERVED {
        let (least, most) = (row.min_advertised, row.max);
        let versions = if least == most { most.to_string() } else { format!("{least}-{most}") };
        let listed = [',', '.'].map(|end| format!("{} {versions}{end}", row.key));
        assert!(
            listed.iter().any(|text| readme.contains(text)),
            "README.md says not: {}",
            listed[0]
        );
    }
}
