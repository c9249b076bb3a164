//! A loopback TCP proxy that stands in front of an advertised address: cut, heal, or hold what flows one way.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Outcome;

/// Most bytes that one direction of one connection holds.
const BUFFER_BYTES: usize = 64 * 1024;
/// How the requests of a follower name their client.
const FOLLOWER: &[u8] = b"barnabas-follower";

/// What the proxy does with connections, old and new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Everything passes.
    Whole,
    /// Every connection is closed, new ones too.
    Cut,
    /// Every connection of a follower is closed, new ones too; what clients send passes.
    CutFollowers,
    /// Bytes towards the server are held; answers pass. Connections stay open.
    HoldRequests,
    /// Bytes towards the client are held; requests pass. Connections stay open.
    HoldReplies,
    /// Bytes towards the server are held on the connections that are open now; answers pass, and what is opened later.
    HoldOpenRequests,
    /// Nothing passes in either direction; connections stay open, as if a cable was pulled.
    Silent,
}

/// A running proxy; its end closes all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    link: watch::Sender<Link>,
    held: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port and forwards to `target`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(target: SocketAddr) -> Outcome<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, target).await
    }

    /// The same on another address of this machine.
    ///
    /// # Errors
    /// It has no such address.
    pub async fn start_at(own: Ipv4Addr, target: SocketAddr) -> Outcome<Self> {
        let listener = TcpListener::bind((own, 0)).await?;
        let address = listener.local_addr()?;
        let (link, watched) = watch::channel(Link::Whole);
        let held = Arc::<AtomicUsize>::default();
        let accepting = tokio::spawn(accept(listener, target, watched, held.clone()));
        Ok(Self { address, link, held, accepting })
    }

    /// What to advertise instead of the target.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// On how many connections bytes are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Changes what happens to all connections from now on.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Link::Cut);
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    link: watch::Receiver<Link>,
    held: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if *link.borrow() == Link::Cut {
            continue;
        }
        tokio::spawn(connect(client, target, link.clone(), held.clone()));
    }
}

async fn connect(
    client: TcpStream,
    target: SocketAddr,
    link: watch::Receiver<Link>,
    held: Arc<AtomicUsize>,
) {
    let is_later = *link.borrow() == Link::HoldOpenRequests;
    let held_by = move |link: &Link| match link {
        Link::HoldOpenRequests => !is_later,
        other => *other == Link::HoldRequests,
    };
    let Ok(server) = TcpStream::connect(target).await else { return };
    // A refused option only costs latency.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    // Whichever direction ends first ends the other, so that a closed connection is closed for both.
    tokio::select! {
        () = forward(client_in, server_out, (link.clone(), held.clone()), held_by) => {}
        () = forward(server_in, client_out, (link, held), |link: &Link| *link == Link::HoldReplies) => {}
    }
}

/// Counts while it lives: a connection may end while its bytes are held.
struct Held<'a>(&'a AtomicUsize);

impl<'a> Held<'a> {
    fn by(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (mut link, held): (watch::Receiver<Link>, Arc<AtomicUsize>),
    held_by: impl Fn(&Link) -> bool,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut follower = false;
    let is_cut =
        |link: Link, follower| link == Link::Cut || (link == Link::CutFollowers && follower);
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            cut = link.wait_for(|link| is_cut(*link, follower)) => {
                let _ = cut;
                return;
            }
        };
        if read == 0 {
            return;
        }
        follower |= buffer[..read].windows(FOLLOWER.len()).any(|bytes| bytes == FOLLOWER);
        if is_cut(*link.borrow(), follower) {
            return;
        }
        let held = Held::by(&held);
        let passes = |link: &Link| !held_by(link) && *link != Link::Silent;
        let passes = link.wait_for(passes).await.is_ok_and(|now| *now != Link::Cut);
        let passed = passes && to.write_all(&buffer[..read]).await.is_ok();
        drop(held);
        if !passed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_for;
    use std::time::Duration;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn held_replies_arrive_after_healing_and_a_cut_closes() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let mut answer = [0; 1];
        client.write_all(b"a").await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        proxy.set(Link::HoldReplies);
        client.write_all(b"b").await.unwrap();
        let held = tokio::time::timeout(Duration::from_millis(200), client.read(&mut answer)).await;
        assert!(held.is_err(), "nothing passes while replies are held");
        proxy.set(Link::Whole);
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"b");
        let mut follower = TcpStream::connect(proxy.address()).await.unwrap();
        let mut echoed = [0; FOLLOWER.len()];
        follower.write_all(FOLLOWER).await.unwrap();
        follower.read_exact(&mut echoed).await.unwrap();
        proxy.set(Link::CutFollowers);
        assert_eq!(follower.read(&mut answer).await.unwrap_or(0), 0);
        client.write_all(b"c").await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        proxy.set(Link::Cut);
        assert_eq!(client.read(&mut answer).await.unwrap_or(0), 0);
        let refused = wait_for("a new connection is closed", Duration::from_secs(5), || async {
            let mut client = TcpStream::connect(proxy.address()).await.ok()?;
            let mut answer = [0; 1];
            (client.read(&mut answer).await.unwrap_or(0) == 0).then_some(())
        });
        refused.await.unwrap();
    }
}
