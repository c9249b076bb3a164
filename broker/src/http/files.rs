//! The page itself: four files, from the binary.

use std::sync::OnceLock;

use bytes::Bytes;

use super::answer::{Answer, gzip};

struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
    packed: OnceLock<Option<Bytes>>,
}

impl File {
    const fn new(path: &'static str, content_type: &'static str, text: &'static str) -> Self {
        Self { path, content_type, text, packed: OnceLock::new() }
    }
}

static FILES: [File; 5] = [
    File::new("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    File::new("/index.html", "text/html; charset=utf-8", include_str!("page/index.html")),
    File::new("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    File::new("/app.js", "text/javascript; charset=utf-8", include_str!("page/app.js")),
    File::new("/operate.js", "text/javascript; charset=utf-8", include_str!("page/operate.js")),
];

/// The file at this path, if there is one.
pub(super) fn file(path: &str) -> Option<Answer> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let packed = file.packed.get_or_init(|| gzip(file.text.as_bytes()));
    Some(Answer::of(file.content_type, file.text).packed(packed.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_has_no_script_in_its_text() {
        let html = FILES[0].text;
        for bad in ["http://", "https://", "<script>", "onclick=", "style=\"", "sample"] {
            assert!(!html.contains(bad), "{bad}");
        }
        for bad in ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(!FILES[3].text.contains(bad) && !FILES[4].text.contains(bad), "{bad}");
        }
        assert!(file("/sample.js").is_none() && file("/../app.js").is_none());
    }
}
