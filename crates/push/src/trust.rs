//! Whose certificates are accepted.

use ureq::tls::{Certificate, PemItem, parse_pem};

/// The most bytes of a file with certificates: those of all public authorities have 0.25 MiB.
pub const MOST_BYTES: u64 = 8 << 20;

/// Returns the authorities that this machine trusts. They are those of `SSL_CERT_FILE` and `SSL_CERT_DIR` if these are set.
pub fn system() -> Result<Vec<Certificate<'static>>, &'static str> {
    let found = rustls_native_certs::load_native_certs();
    let all: Vec<_> = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    match all.is_empty() {
        true => Err(
            "this machine has no list of certificate authorities: install ca-certificates, or name a file with --push-ca",
        ),
        false => Ok(all),
    }
}

/// Returns the authorities of a file.
pub fn of_pem(file: &[u8]) -> Result<Vec<Certificate<'static>>, &'static str> {
    let mut all = Vec::new();
    for item in parse_pem(file) {
        match item {
            Ok(PemItem::Certificate(certificate)) => all.push(certificate),
            Ok(_) => {}
            Err(_) => return Err("it is damaged"),
        }
    }
    match all.is_empty() {
        true => Err("it contains no certificate in PEM format (-----BEGIN CERTIFICATE-----)"),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that files without certificates are rejected.
    #[test]
    fn files_need_certificates() {
        assert!(of_pem(b"").expect_err("empty").contains("no certificate"));
        assert!(of_pem(b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").is_err());
        let certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(of_pem(certificate).expect("certificates").len(), 1);
    }
}
