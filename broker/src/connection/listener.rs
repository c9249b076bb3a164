//! Accepts connections of the Kafka listener.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::serve;
use crate::node::Node;

/// Connections at once; a further one waits in the backlog until another ends.
const CONNECTIONS_MAX: usize = 10_000;
/// Wait after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts until `stop` becomes true. Must run on the data runtime: each connection is one task there.
pub async fn listen(node: Arc<Node>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (node, stop) = (node.clone(), stop.clone());
                tokio::spawn(async move {
                    serve::serve(node, stream, peer, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(target: "request", %error, "a connection could not be accepted");
                // Out of file descriptors, most likely: the same error would come again at once, a line each time.
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
