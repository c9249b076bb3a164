//! What the admin listener says while the broker starts: that it does. Without it a question would wait for an answer until the
//! start has come to something, and be told nothing if that is its end.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use barnabas_proto::v1::admin_server::SERVICE_NAME;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Answers every question of the `Admin` service with "unavailable". No other service is answered: it ends before the broker is
/// registered, and before that nobody else calls.
#[derive(Clone)]
struct Starting {
    text: Arc<str>,
}

impl NamedService for Starting {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for Starting {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Ok(Status::unavailable(&*self.text).into_http()))
    }
}

/// Says `text` to whoever asks until this is dropped; connections that were made till then end soon after.
pub struct SaysStarting {
    _until_dropped: oneshot::Sender<()>,
}

impl SaysStarting {
    /// Begins. `listener` stays the caller's, to be served once this is dropped.
    ///
    /// # Errors
    /// The system gives no more descriptors.
    pub fn at(listener: TcpListener, text: &str) -> io::Result<(Self, TcpListener)> {
        let kept = listener.into_std()?;
        let served = TcpIncoming::from(TcpListener::from_std(kept.try_clone()?)?);
        let server = Server::builder().add_service(Starting { text: text.into() });
        let (until_dropped, dropped) = oneshot::channel();
        tokio::spawn(async move {
            let dropped = async {
                // Never sent.
                let _ = dropped.await;
            };
            // Whoever is not answered asks again.
            let _ = server.serve_with_incoming_shutdown(served, dropped).await;
        });
        Ok((Self { _until_dropped: until_dropped }, TcpListener::from_std(kept)?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use barnabas_proto::v1::DescribeClusterRequest;
    use barnabas_proto::v1::admin_client::AdminClient;
    use tonic::Code;

    use super::*;

    /// The next server of the socket is one of these too, with another text.
    #[tokio::test]
    async fn a_broker_that_starts_says_so_and_whoever_asks_again_is_served_by_what_follows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (starting, listener) = SaysStarting::at(listener, "broker 1 is starting").unwrap();
        let mut client = AdminClient::connect(address).await.unwrap();
        for _ in 0..2 {
            let status = client.describe_cluster(DescribeClusterRequest {}).await.unwrap_err();
            let said = (status.code(), status.message());
            assert_eq!(said, (Code::Unavailable, "broker 1 is starting"));
        }
        drop(starting);
        let (_next, _listener) = SaysStarting::at(listener, "what follows").unwrap();
        let served = async {
            while client.describe_cluster(DescribeClusterRequest {}).await.unwrap_err().message()
                != "what follows"
            {}
        };
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("in time");
    }
}
