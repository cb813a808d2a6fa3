//! The limit of client connections, so that file descriptors are left for the store, models and tools.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use futures::future::BoxFuture;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The number of file descriptors that the daemon requests from the system.
const DESCRIPTORS_WANTED: u64 = 65_536;
/// The number of file descriptors that clients cannot use: they are reserved for the store, models, tools and inherited
/// files.
const DESCRIPTORS_SET_ASIDE: u64 = 512;
/// The maximum number of open connections, independently of file descriptors, because each connection uses memory.
const CONNECTIONS_MAX: u64 = 16_384;
/// One address takes at most one place in this many. The share does not apply to this machine, where a reverse proxy
/// may run.
const ADDRESS_SHARES: usize = 4;

/// Raises the soft limit of this process on file descriptors as far as the system allows, and returns it.
pub(crate) fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(DESCRIPTORS_WANTED).min(DESCRIPTORS_WANTED);
    let limit = current.unwrap_or(DESCRIPTORS_WANTED);
    if limit >= wanted {
        return limit;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(limit, %error, "the limit on file descriptors cannot be raised");
            limit
        }
    }
}

/// Returns the maximum number of open connections: all descriptors except the reserved ones, and at least half of a
/// small limit.
pub(crate) fn places_within(limit: u64) -> usize {
    let places = limit.saturating_sub(DESCRIPTORS_SET_ASIDE.min(limit / 2)).min(CONNECTIONS_MAX);
    usize::try_from(places).unwrap_or(usize::MAX)
}

/// The minimum interval of log messages about refused connections.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A connection with an address.
pub(crate) trait Peer {
    /// Returns the address of the other side, if it is another machine.
    fn remote(&self) -> Option<IpAddr>;
}

impl Peer for tokio::net::TcpStream {
    fn remote(&self) -> Option<IpAddr> {
        let address = self.peer_addr().ok()?.ip().to_canonical();
        (!address.is_loopback()).then_some(network_of(address))
    }
}

/// Returns the first address of the network that one client commonly has: for IPv6, 64 bits (RFC 6177).
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// The number of open connections by address.
type ByAddress = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// A connection that counts against the share of its address until it is dropped.
struct OfAddress(IpAddr, ByAddress);

impl OfAddress {
    /// Counts a connection, unless its address has `max` of them.
    fn take(address: IpAddr, max: usize, open: &ByAddress) -> Option<Self> {
        let mut counts = open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Self(address, open.clone()))
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut counts = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.0);
            }
        }
    }
}

/// An acceptor that immediately closes new connections at the maximum number of open ones, and of one address.
#[derive(Clone)]
pub(crate) struct Bounded<A> {
    inner: A,
    free: Arc<Semaphore>,
    of_address_max: usize,
    by_address: ByAddress,
    refused: Arc<Refused>,
}

/// The count of refused connections. They are logged together, since a client may retry many times per second.
#[derive(Default)]
struct Refused {
    count: AtomicU64,
    logged_at: Mutex<Option<Instant>>,
}

impl Refused {
    fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged_at = Some(Instant::now());
            let connections = self.count.swap(0, Ordering::Relaxed);
            tracing::warn!(connections, "closed at once: as many connections as may be are open");
        }
    }
}

impl<A> Bounded<A> {
    /// Limits `inner` to `places` open connections.
    pub(crate) fn new(inner: A, places: usize) -> Self {
        Self {
            inner,
            free: Arc::new(Semaphore::new(places)),
            of_address_max: places.div_ceil(ADDRESS_SHARES),
            by_address: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// Takes a place for a connection from an address; `None` if there is none.
    fn place(&self, remote: Option<IpAddr>) -> Option<(OwnedSemaphorePermit, Option<OfAddress>)> {
        let of_address = match remote {
            Some(address) => Some(OfAddress::take(address, self.of_address_max, &self.by_address)?),
            None => None,
        };
        Some((self.free.clone().try_acquire_owned().ok()?, of_address))
    }
}

impl<A, I, S> Accept<I, S> for Bounded<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
    I: Peer,
{
    type Stream = Counted<A::Stream>;
    type Service = A::Service;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let Some(place) = self.place(stream.remote()) else {
            self.refused.note();
            return Box::pin(async { Err(io::Error::from(io::ErrorKind::QuotaExceeded)) });
        };
        let accepting = self.inner.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepting.await?;
            Ok((Counted { stream, _place: place }, service))
        })
    }
}

/// A connection that returns its permit when it is closed, even after an upgrade to a WebSocket.
pub(crate) struct Counted<T> {
    stream: T,
    _place: (OwnedSemaphorePermit, Option<OfAddress>),
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum_server::accept::DefaultAcceptor;

    use super::*;

    impl Peer for tokio::io::Empty {
        fn remote(&self) -> Option<IpAddr> {
            None
        }
    }

    #[test]
    fn one_address_takes_a_quarter_of_the_places() {
        let acceptor = Bounded::new((), 8);
        let (one, other) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        let held = [acceptor.place(one).unwrap(), acceptor.place(one).unwrap()];
        assert!(acceptor.place(one).is_none());
        let _others = [acceptor.place(other).unwrap(), acceptor.place(None).unwrap(), acceptor.place(None).unwrap()];
        drop(held);
        assert!(acceptor.place(one).is_some());
    }

    #[test]
    fn one_ipv6_network_is_one_client() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::7"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::7"), of("2001:db8:1:3::7"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[tokio::test]
    async fn a_place_is_given_back_when_its_connection_is_dropped() {
        let acceptor = Bounded::new(DefaultAcceptor::new(), 1);
        let accept = || async { acceptor.accept(tokio::io::empty(), ()).await.map(|(stream, ())| stream) };
        let first = accept().await.unwrap();
        assert_eq!(accept().await.err().unwrap().kind(), io::ErrorKind::QuotaExceeded);
        drop(first);
        assert!(accept().await.is_ok());
    }

    #[test]
    fn descriptors_are_set_aside_at_any_limit() {
        for (limit, places) in [(65_536, 16_384), (1_200, 688), (1_024, 512), (256, 128), (0, 0)] {
            assert_eq!(places_within(limit), places, "{limit}");
        }
    }
}
