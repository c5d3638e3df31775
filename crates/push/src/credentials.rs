//! Headers that requests carry: credentials from files, the tenant, and others. Errors name the file's mistake, never its contents.

use std::io::{self, Read};

use base64::{Engine, prelude::BASE64_STANDARD};
use ureq::http::{
    HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING},
};

/// The most bytes of a file with credentials or headers.
const MOST_BYTES: u64 = 64 << 10;
/// The most headers.
const MOST_HEADERS: usize = 50;
/// Headers that belong to the protocol.
const RESERVED: [HeaderName; 6] = [HOST, CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, TRANSFER_ENCODING, CONNECTION];

/// Headers of every request.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// In the order in which they were given. Secret values are marked, so that nothing prints them.
    pub all: Vec<(HeaderName, HeaderValue)>,
    /// What must not be shown, even if a receiver answers with it.
    secrets: Vec<String>,
}

impl Headers {
    /// Adds a bearer token: the only line of a file.
    pub fn bearer(&mut self, file: &str) -> Result<(), &'static str> {
        let token = line(file).ok_or("it must have one line, the token")?;
        self.secrets.push(token.to_owned());
        self.secret(AUTHORIZATION, &format!("Bearer {token}"))
    }

    /// Adds a user and a password: `USER:PASSWORD`, the only line of a file.
    pub fn basic(&mut self, file: &str) -> Result<(), &'static str> {
        const EXPECTED: &str = "it must have one line, USER:PASSWORD";
        let line = line(file).ok_or(EXPECTED)?;
        let (_, password) = line.split_once(':').filter(|(user, _)| !user.is_empty()).ok_or(EXPECTED)?;
        let encoded = BASE64_STANDARD.encode(line);
        self.secrets.extend([password.to_owned(), encoded.clone()]);
        self.secret(AUTHORIZATION, &format!("Basic {encoded}"))
    }

    /// Adds the headers of a file: `Name: value` lines; lines that begin with `#` are comments.
    pub fn file(&mut self, file: &str) -> Result<(), &'static str> {
        let lines = file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (name, value) = line.split_once(':').ok_or("each line must be a header, Name: value")?;
            let name: HeaderName = name.trim().parse().map_err(|_| "it has a header with an invalid name")?;
            if RESERVED.contains(&name) {
                return Err("it has a header that belongs to the protocol, such as Host or Content-Type");
            }
            if self.all.len() == MOST_HEADERS {
                return Err("it has too many headers");
            }
            let value = value.trim();
            self.secrets.push(value.to_owned());
            self.secret(name, value)?;
        }
        Ok(())
    }

    /// Adds the tenant of servers that have several. It is not secret.
    pub fn tenant(&mut self, tenant: &str) -> Result<(), &'static str> {
        let value = HeaderValue::from_str(tenant).map_err(|_| "a tenant has only visible ASCII characters")?;
        self.all.push((HeaderName::from_static("x-scope-orgid"), value));
        Ok(())
    }

    /// Whether one of them is secret.
    pub fn are_secret(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Removes secrets from the words of a receiver.
    pub fn redact(&self, text: &str) -> String {
        // Short values are no secrets, and removing them would garble the text.
        let secrets = self.secrets.iter().filter(|secret| secret.len() >= 4);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[secret]"))
    }

    fn secret(&mut self, name: HeaderName, value: &str) -> Result<(), &'static str> {
        let mut value = HeaderValue::from_str(value).map_err(|_| "it has characters that a header cannot have")?;
        value.set_sensitive(true);
        if name == AUTHORIZATION && self.all.iter().any(|(other, _)| *other == AUTHORIZATION) {
            return Err("there are credentials already");
        }
        self.all.push((name, value));
        Ok(())
    }
}

/// Reads a file with credentials or headers.
pub fn read(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    let length = file.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large for what it should contain"));
    }
    Ok(text)
}

/// Returns the only line of a file.
fn line(file: &str) -> Option<&str> {
    let mut lines = file.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next().filter(|_| lines.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what is sent for each kind of file.
    #[test]
    fn files_become_headers() {
        let mut headers = Headers::default();
        headers.tenant("team-1").expect("a tenant");
        assert!(!headers.are_secret());
        headers.basic("12345:glc_pass:word\n").expect("credentials");
        headers.file("# a comment\n\nX-Team: llm \n").expect("headers");
        let sent: Vec<_> =
            headers.all.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
        // The output of `printf 12345:glc_pass:word | base64`.
        assert_eq!(sent, ["x-scope-orgid: team-1", "authorization: Basic MTIzNDU6Z2xjX3Bhc3M6d29yZA==", "x-team: llm"]);
        let mut headers = Headers::default();
        headers.bearer(" abc.def-1\n").expect("a token");
        assert_eq!(headers.all[0].1, "Bearer abc.def-1");
        assert_eq!(headers.bearer("other"), Err("there are credentials already"));
    }

    /// Check that secrets are in no text: debugging output, errors, and what a receiver answers.
    #[test]
    fn secrets_are_not_shown() {
        let mut headers = Headers::default();
        headers.basic("me:hunter22").expect("credentials");
        headers.file("X-Api-Key: key-99").expect("headers");
        let shown = format!("{:?}", headers.all);
        assert!(
            !shown.contains("hunter22") && !shown.contains("bWU6aHVudGVyMjI") && !shown.contains("key-99"),
            "{shown}"
        );
        let answer = "wrong: Basic bWU6aHVudGVyMjI=, password hunter22, key-99";
        assert_eq!(headers.redact(answer), "wrong: Basic [secret], password [secret], [secret]");
        for file in ["secret\nsecret", "", "se\u{7}cret"] {
            let error = Headers::default().bearer(file).expect_err("rejected");
            assert!(!error.contains("secret"));
        }
        assert!(Headers::default().basic("nopassword").is_err() && Headers::default().basic(":x").is_err());
        for file in ["Host: a", "content-length: 1", "no colon", "a b: c", &"A: b\n".repeat(60)] {
            assert!(Headers::default().file(file).is_err(), "{file}");
        }
        assert!(read(io::repeat(b'x')).is_err());
    }
}
