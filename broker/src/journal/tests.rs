//! The journal over files, and two of them that read one another.

use std::fs;
use std::time::Instant;

use rustix::io::Errno;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::entry::tests::{kept, origin};
use super::pull::Beginnings;
use super::*;
use crate::testing::{Disk, Refusals};

const SOON: Duration = Duration::from_secs(20);

fn journal(disk: &Disk, broker: i32) -> (Arc<Journal>, JoinHandle<()>) {
    let journal = Arc::new(Journal::default());
    let thread = journal.start(disk.storage.clone(), origin(broker)).unwrap();
    (journal, thread)
}

fn bodies(journal: &Journal) -> Vec<i64> {
    let entries = journal.last(Kind::Loss, 100);
    entries.iter().map(|entry| entry.body["n"].as_i64().unwrap()).collect()
}

async fn until(journal: &Journal, what: impl Fn(&Journal) -> bool) {
    let mut changed = journal.watch();
    let waiting = async {
        while !what(journal) {
            changed.changed().await.unwrap();
        }
    };
    timeout(SOON, waiting).await.expect("in time");
}

#[tokio::test]
async fn entries_are_shown_once_durable_and_are_there_after_a_restart() {
    let (refusals, files) = Refusals::disk();
    let disk = Disk::on(files);
    let tried = Arc::new(Notify::new());
    let noted = tried.clone();
    refusals.set(move |_| {
        noted.notify_one();
        Some(Errno::NOSPC)
    });
    let (first, thread) = journal(&disk, 1);
    first.add(Kind::Loss, json!({ "n": 1 }));
    first.add(Kind::Failover, json!({ "n": 2 }));
    first.add(Kind::Loss, json!({ "n": 3 }));
    first.add(Kind::Loss, json!("no object"));
    timeout(SOON, tried.notified()).await.expect("it is tried");
    assert_eq!((bodies(&first), first.written()), (vec![], 0), "the disk refuses");
    refusals.lift();
    until(&first, |journal| journal.written() == 3).await;
    assert_eq!(bodies(&first), [1, 3]);
    assert_eq!(first.last(Kind::Failover, 9)[0].sequence, 1, "each kind counts by itself");
    first.stop();
    thread.join().unwrap();
    let (second, _) = journal(&disk, 1);
    until(&second, |journal| journal.last(Kind::Loss, 9).len() == 2).await;
    second.add(Kind::Loss, json!({ "n": 4 }));
    until(&second, |journal| journal.written() == 1).await;
    assert_eq!(bodies(&second), [1, 3, 4]);
    assert_eq!(second.last(Kind::Loss, 1)[0].sequence, 3);
}

#[tokio::test]
async fn nobody_waits_for_a_disk_that_refuses_or_that_another_has_waited_for_in_vain() {
    let (refusals, files) = Refusals::disk();
    let disk = Disk::on(files);
    refusals.set(|op| matches!(op, barnabas_log::Op::Write { .. }).then_some(Errno::NOSPC));
    let refused = Arc::new(Journal::default());
    let began = Instant::now();
    let _thread = refused.start(disk.storage.clone(), origin(1)).unwrap();
    refused.add(Kind::Loss, json!({ "n": 1 }));
    assert!(!refused.wait_until_written(SOON * 10), "the write was refused");
    assert!(!refused.wait_until_written(SOON * 10), "and nothing was written since");
    assert!(began.elapsed() < SOON * 10);
    refusals.lift();
    until(&refused, |journal| journal.written() == 1).await;
    refused.add(Kind::Loss, json!({ "n": 2 }));
    assert!(refused.wait_until_written(SOON * 10));
    // One of which nobody writes anything.
    let hangs = Journal::default();
    hangs.add(Kind::Loss, json!({ "n": 1 }));
    assert!(!hangs.wait_until_written(Duration::from_millis(1)));
    let began = Instant::now();
    assert!(!hangs.wait_until_written(SOON * 10), "that was found out before");
    assert!(began.elapsed() < SOON * 10);
}

#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_counted() {
    let disk = Disk::new();
    let journal = Arc::new(Journal::default());
    (0..QUEUE_MAX + 5).for_each(|n| journal.add(Kind::Loss, json!({ "n": n })));
    let _thread = journal.start(disk.storage.clone(), origin(1)).unwrap();
    until(&journal, |journal| journal.written() == QUEUE_MAX as u64).await;
    let last = journal.last(Kind::Loss, 1);
    assert_eq!((&last[0].body["cause"], &last[0].body["records"]), (&json!("overflow"), &json!(5)));
}

#[tokio::test]
async fn losses_without_room_are_told_though_none_comes_after_and_failovers_are_no_losses() {
    let disk = Disk::new();
    let journal = Arc::new(Journal::default());
    (0..QUEUE_MAX).for_each(|n| journal.add(Kind::Failover, json!({ "n": n })));
    (0..3).for_each(|n| journal.add(Kind::Loss, json!({ "n": n })));
    (0..2).for_each(|n| journal.add(Kind::Failover, json!({ "n": n })));
    let _thread = journal.start(disk.storage.clone(), origin(1)).unwrap();
    until(&journal, |journal| !journal.last(Kind::Loss, 1).is_empty()).await;
    let told = journal.last(Kind::Loss, 9);
    assert_eq!((told.len(), &told[0].body["records"]), (1, &json!(3)));
    assert_eq!(journal.written(), QUEUE_MAX as u64);
}

#[tokio::test]
async fn answers_take_turns_between_the_series() {
    let disk = Disk::new();
    let (journal, _) = journal(&disk, 1);
    until(&journal, |journal| journal.marks().is_some()).await;
    let large = |sequence| {
        let body = json!({ "n": sequence, "pad": "x".repeat(60_000) }).to_string();
        v1::JournalEntry { body, ..kept(2, sequence).message() }
    };
    journal.take((1..=40).map(large).chain([kept(3, 1).message()]).collect()).await.unwrap();
    // Somebody who refuses what broker 2 made asks again without having got further.
    let request = v1::ReadJournalRequest { after: Vec::new(), wait_ms: 0 };
    let of_two = origin(2).to_string();
    let first = journal.read(&request).await.unwrap().entries;
    assert!(first.iter().all(|entry| entry.origin == of_two));
    let second = journal.read(&request).await.unwrap().entries;
    assert_eq!((&second[0].origin, &second[1].origin), (&origin(3).to_string(), &of_two));
}

/// One round of what `pull.rs` does over the network.
async fn pull(to: &Arc<Journal>, from: &Arc<Journal>, wait_ms: u32) -> Taken {
    pull_with(&mut Beginnings::missing(to), to, from, wait_ms).await
}

async fn pull_with(
    beginnings: &mut Beginnings,
    to: &Arc<Journal>,
    from: &Arc<Journal>,
    wait_ms: u32,
) -> Taken {
    let marks = to.marks().unwrap().into_iter();
    let after = marks.map(|mark| beginnings.asked(mark).message()).collect();
    let answer = from.read(&v1::ReadJournalRequest { after, wait_ms }).await.unwrap();
    beginnings.sent(&answer.entries);
    to.take(answer.entries).await.unwrap()
}

#[tokio::test]
async fn a_broker_that_lost_a_directory_gets_the_older_entries_back_page_by_page() {
    let (one, two, three) = (Disk::new(), Disk::new(), Disk::new());
    let (whole, _) = journal(&one, 1);
    let (cut, _) = journal(&two, 2);
    let (newer, _) = journal(&three, 3);
    for journal in [&whole, &cut, &newer] {
        until(journal, |journal| journal.marks().is_some()).await;
    }
    let large = |sequence| {
        let body = json!({ "n": sequence, "pad": "x".repeat(60_000) }).to_string();
        v1::JournalEntry { body, ..kept(9, sequence).message() }
    };
    let all: Vec<_> = (1..=40).map(large).collect();
    whole.take(all.clone()).await.unwrap();
    for journal in [&cut, &newer] {
        journal.take(all[35..].to_vec()).await.unwrap();
    }
    // Who has no more than this broker is asked once; that says nothing of the others.
    let mut of_newer = Beginnings::missing(&cut);
    assert_eq!(
        pull_with(&mut of_newer, &cut, &newer, 0).await,
        Taken { known: 5, ..Taken::default() }
    );
    assert_eq!(pull_with(&mut of_newer, &cut, &newer, 0).await, Taken::default());
    let mut of_whole = Beginnings::missing(&cut);
    let mut rounds = 0;
    while cut.last(Kind::Loss, 99).len() < 40 {
        assert!(pull_with(&mut of_whole, &cut, &whole, 0).await.new > 0);
        rounds += 1;
    }
    assert!(rounds > 1, "an answer is bounded");
    assert_eq!((bodies(&cut), cut.missing(Kind::Loss)), ((1..=40).collect(), 0));
    pull_with(&mut of_whole, &cut, &whole, 0).await;
    assert_eq!(pull_with(&mut of_whole, &cut, &whole, 0).await, Taken::default());
    // And after a restart nothing is asked for again.
    cut.stop();
    let (again, _) = journal(&two, 2);
    until(&again, |journal| journal.marks().is_some()).await;
    assert_eq!(pull(&again, &whole, 0).await, Taken::default());
}

#[tokio::test]
async fn a_broker_keeps_the_entries_of_another_whose_directory_is_gone() {
    let (one, two, three) = (Disk::new(), Disk::new(), Disk::new());
    let (first, _) = journal(&one, 1);
    let (second, thread) = journal(&two, 2);
    for journal in [&first, &second] {
        until(journal, |journal| journal.marks().is_some()).await;
    }
    first.add(Kind::Loss, json!({ "n": 1 }));
    // The answer comes when there is an entry, not when the wait is over.
    let taken = timeout(SOON, pull(&second, &first, 30_000)).await.unwrap();
    assert_eq!((taken.new, taken.known), (1, 0));
    assert_eq!(second.last(Kind::Loss, 9), first.last(Kind::Loss, 9));
    assert!(two.temp.path().join(format!("barnabas.losses.{}.jsonl", origin(1))).exists());
    assert!(!two.temp.path().join("barnabas.losses.jsonl").exists());
    second.stop();
    thread.join().unwrap();
    // Broker 1 comes back with an empty directory, and broker 2 after a restart.
    let (second, _) = journal(&two, 2);
    let (wiped, _) = journal(&three, 9);
    for journal in [&wiped, &second] {
        until(journal, |journal| journal.marks().is_some()).await;
    }
    assert_eq!(pull(&wiped, &second, 0).await.new, 1);
    assert_eq!(bodies(&wiped), [1]);
    assert_eq!(pull(&wiped, &second, 0).await, Taken::default());
}

#[tokio::test]
async fn an_entry_of_another_waits_for_the_end_of_the_wait() {
    let disk = Disk::new();
    let (journal, _) = journal(&disk, 1);
    until(&journal, |journal| journal.marks().is_some()).await;
    let wait = Duration::from_millis(300);
    let begun = Instant::now();
    let request = v1::ReadJournalRequest { after: Vec::new(), wait_ms: 300 };
    let mut asking = std::pin::pin!(journal.read(&request));
    assert!(timeout(Duration::ZERO, &mut asking).await.is_err(), "there is nothing to tell");
    journal.take(vec![kept(2, 1).message()]).await.unwrap();
    // It is looked at next with the entry there, whatever the time.
    let answer = timeout(SOON, asking).await.expect("in time").unwrap();
    assert_eq!(answer.entries.len(), 1);
    assert!(begun.elapsed() >= wait, "it came when another one's entry came");
}

#[tokio::test]
async fn hostile_questions_and_answers_do_no_harm() {
    let disk = Disk::new();
    let (journal, _) = journal(&disk, 1);
    until(&journal, |journal| journal.marks().is_some()).await;
    let mark = v1::JournalMark { kind: "loss".into(), origin: "/etc/passwd".into(), sequence: 1 };
    let many = v1::ReadJournalRequest { after: vec![mark.clone(); 1_000], wait_ms: u32::MAX };
    assert_eq!(journal.read(&many).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let odd = v1::ReadJournalRequest { after: vec![mark], wait_ms: 0 };
    assert!(journal.read(&odd).await.unwrap().entries.is_empty());
    let good = kept(2, 1).message();
    let bad = v1::JournalEntry { origin: "2-../../x".into(), ..good.clone() };
    let worse = v1::JournalEntry { body: "7".into(), sequence: 2, ..good.clone() };
    let taken = journal.take(vec![bad, good.clone(), worse, good]).await.unwrap();
    assert_eq!((taken.new, taken.known, taken.refused.unwrap().0), (1, 1, 2));
    assert_eq!(bodies(&journal), [1]);
    let names: Vec<_> =
        fs::read_dir(disk.temp.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let journals = names.iter().filter(|name| name.to_string_lossy().contains("losses")).count();
    assert_eq!(journals, 1, "{names:?}");
}

#[tokio::test]
async fn pages_go_on_where_they_ended() {
    let disk = Disk::new();
    let (journal, _) = journal(&disk, 1);
    let sent = (1..=7).map(|n| kept(2, n).message()).chain([kept(3, 4).message()]);
    until(&journal, |journal| journal.marks().is_some()).await;
    journal.take(sent.collect()).await.unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let wanted = |entry: &Entry| entry.body["n"] != 5;
        let (page, more) = journal.page(Kind::Loss, 1_002, after.as_ref(), 2, wanted);
        found.extend(page.iter().map(|entry| (entry.origin.broker.0, entry.sequence)));
        let last = page.last().unwrap();
        after = Some(Place { time_ms: last.time_ms, origin: last.origin, sequence: last.sequence });
        if !more {
            break;
        }
    }
    assert_eq!(found, [(2, 2), (2, 3), (2, 4), (3, 4), (2, 6), (2, 7)]);
}
