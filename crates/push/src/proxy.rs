//! The proxy on the way to a receiver, as the environment names it.

use ureq::Proxy;

use crate::receiver::{Receiver, is_loopback};

/// Returns the proxy for a receiver. The error names the variable that is wrong; its value may contain a password.
pub fn of(receiver: &Receiver, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, &'static str> {
    let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let host = receiver.host();
    let exceptions = ["NO_PROXY", "no_proxy"].into_iter().find_map(get).unwrap_or_default();
    if is_loopback(host) || is_exception(host, &exceptions) {
        return Ok(None);
    }
    let names = match receiver.is_https() {
        true => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        false => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let Some((name, address)) = names.into_iter().find_map(|name| Some((name, get(name)?))) else { return Ok(None) };
    match Proxy::new(address.trim()) {
        Ok(proxy)
            if proxy.protocol() == ureq::ProxyProtocol::Http || proxy.protocol() == ureq::ProxyProtocol::Https =>
        {
            Ok(Some(proxy))
        }
        _ => Err(name),
    }
}

/// Whether a host is in a list such as `localhost,.example.com,10.0.0.7`. A name includes the names below it.
fn is_exception(host: &str, list: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    list.split([',', ' ']).map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        let name = entry.trim_start_matches('*').trim_start_matches('.');
        entry == "*"
            || (!name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(url: &str, variables: &[(&str, &str)]) -> Result<Option<String>, &'static str> {
        let receiver: Receiver = format!("otlp={url}").parse().expect(url);
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        of(&receiver, get).map(|proxy| proxy.map(|proxy| format!("{}:{}", proxy.host(), proxy.port())))
    }

    /// Check which proxy is used: that of the scheme, except for hosts that are listed, and for this machine.
    #[test]
    fn proxies_are_those_of_the_environment() {
        let both = [("HTTPS_PROXY", "http://tls:3128"), ("http_proxy", "http://plain:8080")];
        assert_eq!(proxy("https://a.b", &both), Ok(Some("tls:3128".into())));
        assert_eq!(proxy("http://a.b", &both), Ok(Some("plain:8080".into())));
        assert_eq!(proxy("https://a.b", &[("ALL_PROXY", "http://all:1")]), Ok(Some("all:1".into())));
        assert_eq!(proxy("https://a.b", &[("HTTPS_PROXY", " ")]), Ok(None));
        for host in ["localhost:1", "127.0.0.1", "[::1]:1"] {
            assert_eq!(proxy(&format!("https://{host}"), &both), Ok(None));
        }
        for (list, expected) in [
            ("a.b", None),
            ("b", None),
            (".b", None),
            ("*.b", None),
            ("x,*", None),
            ("A.B", None),
            (".a.b.c,xa.b,", Some("tls:3128")),
        ] {
            let variables = [both[0], ("NO_PROXY", list)];
            assert_eq!(proxy("https://a.b", &variables), Ok(expected.map(Into::into)), "{list}");
        }
    }

    /// Check that a proxy that cannot be used is named by its variable, without its password.
    #[test]
    fn wrong_proxies_are_named() {
        assert_eq!(proxy("https://a.b", &[("HTTPS_PROXY", "socks5://me:secret@x:1")]), Err("HTTPS_PROXY"));
        assert_eq!(proxy("https://a.b", &[("all_proxy", "http://me:secret@[")]), Err("all_proxy"));
    }
}
