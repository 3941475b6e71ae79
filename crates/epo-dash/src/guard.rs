//! Access control: checks the `Host` and `Origin` of every request and, if there is one, the token.
//!
//! A page of another site can make the browser send requests to 127.0.0.1. Such a request has a foreign `Origin`, or a
//! foreign `Host` if the site's name is made to point to 127.0.0.1 (DNS rebinding). Both are refused on every route.
//!
//! A request without an `Origin` may also come from another site, for example for an image. Browsers mark it with
//! `Sec-Fetch-Site`, and it is refused too. There is one exception: a link on another page may open the dashboard in a
//! tab. The other page can neither read that tab nor put it into a frame, and the page itself shows nothing to it.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Method, StatusCode, header};

/// Name of the cookie that holds the token.
pub(crate) const COOKIE: &str = "epo_dash_token";

/// Rules for requests.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    address: SocketAddr,
    token: Option<String>,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) &'static str);

const FOREIGN_HOST: Refusal = Refusal(
    StatusCode::FORBIDDEN,
    "This address does not belong to the dashboard. Use the one that it printed.",
);
const FOREIGN_ORIGIN: Refusal = Refusal(
    StatusCode::FORBIDDEN,
    "Requests from other sites are refused. Type the address into the address bar.",
);
const NO_TOKEN: Refusal = Refusal(
    StatusCode::UNAUTHORIZED,
    "The token is missing or wrong. Use the address that the dashboard printed.",
);
const WRONG_METHOD: Refusal =
    Refusal(StatusCode::METHOD_NOT_ALLOWED, "The dashboard only answers GET and HEAD.");

impl Guard {
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Self {
        Self { address, token }
    }

    /// Checks a request. `path` and `query` are the parts of its address before and after `?`.
    pub(crate) fn check(
        &self,
        method: &Method,
        headers: &HeaderMap,
        path: &str,
        query: &str,
    ) -> Result<(), Refusal> {
        let text = |name| -> Result<Option<&str>, Refusal> {
            let mut all = headers.get_all(name).iter();
            let first = all.next().map(|value| value.to_str().map_err(|_| FOREIGN_HOST)).transpose()?;
            if all.next().is_some() { Err(FOREIGN_HOST) } else { Ok(first) }
        };
        if !text(header::HOST)?.is_some_and(|host| self.is_own(host)) {
            return Err(FOREIGN_HOST);
        }
        let own = |origin: &str| origin.strip_prefix("http://").is_some_and(|host| self.is_own(host));
        if text(header::ORIGIN)?.is_some_and(|origin| !own(origin)) {
            return Err(FOREIGN_ORIGIN);
        }
        let foreign =
            headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        if foreign && !(path == "/" && opens_a_tab(headers)) {
            return Err(FOREIGN_ORIGIN);
        }
        if method != Method::GET && method != Method::HEAD {
            return Err(WRONG_METHOD);
        }
        match &self.token {
            Some(token) if !given(headers, query).into_iter().any(|t| same(&t, token)) => Err(NO_TOKEN),
            _ => Ok(()),
        }
    }

    /// Returns true if `host`, the name and port of an address, is the dashboard.
    fn is_own(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
            _ => (host, Some(80)),
        };
        if port != Some(self.address.port()) {
            return false;
        }
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let named: Option<IpAddr> = bare.parse().ok();
        let ip = self.address.ip();
        match named {
            // bound to all addresses: a rebound name is not an IP address, and the token protects the rest
            Some(named) => {
                named == ip || (ip.is_unspecified() && self.token.is_some()) || both_loopback(named, ip)
            }
            None => {
                (name.eq_ignore_ascii_case("localhost") && (ip.is_loopback() || ip.is_unspecified()))
                    || (!ip.is_loopback() && self.token.is_some() && is_this_machine(name))
            }
        }
    }
}

/// Whether the browser asks for a page that it shows in a tab, not for a part of another page or a frame in it.
fn opens_a_tab(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| {
        let mut all = headers.get_all(name).iter();
        all.next().is_some_and(|v| v == value) && all.next().is_none()
    };
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

fn both_loopback(a: IpAddr, b: IpAddr) -> bool {
    a == IpAddr::from([127, 0, 0, 1]) && b.is_loopback()
}

fn is_this_machine(name: &str) -> bool {
    let own = rustix::system::uname();
    own.nodename().to_str().is_ok_and(|own| !own.is_empty() && own.eq_ignore_ascii_case(name))
}

/// Returns the tokens that a request carries: `?token=`, `Authorization: Bearer` and the cookie.
fn given(headers: &HeaderMap, query: &str) -> Vec<String> {
    let mut found: Vec<String> =
        query.split('&').filter_map(|pair| pair.strip_prefix("token=")).map(str::to_owned).collect();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    found.extend(text(header::AUTHORIZATION).and_then(|v| v.strip_prefix("Bearer ")).map(str::to_owned));
    let cookies = text(header::COOKIE).unwrap_or_default().split(';');
    let ours = cookies.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    found.extend(ours.map(str::to_owned));
    found
}

/// Compares two texts in a time that does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    let differs = a.bytes().zip(b.bytes()).fold(0, |sum, (x, y)| sum | (x ^ y));
    a.len() == b.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, headers: &[(&str, &str)], query: &str) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        guard.check(&Method::GET, &map, "/api/run", query)
    }

    /// This test fails if only the name, only the port, or only a prefix of the host is compared.
    #[test]
    fn only_own_names_are_accepted() {
        let guard = Guard::new("127.0.0.1:7070".parse().unwrap(), None);
        for host in ["127.0.0.1:7070", "localhost:7070", "LOCALHOST:7070"] {
            assert_eq!(check(&guard, &[("host", host)], ""), Ok(()), "{host}");
        }
        let foreign = [
            "evil.example:7070",
            "127.0.0.1:7071",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:7070.evil.example",
            "127.0.0.1.evil.example:7070",
            "localhost.evil.example:7070",
            "evil.example",
            "192.168.0.1:7070",
            "0.0.0.0:7070",
            "user@127.0.0.1:7070",
            "127.0.0.1:7070:7070",
            "",
        ];
        for host in foreign {
            assert_eq!(check(&guard, &[("host", host)], ""), Err(FOREIGN_HOST), "{host}");
        }
        assert_eq!(check(&guard, &[], ""), Err(FOREIGN_HOST), "no host");
        let twice = [("host", "127.0.0.1:7070"), ("host", "evil.example")];
        assert_eq!(check(&guard, &twice, ""), Err(FOREIGN_HOST));
    }

    #[test]
    fn other_origins_are_refused() {
        let guard = Guard::new("127.0.0.1:7070".parse().unwrap(), None);
        let with = |name, value| check(&guard, &[("host", "127.0.0.1:7070"), (name, value)], "");
        assert_eq!(with("origin", "http://127.0.0.1:7070"), Ok(()));
        assert_eq!(with("sec-fetch-site", "same-origin"), Ok(()));
        assert_eq!(with("sec-fetch-site", "none"), Ok(()));
        for origin in ["http://evil.example", "null", "https://127.0.0.1:7070", "http://127.0.0.1:7071", ""] {
            assert_eq!(with("origin", origin), Err(FOREIGN_ORIGIN), "{origin}");
        }
        for site in ["cross-site", "same-site", "anything"] {
            assert_eq!(with("sec-fetch-site", site), Err(FOREIGN_ORIGIN), "{site}");
        }
    }

    /// This test fails if a link on another page does not open the dashboard, or if another page can get more than that.
    #[test]
    fn a_link_on_another_page_opens_the_page_and_nothing_else() {
        let guard = Guard::new("127.0.0.1:7070".parse().unwrap(), None);
        let own = ("host", "127.0.0.1:7070");
        let site = ("sec-fetch-site", "cross-site");
        let (mode, dest) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        let with = |path: &str, headers: &[(&str, &str)]| {
            let parse = |(name, value): &(&str, &str)| {
                let name: axum::http::HeaderName = name.parse().unwrap();
                (name, value.parse::<axum::http::HeaderValue>().unwrap())
            };
            guard.check(&Method::GET, &headers.iter().map(parse).collect(), path, "")
        };
        assert_eq!(with("/", &[own, site, mode, dest]), Ok(()));
        assert_eq!(with("/", &[own, ("sec-fetch-site", "same-site"), mode, dest]), Ok(()));
        for path in ["/replay", "/api/overview", "/app.js", "//", "/."] {
            assert_eq!(with(path, &[own, site, mode, dest]), Err(FOREIGN_ORIGIN), "{path}");
        }
        for other in [
            &[own, site][..],
            &[own, site, mode],
            &[own, site, dest],
            &[own, site, mode, ("sec-fetch-dest", "iframe")],
            &[own, site, ("sec-fetch-mode", "no-cors"), dest],
            &[own, site, mode, dest, ("origin", "http://evil.example")],
            &[own, site, mode, dest, ("origin", "null")],
        ] {
            assert_eq!(with("/", other), Err(FOREIGN_ORIGIN), "{other:?}");
        }
        assert_eq!(with("/", &[("host", "evil.example:7070"), site, mode, dest]), Err(FOREIGN_HOST));
    }

    #[test]
    fn the_token_may_come_in_three_ways() {
        let guard = Guard::new("10.0.0.5:7070".parse().unwrap(), Some("abc".into()));
        let with = |name, value, query| check(&guard, &[("host", "10.0.0.5:7070"), (name, value)], query);
        assert_eq!(with("accept", "*/*", "x=1&token=abc"), Ok(()));
        assert_eq!(with("authorization", "Bearer abc", ""), Ok(()));
        assert_eq!(with("cookie", "a=b; epo_dash_token=abc", ""), Ok(()));
        for (name, value, query) in [
            ("accept", "*/*", ""),
            ("accept", "*/*", "token=ab"),
            ("accept", "*/*", "token=abcd"),
            ("accept", "*/*", "nottoken=abc"),
            ("authorization", "abc", ""),
            ("cookie", "epo_dash_token=abd", ""),
            ("cookie", "other=abc", ""),
        ] {
            assert_eq!(with(name, value, query), Err(NO_TOKEN), "{name} {value} {query}");
        }
        assert_eq!(check(&guard, &[("host", "evil.example:7070")], "token=abc"), Err(FOREIGN_HOST));
        let all = Guard::new("0.0.0.0:7070".parse().unwrap(), Some("abc".into()));
        assert_eq!(check(&all, &[("host", "192.168.1.2:7070")], "token=abc"), Ok(()));
        assert_eq!(check(&all, &[("host", "evil.example:7070")], "token=abc"), Err(FOREIGN_HOST));
    }

    #[test]
    fn nothing_but_get_and_head() {
        let guard = Guard::new("127.0.0.1:7070".parse().unwrap(), None);
        let mut map = HeaderMap::new();
        map.insert("host", "127.0.0.1:7070".parse().unwrap());
        for method in
            [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH, Method::TRACE]
        {
            assert_eq!(guard.check(&method, &map, "/", ""), Err(WRONG_METHOD));
        }
        assert_eq!(guard.check(&Method::HEAD, &map, "/", ""), Ok(()));
    }
}
