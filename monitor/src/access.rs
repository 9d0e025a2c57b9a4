//! Who may ask: by the name of the server in a request, and by a token.
//!
//! A page of another site can have a name of its own lead to this machine. What the browser sends
//! then has that name in `Host`, so only the server's own names pass.

use std::net::SocketAddr;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, COOKIE, HOST};
use hyper::http::request::Parts;
use subtle::ConstantTimeEq;

/// What a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What it asks for.
    Passes,
    /// The address has the token: a cookie has it from here on, and the address loses it.
    TakesCookie,
    /// Nothing.
    Refused(StatusCode),
}

/// The names and the token of a server.
pub(crate) struct Access {
    names: Vec<String>,
    token: Option<String>,
    cookie: String,
}

impl Access {
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Access {
        let port = address.port();
        let mut names = vec![address.to_string(), format!("localhost:{port}")];
        if port == 80 {
            let own = address.to_string();
            names.extend([own.trim_end_matches(":80").to_owned(), "localhost".to_owned()]);
        }
        // Cookies of other ports of the host are sent too.
        Access { names, token, cookie: format!("terrace-{port}") }
    }

    /// What a request may have.
    pub(crate) fn judge(&self, request: &Parts) -> Verdict {
        let Some(token) = &self.token else {
            let is_own = self.is_own(request);
            let wrong = Verdict::Refused(StatusCode::MISDIRECTED_REQUEST);
            return if is_own { Verdict::Passes } else { wrong };
        };
        let is_token = |given: &str| bool::from(given.as_bytes().ct_eq(token.as_bytes()));
        let query = request.uri.query().unwrap_or_default();
        let in_query = query.split('&').filter_map(|pair| pair.strip_prefix("token="));
        if in_query.map(is_token).next() == Some(true) {
            return Verdict::TakesCookie;
        }
        let is_given = self.given(request).any(is_token);
        if is_given { Verdict::Passes } else { Verdict::Refused(StatusCode::UNAUTHORIZED) }
    }

    /// The cookie that has the token.
    pub(crate) fn cookie(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        // Strict ones are not sent after a click on the address in a page of another site.
        format!("{}={token}; HttpOnly; SameSite=Lax; Path=/", self.cookie)
    }

    /// Whether the request names this server, and no other one.
    fn is_own(&self, request: &Parts) -> bool {
        let is_own = |name: &str| self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        let mut hosts = request.headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let authority = request.uri.authority().map(|authority| authority.as_str());
        host.is_some_and(is_own) && hosts.next().is_none() && authority.is_none_or(is_own)
    }

    /// The tokens that the headers have.
    fn given<'a>(&'a self, request: &'a Parts) -> impl Iterator<Item = &'a str> {
        let all = |name| request.headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
        let bearers = all(AUTHORIZATION).filter_map(|value| value.strip_prefix("Bearer "));
        let pairs = all(COOKIE).flat_map(|value| value.split(';')).map(str::trim);
        let cookies = pairs.filter_map(|pair| pair.split_once('='));
        let own = cookies.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        bearers.chain(own)
    }
}

/// Whether a token can be part of an address and of a cookie, and is no short one.
pub(crate) fn is_fit(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (16..=128).contains(&token.len()) && token.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const TOKEN: &str = "a-token-of-28-letters-or-so.";

    fn judge(token: Option<&str>, uri: &str, headers: &[(&str, &str)]) -> Verdict {
        let address = "127.0.0.1:8000".parse().unwrap();
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Access::new(address, token.map(str::to_owned)).judge(&parts)
    }

    #[test]
    fn without_a_token_only_the_servers_own_names_pass() {
        let wrong = Verdict::Refused(StatusCode::MISDIRECTED_REQUEST);
        for host in ["127.0.0.1:8000", "localhost:8000", "LocalHost:8000"] {
            assert_eq!(judge(None, "/", &[("host", host)]), Verdict::Passes, "{host}");
        }
        for host in ["evil.example", "127.0.0.1", "127.0.0.1:80", "localhost:8000.evil", ""] {
            assert_eq!(judge(None, "/", &[("host", host)]), wrong, "{host}");
        }
        let own = ("host", "127.0.0.1:8000");
        assert_eq!(judge(None, "/", &[]), wrong);
        assert_eq!(judge(None, "/", &[own, ("host", "evil.example")]), wrong);
        assert_eq!(judge(None, "http://evil.example/", &[own]), wrong);
        assert_eq!(judge(None, "http://localhost:8000/", &[own]), Verdict::Passes);
    }

    #[test]
    fn a_token_passes_in_a_header_a_cookie_and_once_in_the_address() {
        let refused = Verdict::Refused(StatusCode::UNAUTHORIZED);
        let judge = |uri: &str, headers: &[(&str, &str)]| judge(Some(TOKEN), uri, headers);
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(judge("/", &[("authorization", &bearer)]), Verdict::Passes);
        assert_eq!(judge("/", &[("authorization", &bearer[..20])]), refused);
        assert_eq!(judge("/", &[("authorization", &format!("{bearer}x"))]), refused);
        assert_eq!(judge("/", &[("authorization", TOKEN)]), refused);
        let cookie = format!("other=1; terrace-8000={TOKEN}");
        assert_eq!(judge("/", &[("cookie", &cookie)]), Verdict::Passes);
        assert_eq!(judge("/", &[("cookie", &cookie.replace("8000", "8001"))]), refused);
        let given = format!("/?token={TOKEN}");
        assert_eq!(judge(&given, &[]), Verdict::TakesCookie);
        // Bug: with the cookie the address kept its token. Cause: the cookie was looked at first.
        assert_eq!(judge(&given, &[("cookie", &cookie)]), Verdict::TakesCookie);
        assert_eq!(judge(&format!("/?token={TOKEN}0"), &[]), refused);
        assert_eq!(judge(&format!("/?nottoken={TOKEN}"), &[]), refused);
        assert_eq!(judge("/?token=", &[]), refused);
        assert_eq!(judge("/", &[("host", "127.0.0.1:8000")]), refused);
    }

    #[test]
    fn a_token_is_long_and_plain() {
        assert!(is_fit(TOKEN));
        for token in ["", "short", "sixteen letters ", "sixteen;letters;", &"a".repeat(129)] {
            assert!(!is_fit(token), "{token}");
        }
    }
}
