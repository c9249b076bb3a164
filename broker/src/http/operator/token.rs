//! The operator's token: read from a file of its own that others cannot read, compared in constant time, and shown nowhere.

use std::fmt;
use std::hint::black_box;
use std::path::Path;

use zeroize::Zeroizing;

use crate::config::secret;

/// Characters that it needs, so that it cannot be guessed.
const CHARS_MIN: usize = 24;
const CHARS_MAX: usize = 512;
/// It has neither `Clone` nor a comparison, and its `Debug` says nothing.
pub struct Token(Zeroizing<Vec<u8>>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads it: one line.
    ///
    /// # Errors
    /// What is wrong with the file and what to do, in words that fit after its name; never what is in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let most = u64::try_from(CHARS_MAX * 2).unwrap_or(u64::MAX);
        Self::parse(&secret::read(path, most)?)
    }

    pub(in crate::http) fn parse(text: &str) -> Result<Self, String> {
        let token = text.trim();
        if !(CHARS_MIN..=CHARS_MAX).contains(&token.len()) {
            return Err(format!(
                "the token in it has {} characters; {CHARS_MIN} to {CHARS_MAX} are wanted",
                token.len()
            ));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the token in it must be one word of printable ASCII".to_owned());
        }
        Ok(Self(Zeroizing::new(token.as_bytes().to_vec())))
    }

    /// Whether `said` is the token. How long this takes depends on the length of `said` alone.
    pub(super) fn is(&self, said: &[u8]) -> bool {
        let mut different = u8::from(said.len() != self.0.len());
        for (own, said) in self.0.iter().cycle().zip(said) {
            different = black_box(different | (own ^ said));
        }
        different == 0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use barnabas_log::testing::TempDir;

    use super::*;

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_token_is_refused() {
        let folder = TempDir::new("token");
        let path = folder.path().join("token");
        let good = "0123456789abcdef01234567";
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(Token::read(&path).unwrap_err().contains("cannot be read"));
        for (text, mode, refused) in [
            (good.to_owned(), 0o600, ""),
            (format!("{good}\n"), 0o440, ""),
            (good.to_owned(), 0o604, "mode 604"),
            (good.to_owned(), 0o620, "mode 620"),
            (good.to_owned(), 0o644, "chmod 600"),
            ("short".to_owned(), 0o600, "5 characters"),
            (String::new(), 0o600, "0 characters"),
            ("x".repeat(600), 0o600, "600 characters"),
            ("x".repeat(10_000), 0o600, "1024 characters"),
            (format!("{good} {good}"), 0o600, "one word"),
            (format!("{good}\u{e9}"), 0o600, "one word"),
        ] {
            write(&text, mode);
            let read = Token::read(&path);
            match refused {
                "" => assert!(read.unwrap().is(good.as_bytes())),
                part => {
                    let said = read.unwrap_err();
                    assert!(said.contains(part), "{said}");
                    assert!(!said.contains(good), "{said}");
                }
            }
        }
        assert!(Token::read(folder.path()).unwrap_err().contains("no file"));
    }

    #[test]
    fn nothing_but_the_whole_token_is_the_token() {
        let token = Token::parse("0123456789abcdef01234567").unwrap();
        assert!(token.is(b"0123456789abcdef01234567"));
        let twice = b"0123456789abcdef012345670123456789abcdef01234567";
        for said in [&b""[..], b"0", b"0123456789abcdef0123456", b"0123456789abcdef01234568", twice]
        {
            assert!(!token.is(said), "{said:?}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }
}
