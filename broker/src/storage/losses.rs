//! Losses: whatever a log dropped, or had to stop counting on, as entries of the journal.
//!
//! The body of such an entry; one event is several entries if the ranges are of several classes:
//!
//! | field | what |
//! |---|---|
//! | `topic`, `partition`, `topic_id` | whose records |
//! | `from` | first offset, inclusive |
//! | `to` | end, exclusive; null: the bytes do not tell |
//! | `at_least_to` | what is below is gone for sure, exclusive |
//! | `bytes` | of segment files, in all ranges of the event; 0 if they were missing already |
//! | `last_epoch` | leader epoch of the last record, at `at_least_to` - 1; null if unknown. Of what only may be gone, the newest that is known |
//! | `leader_epoch` | that of the replica when it was noticed, null before it knew one |
//! | `high_watermark` | that of the replica at that moment, exclusive; null if unknown |
//! | `class` | what they had been acknowledged at, see [`super::class`] |
//! | `class_reason` | why |
//! | `cause` | `damaged`, `missing`, `truncated`, `reset`, `removed`, `failed_sync`; `host_crash`, `unclean_election` and `directory_lost` (whether anything is gone is not known) |
//! | `detail` | in words, where there is more to say |
//! | `class_unless_led`, `led_epoch` | the class if nobody has led between `led_epoch` and `leader_epoch`, which others may know ([`crate::ledger`]); otherwise null |
//!
//! A loss says what *this replica* lost. Whether the cluster did is another matter: others may have the records.

use std::time::Duration;

use barnabas_log::{Loss, LossCause};
use barnabas_types::{Incarnation, LeaderEpoch, LeaderEpochs, Offset, TopicPartition};
use serde_json::{Value, json};

use super::class::{Led, Part, parts};
use super::led_note::LedNote;
use crate::journal::{Journal, Kind};

/// What a replica lost, and what it knew at that moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Whose records.
    pub partition: TopicPartition,
    /// Of which life of the topic.
    pub incarnation: Incarnation,
    /// What is gone and why.
    pub loss: Loss,
    /// The replica's leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The epochs of its log before it lost anything; `None`: not known any more.
    pub epochs: Option<LeaderEpochs>,
    /// The replica's high watermark, exclusive.
    pub high_watermark: Option<Offset>,
    /// What this process acknowledged as the partition's leader; `None` if it has not led.
    pub led: Option<Led>,
    /// What this replica had noted when its host crashed, if it led until then: nobody has led since.
    pub led_until_crash: Option<LedNote>,
}

/// How long whoever drops records waits for the journal.
const AHEAD_MAX: Duration = Duration::from_secs(1);

impl Lost {
    /// Says so in the broker's log, and writes it into the journal.
    pub fn tell(&self, journal: &Journal) {
        for part in parts(self) {
            self.log(&part);
            journal.add(Kind::Loss, self.body(&part));
        }
    }

    /// [`Lost::tell`], and waits until it is durable, so that records are dropped only when that cannot be forgotten any more; but not
    /// for long. Blocks.
    pub fn tell_ahead(&self, journal: &Journal) {
        self.tell(journal);
        if !journal.wait_until_written(AHEAD_MAX) {
            let (topic, partition) = (&self.partition.topic, self.partition.partition);
            let leader_epoch = self.leader_epoch.map_or(-1, |epoch| epoch.0);
            tracing::warn!(target: "state_change", %topic, partition, leader_epoch, "records are dropped before that is durable in the journal: its disk does not keep up");
        }
    }

    fn body(&self, part: &Part) -> Value {
        let loss = &self.loss;
        json!({
            "topic": self.partition.topic.as_str(),
            "partition": self.partition.partition,
            "topic_id": self.incarnation.topic_id.to_string(),
            "from": part.from.0,
            "to": part.to.map(|to| to.0),
            "at_least_to": part.at_least_to.0,
            "bytes": loss.bytes,
            "last_epoch": part.last_epoch.map(|epoch| epoch.0),
            "leader_epoch": self.leader_epoch.map(|epoch| epoch.0),
            "high_watermark": self.high_watermark.map(|mark| mark.0),
            "class": part.class.name(),
            "class_reason": part.reason,
            "cause": cause(&loss.cause),
            "detail": detail(&loss.cause),
            "class_unless_led": part.unless_led.map(|(class, _)| class.name()),
            "led_epoch": part.unless_led.map(|(_, epoch)| epoch.0),
        })
    }

    fn log(&self, part: &Part) {
        let (topic, partition) = (&self.partition.topic, self.partition.partition);
        let loss = &self.loss;
        let said = match loss.cause {
            LossCause::HostCrash => "the host crashed: this replica may have lost records",
            LossCause::DirectoryLost => "this replica begins empty: its directory was not there",
            LossCause::UncleanElection => {
                "this replica leads without having been in the ISR: records may be lost"
            }
            _ => "this replica lost records",
        };
        tracing::warn!(
            target: "state_change", %topic, partition,
            leader_epoch = self.leader_epoch.map_or(-1, |epoch| epoch.0),
            last_epoch = part.last_epoch.map_or(-1, |epoch| epoch.0),
            from = %part.from, to = part.to.map_or(-1, |to| to.0), at_least_to = %part.at_least_to,
            bytes = loss.bytes, cause = cause(&loss.cause), class = part.class.name(),
            detail = detail(&loss.cause).unwrap_or_default(), "{said}"
        );
    }
}

fn cause(cause: &LossCause) -> &'static str {
    match cause {
        LossCause::Damaged(_) => "damaged",
        LossCause::Missing => "missing",
        LossCause::Truncated => "truncated",
        LossCause::Reset => "reset",
        LossCause::FailedSync => "failed_sync",
        LossCause::HostCrash => "host_crash",
        LossCause::UncleanElection => "unclean_election",
        LossCause::DirectoryLost => "directory_lost",
        LossCause::Removed => "removed",
        _ => "other",
    }
}

fn detail(cause: &LossCause) -> Option<String> {
    match cause {
        LossCause::Damaged(error) => Some(error.to_string()),
        LossCause::UncleanElection => Some(
            "no ISR member could lead: what they acknowledged from here on may be lost".to_owned(),
        ),
        LossCause::DirectoryLost => Some(
            "nothing of this replica was found in the log directories: emptied, replaced, or taken out of log.dirs"
                .to_owned(),
        ),
        LossCause::Removed => Some(
            "the replica led until it was moved away: the next leader may have copied what it had acknowledged alone, or not"
                .to_owned(),
        ),
        LossCause::HostCrash => {
            Some("what was appended after the last flush may be gone without a trace".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LIFE, tp};

    #[test]
    fn a_loss_says_what_is_known() {
        let mut lost = Lost {
            partition: tp("t", 3),
            incarnation: LIFE,
            loss: Loss {
                from: Offset(9),
                to: Some(Offset(20)),
                at_least_to: Offset(20),
                bytes: 700,
                last_epoch: Some(LeaderEpoch(4)),
                cause: LossCause::Truncated,
            },
            leader_epoch: Some(LeaderEpoch(5)),
            epochs: None,
            high_watermark: Some(Offset(20)),
            led: None,
            led_until_crash: None,
        };
        let told = parts(&lost);
        let [part] = &told[..] else { panic!("{told:?}") };
        let body = lost.body(part);
        let expected = json!({
            "topic": "t", "partition": 3, "topic_id": LIFE.topic_id.to_string(),
            "from": 9, "to": 20, "at_least_to": 20, "bytes": 700,
            "last_epoch": 4, "leader_epoch": 5, "high_watermark": 20, "class": "acks=all",
            "class_reason": body["class_reason"], "cause": "truncated", "detail": null,
            "class_unless_led": null, "led_epoch": null,
        });
        assert_eq!(body, expected);
        lost.high_watermark = Some(Offset(10));
        let bodies: Vec<_> = parts(&lost).iter().map(|part| lost.body(part)).collect();
        let ranges: Vec<_> = bodies.iter().map(|b| (&b["from"], &b["to"], &b["class"])).collect();
        assert_eq!(
            ranges,
            [
                (&json!(9), &json!(10), &json!("acks=all")),
                (&json!(10), &json!(20), &json!("unknown"))
            ]
        );
    }
}
