//! Order, wake-ups, full sockets, files and memory of the answers of one connection.

use super::*;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

async fn pair() -> (Arc<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (Arc::new(server), client)
}

/// Sends all that is unsent whenever the socket takes some; returns what the client reads, which are so many bytes.
async fn sent(out: &Out, server: &TcpStream, mut client: TcpStream, bytes: usize) -> Vec<u8> {
    let reader = tokio::spawn(async move {
        let mut all = vec![0; bytes];
        client.read_exact(&mut all).await.unwrap();
        all
    });
    while out.unsent_bytes() > 0 {
        out.woken().await;
        server.writable().await.unwrap();
        out.flush();
    }
    reader.await.unwrap()
}

#[tokio::test]
async fn answers_leave_in_the_order_of_their_requests() {
    let (server, mut client) = pair().await;
    let out = Out::new(server);
    let (a, b, c) = (out.reserve(), out.reserve(), out.reserve());
    out.complete(c, vec![Bytes::from_static(b"c")]);
    out.complete(b, vec![]);
    out.flush();
    out.complete(a, vec![Bytes::from_static(b"a")]);
    out.flush();
    let mut got = [0; 2];
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ac");
}

#[tokio::test]
async fn a_paused_owner_is_woken_when_somebody_else_makes_room() {
    let (server, _client) = pair().await;
    let out = Arc::new(Out::new(server));
    let slots: Vec<Slot> = (0..IN_FLIGHT_MAX).map(|_| out.reserve()).collect();
    assert!(!out.may_take());
    let other = out.clone();
    let (waiting, finished) = tokio::join!(out.woken(), async move {
        other.complete(slots[0], vec![Bytes::from_static(b"a")]);
        other.flush();
    });
    assert_eq!((waiting, finished), ((), ()));
    assert!(out.may_take());
}

#[tokio::test]
async fn an_owner_that_waits_until_nothing_is_owed_is_woken_by_whoever_sends_the_last_answer() {
    let (server, _client) = pair().await;
    let out = Arc::new(Out::new(server));
    assert!(!out.is_busy_until_woken());
    let slots = [out.reserve(), out.reserve()];
    assert!(out.is_busy_until_woken());
    let is_woken = || async {
        tokio::select! {
            biased;
            () = out.woken() => true,
            () = std::future::ready(()) => false,
        }
    };
    for (slot, wakes) in slots.into_iter().zip([false, true]) {
        out.complete(slot, vec![Bytes::from_static(b"a")]);
        out.flush();
        assert_eq!(is_woken().await, wakes);
    }
}

#[tokio::test]
async fn behind_a_barrier_no_request_is_taken_until_its_answer_is_there() {
    let (server, _client) = pair().await;
    let out = Arc::new(Out::new(server));
    let (earlier, change) = (out.reserve(), out.reserve());
    out.finish_before_more(change);
    assert!(!out.may_take());
    out.complete(earlier, vec![Bytes::from_static(b"a")]);
    out.flush();
    assert!(!out.may_take(), "the change itself is still under way");
    let other = out.clone();
    tokio::join!(out.woken(), async move {
        other.complete(change, vec![Bytes::from_static(b"b")]);
        other.flush();
    });
    assert!(out.may_take());
    let next = out.reserve();
    assert!(out.may_take(), "request {next:?} is no change: it holds nobody up");
}

#[tokio::test]
async fn a_full_socket_wakes_the_owner_and_loses_nothing() {
    let (server, client) = pair().await;
    let out = Arc::new(Out::new(server.clone()));
    let slot = out.reserve();
    let big = Bytes::from(vec![7u8; 32 << 20]);
    out.complete(slot, vec![big.clone()]);
    out.flush();
    assert!(out.unsent_bytes() > 0);
    assert_eq!(sent(&out, &server, client, 32 << 20).await, big);
}

#[tokio::test]
async fn the_owner_does_not_wake_itself_while_the_socket_is_full() {
    let (server, _client) = pair().await;
    let out = Out::new(server);
    let slot = out.reserve();
    out.complete(slot, vec![Bytes::from(vec![7u8; 32 << 20])]);
    out.flush_own();
    assert!(out.unsent_bytes() > 0);
    let woken = tokio::select! {
        biased;
        () = out.woken() => true,
        () = std::future::ready(()) => false,
    };
    assert!(!woken, "it would run in circles until the peer reads");
}

#[tokio::test]
async fn answers_that_wait_for_an_earlier_one_count_as_unsent() {
    let (server, _client) = pair().await;
    let out = Out::new(server);
    let (_first, second) = (out.reserve(), out.reserve());
    out.complete(second, vec![Bytes::from(vec![7u8; UNSENT_BYTES_MAX])]);
    out.flush_own();
    assert_eq!(out.unsent_bytes(), 0, "nothing can be sent yet");
    assert!(!out.may_take());
}

/// A file with these many bytes.
fn range(bytes: usize) -> (Arc<barnabas_log::DiskFile>, barnabas_log::testing::TempDir) {
    let temp = barnabas_log::testing::TempDir::new("out");
    let disk = barnabas_log::Disk::real();
    let file = disk.create(&temp.path().join("file")).unwrap();
    let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&content, 0).unwrap();
    (Arc::new(file), temp)
}

fn file_piece(file: &Arc<barnabas_log::DiskFile>, position: u64, len: usize) -> Piece {
    Piece::File(crate::connection::piece::FileRange { file: file.clone(), position, len })
}

#[tokio::test]
async fn ranges_of_files_are_sent_in_their_places_whatever_the_socket_takes_at_once() {
    const BYTES: usize = 24 << 20;
    let (server, client) = pair().await;
    let budget = Arc::new(Budget::new(1 << 20));
    let out = Arc::new(Out::counted(server.clone(), Some(budget.clone()), None));
    let (file, _temp) = range(BYTES);
    let slot = out.reserve();
    let (head, tail) = (Bytes::from_static(b"head"), Bytes::from_static(b"tail"));
    let ranges = [file_piece(&file, 0, BYTES), file_piece(&file, 7, 9)];
    let [whole, part] = ranges;
    let answer = vec![Piece::Bytes(head), whole, Piece::Bytes(tail), part];
    out.complete_pieces(slot, answer);
    assert_eq!(budget.answer_bytes(), 8, "files cost no memory");
    out.flush();
    let all = sent(&out, &server, client, BYTES + 17).await;
    let content = |from: usize, len: usize| (from..from + len).map(|at| (at % 251) as u8);
    assert!(all[..4] == *b"head" && all[4 + BYTES..8 + BYTES] == *b"tail");
    assert!(all[4..4 + BYTES].iter().copied().eq(content(0, BYTES)));
    assert!(all[8 + BYTES..].iter().copied().eq(content(7, 9)));
    assert_eq!((budget.answer_bytes(), Arc::strong_count(&file)), (0, 1));
}

#[tokio::test]
async fn a_file_that_ends_too_early_closes_the_connection() {
    let (server, mut client) = pair().await;
    let out = Out::new(server);
    let (file, _temp) = range(100);
    let slot = out.reserve();
    out.complete_pieces(slot, vec![file_piece(&file, 0, 200)]);
    file.set_len(60).unwrap();
    out.flush();
    assert!(out.is_closed());
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), 60, "the peer sees that it is incomplete");
}

#[tokio::test]
async fn what_is_not_sent_when_the_connection_ends_is_given_back() {
    let budget = Arc::new(Budget::new(1 << 20));
    for close in [true, false] {
        let (server, _client) = pair().await;
        let out = Out::counted(server, Some(budget.clone()), None);
        let slots = [out.reserve(), out.reserve(), out.reserve()];
        out.complete(slots[0], vec![Bytes::from(vec![0; 16 << 20])]);
        out.complete(slots[2], vec![Bytes::from(vec![0; 1 << 20])]);
        out.flush();
        assert!(budget.answer_bytes() > 1 << 20);
        if close {
            out.close();
            assert_eq!(budget.answer_bytes(), 0);
        }
        drop(out);
        assert_eq!(budget.answer_bytes(), 0);
    }
}

#[tokio::test]
async fn a_closed_connection_lets_go_of_its_socket_whoever_still_waits() {
    let (server, mut client) = pair().await;
    let out = Out::new(server);
    let slot = out.reserve();
    out.close();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "the peer sees the end");
    out.complete(slot, vec![Bytes::from_static(b"late")]);
    out.flush();
    assert!(out.is_closed() && out.unsent_bytes() == 0);
}
