//! A TCP link that can be cut and healed.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections while it is whole. When cut, all connections break and new ones are refused service.
pub struct Link {
    pub address: String,
    whole: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    pub async fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let whole = watch::Sender::new(true);
        let state = whole.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *state.borrow() {
                    tokio::spawn(forward(near, target.clone(), state.clone()));
                }
            }
        });
        Self { address, whole, task }
    }

    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn forward(mut near: TcpStream, target: String, mut state: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        _ = state.wait_for(|whole| !whole) => {}
    }
}
