//! The allow-list of hosts that tools may reach. Private addresses are refused unless the configuration allows them for
//! a host.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The connection timeout.
const CONNECT: Duration = Duration::from_secs(10);

/// A host that tools may reach.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The name and value of a secret header that is sent to the host. Tools do not see it.
    pub secret: Option<(HeaderName, HeaderValue)>,
    /// `true` if requests without TLS are allowed.
    pub plain: bool,
    /// `true` if the host may have a private address.
    pub private: bool,
    /// The maximum number of concurrent requests.
    pub concurrency: usize,
}

/// The allowed hosts: see the module.
pub(crate) struct Hosts {
    names: Vec<String>,
    /// The allowed hosts, by host and port.
    allowed: BTreeMap<(String, u16), Arc<Allowed>>,
}

/// Returns the host and port of a name in the configuration. A name without a port yields the ports of both schemes.
fn places(name: &str) -> Vec<(String, u16)> {
    let Ok(url) = Url::parse(&format!("https://{name}")) else { return Vec::new() };
    let host = url.host_str().unwrap_or_default().to_owned();
    // The parser drops the default port of a scheme.
    match url.port().or_else(|| name.ends_with(":443").then_some(443)) {
        Some(port) => vec![(host, port)],
        None => vec![(host.clone(), 443), (host, 80)],
    }
}

/// An allowed host with its HTTP client and limits.
pub(crate) struct Allowed {
    host: Host,
    client: Client,
    permits: Semaphore,
    /// The end of the time for which the host asked not to be called.
    rests_until: Mutex<Option<Instant>>,
}

impl Hosts {
    /// Creates the allow-list from names such as `api.example.com` or `127.0.0.1:8080`. A name without a port allows
    /// the default ports of the schemes.
    ///
    /// # Errors
    /// Returns an error if an HTTP client cannot be created.
    pub(crate) fn new(hosts: &BTreeMap<String, Host>) -> Result<Self, reqwest::Error> {
        let builder =
            || Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT).no_proxy();
        let public = builder().dns_resolver(Arc::new(PublicOnly)).build()?;
        let any = builder().build()?;
        let mut allowed = BTreeMap::new();
        for (name, host) in hosts {
            let client = if host.private { any.clone() } else { public.clone() };
            let permits = Semaphore::new(host.concurrency);
            let reached = Arc::new(Allowed { host: host.clone(), client, permits, rests_until: Mutex::default() });
            for place in places(name) {
                allowed.insert(place, reached.clone());
            }
        }
        Ok(Self { names: hosts.keys().cloned().collect(), allowed })
    }

    /// Returns the names of the allowed hosts.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Checks that tools may reach the host of a URL template.
    ///
    /// # Errors
    /// Returns the reason of the refusal.
    pub(crate) fn allows(&self, host: &str, template: &str) -> Result<(), String> {
        let scheme = template.split_once("://").map_or("https", |(scheme, _)| scheme);
        let url = Url::parse(&format!("{scheme}://{host}")).map_err(|error| error.to_string())?;
        self.allowed(&url).map(drop)
    }

    /// Returns the host of `url`, if tools may reach it.
    ///
    /// # Errors
    /// Returns the reason of the refusal.
    pub(crate) fn allowed(&self, url: &Url) -> Result<&Allowed, String> {
        let host = url.host_str().unwrap_or_default();
        let name = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let place = (host.to_owned(), url.port_or_known_default().unwrap_or_default());
        let Some(allowed) = self.allowed.get(&place) else {
            return Err(format!("the host {name} is not among those that [tools.hosts] allows"));
        };
        if url.scheme() != "https" && !allowed.host.plain {
            return Err(format!("the host {name} is reached by https alone"));
        }
        // A literal address does not go through the resolver, so it is checked here.
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if literal.is_ok_and(|address| !allowed.host.private && !is_public(address)) {
            return Err(format!("the host {name} has a private address"));
        }
        Ok(allowed)
    }
}

impl Allowed {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn secret(&self) -> Option<&(HeaderName, HeaderValue)> {
        self.host.secret.as_ref()
    }

    /// Returns the rest of the time for which the host asked not to be called.
    pub(crate) fn rests(&self) -> Option<Duration> {
        let until = *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Sends the host no further request for that time.
    pub(crate) fn rest_for(&self, wait: Duration) {
        let mut until = self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = (*until).max(Some(Instant::now() + wait));
    }

    /// Acquires a permit for a request. It never returns `None`, because the semaphore is never closed.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }
}

/// A resolver that returns only public addresses, at the moment of connecting. A DNS name that is changed between check
/// and connection therefore gains nothing.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = found.into_iter().filter(|found| is_public(found.ip())).collect();
            if public.is_empty() {
                return Err(format!("{} has no public address", name.as_str()).into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}

/// Returns `true` for a public address (IANA special-purpose registries, RFC 6890). The standard library's `is_global`
/// is not stable.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || matches!(
            (a, b, c),
            (0, ..) | (240.., ..) | (100, 64..=127, _) | (198, 18..=19, _) | (192, 0, 0) | (192, 88, 99)
        );
    !special
}

/// Returns `true` for an address in `2000::/3` that is neither reserved for documentation nor a tunnel to another
/// address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    let tunnels = matches!((a, b), (0x2001, 0..=0x01ff) | (0x2002, _));
    let documentation = matches!((a, b), (0x2001, 0x0db8) | (0x3fff, 0..=0x0fff));
    (0x2000..=0x3fff).contains(&a) && !tunnels && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_open_network_is_public() {
        for address in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_host_is_reached_as_the_configuration_says() {
        let host = Host { concurrency: 1, ..Host::default() };
        let hosts = BTreeMap::from([
            ("api.example.com".to_owned(), host.clone()),
            ("127.0.0.1:80".to_owned(), Host { plain: true, ..host.clone() }),
            ("127.0.0.1:81".to_owned(), Host { plain: true, private: true, ..host.clone() }),
            ("[::1]:82".to_owned(), Host { plain: true, ..host }),
        ]);
        let hosts = Hosts::new(&hosts).unwrap();
        let why = |url: &str| hosts.allowed(&Url::parse(url).unwrap()).err().unwrap_or_default();
        assert_eq!(why("https://API.example.com/x"), "");
        assert_eq!(why("https://api.example.com:443/x"), "");
        assert!(why("http://api.example.com/x").contains("https alone"));
        assert!(why("https://api.example.com:8443/x").contains("not among"));
        assert!(why("https://example.com/").contains("not among"));
        assert!(why("http://127.0.0.1/").contains("private address"));
        assert_eq!(why("http://127.0.0.1:81/"), "");
        assert_eq!(why("http://127.1:81/"), "");
        assert!(why("http://[::1]:82/").contains("private address"));
    }
}
