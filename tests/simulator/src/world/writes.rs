//! The controller's writes: sent, resolved when their outcome is unknown, reported to the core; and looked at by the checkers.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    ControllerEvent, PartitionWrite, SessionId, TopicWrite, WriteOutcome,
};
use barnabas_types::{
    BrokerId, ControllerEpoch, LeaderEpoch, PartitionState, TopicConfig, TopicName, TopicPartition,
};

use super::World;
use super::flush_mode::concerns;
use crate::checkers::{History, StateWrite};
use crate::coverage::Reached;
use crate::happening::Ix;
use crate::store::{Answer, Creation, Deletion, Fence, Growth, Request};

impl World {
    pub(crate) fn write_partition(&mut self, b: Ix, write: PartitionWrite) {
        let Some(term) = &self.processes[b].term else { return };
        let fence = term.fence;
        self.ask_as_controller(b, Request::WritePartition { fence, write });
    }

    pub(crate) fn write_topic(&mut self, b: Ix, write: TopicWrite) {
        let Some(term) = &self.processes[b].term else { return };
        let fence = term.fence;
        let request = match write {
            TopicWrite::Create { write, name, topic_id, overrides, partitions } => {
                let creation = Creation { write, name, topic_id, overrides, partitions };
                Request::CreateTopic { fence, creation }
            }
            TopicWrite::Grow { write, name, incarnation, first, partitions } => {
                let growth = Growth { write, name, incarnation, first, partitions };
                Request::GrowTopic { fence, growth }
            }
            TopicWrite::Delete { write, name, .. } => {
                Request::MarkDelete { fence, deletion: Deletion { write, name } }
            }
        };
        self.ask_as_controller(b, request);
    }

    /// A write, or a read that resolves one, ended.
    pub(crate) fn write_ended(&mut self, b: Ix, request: Request, answer: Option<Answer>) {
        let (write, outcome) = match (request, answer) {
            (Request::WritePartition { fence, write }, None)
            | (Request::ReadPartition { fence, write }, None) => {
                return self.ask_as_controller(b, Request::ReadPartition { fence, write });
            }
            (Request::WritePartition { fence, write }, Some(answer)) => match answer {
                Answer::Done => (write.write, self.applied(b, &write)),
                Answer::EpochMoved => (write.write, WriteOutcome::Fenced),
                _ => {
                    // The version differs, or the node is gone: what is there now decides.
                    self.reach(Reached::WriteConflict);
                    return self.ask_as_controller(b, Request::ReadPartition { fence, write });
                }
            },
            (Request::ReadPartition { fence, write }, Some(answer)) => match answer {
                Answer::EpochMoved => (write.write, WriteOutcome::Fenced),
                Answer::State(Some(now)) if now == write.state => {
                    (write.write, self.applied(b, &write))
                }
                Answer::State(Some(now)) if now.partition_epoch == write.expected => {
                    // Not applied yet; the first attempt may still land, then this one meets its version.
                    return self.ask_as_controller(b, Request::WritePartition { fence, write });
                }
                Answer::State(now) => (write.write, WriteOutcome::Conflict { now }),
                _ => return,
            },
            (
                Request::WriteAssignment { fence, write }
                | Request::ReadAssignment { fence, write },
                None,
            ) => {
                return self.ask_as_controller(b, Request::ReadAssignment { fence, write });
            }
            (Request::WriteAssignment { fence, write }, Some(answer)) => {
                let Some(outcome) = self.assignment_submitted(b, fence, &write, &answer) else {
                    return;
                };
                (write.write, outcome)
            }
            (Request::ReadAssignment { fence, write }, Some(answer)) => {
                let Some(outcome) = self.assignment_read(b, fence, &write, answer) else { return };
                (write.write, outcome)
            }
            (Request::CreateTopic { fence, creation }, None)
            | (Request::ReadCreated { fence, creation }, None) => {
                return self.ask_as_controller(b, Request::ReadCreated { fence, creation });
            }
            (Request::CreateTopic { fence, creation }, Some(answer)) => match answer {
                Answer::Created(czxid) => (creation.write, WriteOutcome::TopicCreated { czxid }),
                Answer::EpochMoved => (creation.write, WriteOutcome::Fenced),
                _ => return self.ask_as_controller(b, Request::ReadCreated { fence, creation }),
            },
            (Request::ReadCreated { fence, creation }, Some(answer)) => match answer {
                Answer::EpochMoved => (creation.write, WriteOutcome::Fenced),
                Answer::Topic(Some(node), _) if node.incarnation.topic_id == creation.topic_id => {
                    let czxid = node.incarnation.czxid;
                    (creation.write, WriteOutcome::TopicCreated { czxid })
                }
                Answer::Topic(Some(_), _) => (creation.write, WriteOutcome::TopicConflict),
                _ => return self.ask_as_controller(b, Request::CreateTopic { fence, creation }),
            },
            (
                Request::ReadConfig { fence, write } | Request::WriteConfig { fence, write, .. },
                answer,
            ) => {
                let id = write.write;
                let Some(outcome) = self.config_ended(b, fence, write, answer) else { return };
                (id, outcome)
            }
            (Request::GrowTopic { fence, growth }, answer) => match answer {
                Some(Answer::Done) => (growth.write, WriteOutcome::Applied),
                Some(Answer::EpochMoved) => (growth.write, WriteOutcome::Fenced),
                Some(Answer::NoNode) => (growth.write, WriteOutcome::TopicConflict),
                _ => return self.ask_as_controller(b, Request::ReadGrown { fence, growth }),
            },
            (Request::ReadGrown { fence, growth }, answer) => {
                let write = growth.write;
                let Some(outcome) = self.growth_read(b, fence, growth, answer) else { return };
                (write, outcome)
            }
            (Request::MarkDelete { fence, deletion }, answer) => match answer {
                None => return self.ask_as_controller(b, Request::MarkDelete { fence, deletion }),
                Some(Answer::EpochMoved) => (deletion.write, WriteOutcome::Fenced),
                Some(Answer::NoNode) => (deletion.write, WriteOutcome::TopicConflict),
                Some(_) => {
                    return self.ask_as_controller(b, Request::RemoveTopic { fence, deletion });
                }
            },
            (Request::RemoveTopic { fence, deletion }, answer) => match answer {
                None => return self.ask_as_controller(b, Request::RemoveTopic { fence, deletion }),
                Some(Answer::EpochMoved) => (deletion.write, WriteOutcome::Fenced),
                // Gone already: an earlier attempt of this write removed it.
                Some(_) => (deletion.write, WriteOutcome::Applied),
            },
            _ => return,
        };
        if outcome == WriteOutcome::Fenced {
            self.reach(Reached::FencedWrite);
        }
        self.step_controller(b, ControllerEvent::Written { write, outcome });
    }

    /// The topic was read after a growth of which the outcome was not known; `None`: it is tried again.
    fn growth_read(
        &mut self,
        b: Ix,
        fence: Fence,
        growth: Growth,
        answer: Option<Answer>,
    ) -> Option<WriteOutcome> {
        let node = match answer {
            None => {
                self.ask_as_controller(b, Request::ReadGrown { fence, growth });
                return None;
            }
            Some(Answer::EpochMoved) => return Some(WriteOutcome::Fenced),
            Some(Answer::Topic(node, _)) => node,
            Some(_) => None,
        };
        let Some(node) = node.filter(|node| node.incarnation == growth.incarnation) else {
            return Some(WriteOutcome::TopicConflict);
        };
        let is_there = |(index, (assigned, _)): (&i32, &(Vec<BrokerId>, _))| {
            node.partitions.get(index).is_some_and(|(found, _)| found.replicas == *assigned)
        };
        if growth.partitions.iter().all(is_there) {
            return Some(WriteOutcome::Applied);
        }
        if node.partitions.len() as i32 != growth.first {
            return Some(WriteOutcome::Refused { reason: "another number of partitions" });
        }
        self.ask_as_controller(b, Request::GrowTopic { fence, growth });
        None
    }

    /// Performs a request in the store, and shows the checkers what it changed.
    pub(crate) fn apply(&mut self, session: SessionId, request: &Request) -> Answer {
        let before = match request {
            Request::WritePartition { write, .. } => {
                self.store.state(&write.partition).map(|(_, state)| state.clone())
            }
            Request::WriteAssignment { write, .. } => {
                self.store.state(&write.partition).map(|(_, state)| state.clone())
            }
            Request::EndMove { partition, .. } => {
                self.store.state(partition).map(|(_, state)| state.clone())
            }
            _ => None,
        };
        let assigned = match request {
            Request::WriteAssignment { write, .. } => self.assignment_of(&write.partition),
            Request::EndMove { partition, .. } => self.assignment_of(partition),
            _ => None,
        };
        let removed = match request {
            Request::RemoveTopic { deletion, .. } => self
                .store
                .topics
                .get(&deletion.name)
                .map(|t| (t.incarnation, t.partitions.keys().copied().collect::<Vec<i32>>())),
            _ => None,
        };
        let answer = self.store.apply(session, request);
        self.checkers.controller_epoch(self.store.controller_epoch.0);
        match (request, &answer) {
            (Request::WritePartition { fence, write }, Answer::Done) => {
                self.state_written(fence.epoch, &write.partition, before.as_ref());
            }
            (Request::WriteAssignment { fence, write }, Answer::Done) => {
                self.state_written(fence.epoch, &write.partition, before.as_ref());
                self.assignment_written(&write.partition, assigned.as_ref(), before.as_ref());
            }
            (Request::EndMove { fence, partition }, Answer::Done) => {
                self.state_written(fence.epoch, partition, before.as_ref());
                self.assignment_written(partition, assigned.as_ref(), before.as_ref());
            }
            (Request::WriteConfig { write, .. }, Answer::Done) => {
                for (name, topic) in &self.store.topics {
                    if concerns(&write.entity, name) {
                        let (czxid, mode) = (topic.incarnation.czxid, topic.config.flush_mode);
                        self.checkers.mode_stored(name, czxid, mode);
                    }
                }
            }
            (
                Request::ConfirmGrant { fence, to, broker_epoch, .. },
                Answer::Epoch { version, .. },
            ) if *version == fence.version => self.grant_begins(*to, *broker_epoch),
            (Request::DeleteController { version }, Answer::Done) => {
                self.reach(Reached::ControllerDeposed);
                // The election that wrote this version is the one that was to be undone.
                if self.store.controller_epoch.1 != *version {
                    let now = self.store.controller_epoch.1;
                    let text =
                        format!("/controller of version {now} is gone for version {version}");
                    self.checkers.broken("R17", text);
                }
            }
            (Request::CreateRegistration { broker, .. }, Answer::Created(_)) => {
                self.checkers.counts_again(*broker);
            }
            (Request::MarkDraining { broker, draining: false, .. }, Answer::Done) => {
                self.checkers.counts_again(*broker);
                self.reach(Reached::Undrained);
            }
            (Request::CreateTopic { fence, creation }, Answer::Created(czxid)) => {
                self.topic_created(fence.epoch, creation, *czxid);
            }
            (Request::GrowTopic { fence, growth }, Answer::Done) => {
                self.topic_grown(fence.epoch, growth);
            }
            (Request::RemoveTopic { deletion, .. }, Answer::Done) => {
                self.reach(Reached::TopicDeleted);
                if let Some((incarnation, indexes)) = removed {
                    for partition in indexes {
                        let at = TopicPartition { topic: deletion.name.clone(), partition };
                        self.checkers.topic_deleted(&(at, incarnation.czxid));
                    }
                }
            }
            _ => {}
        }
        self.check_availability();
        answer
    }

    fn topic_created(&mut self, writer: ControllerEpoch, creation: &Creation, czxid: i64) {
        self.reach(Reached::TopicCreated);
        let lives = self.names_used.entry(creation.name.clone()).or_default();
        *lives += 1;
        if *lives > 1 {
            self.reach(Reached::TopicRecreated);
        }
        let Some(config) = self.store.topics.get(&creation.name).map(|t| t.config) else { return };
        let life = (&creation.name, czxid);
        self.lives_begin(writer, life, config, &creation.partitions);
    }

    fn topic_grown(&mut self, writer: ControllerEpoch, growth: &Growth) {
        self.reach(Reached::TopicGrown);
        let Some(config) = self.store.topics.get(&growth.name).map(|t| t.config) else { return };
        let life = (&growth.name, growth.incarnation.czxid);
        self.lives_begin(writer, life, config, &growth.partitions);
    }

    /// Partitions were stored for the first time.
    fn lives_begin(
        &mut self,
        writer: ControllerEpoch,
        (name, czxid): (&TopicName, i64),
        config: TopicConfig,
        partitions: &BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
    ) {
        for (partition, (assigned, state)) in partitions {
            let at = TopicPartition { topic: name.clone(), partition: *partition };
            let life = (at, czxid);
            self.checkers.topic_created(life.clone(), History::new(config));
            let write = StateWrite {
                assigned,
                before: None,
                after: state,
                writer,
                present: self.store.controller_epoch.0,
                leader_doubtful: false,
                demanded: false,
            };
            self.checkers.state_written(&life, write);
        }
    }

    fn state_written(
        &mut self,
        writer: ControllerEpoch,
        at: &TopicPartition,
        before: Option<&PartitionState>,
    ) {
        let Some((topic, after)) = self.store.state(at) else { return };
        let czxid = topic.incarnation.czxid;
        let after = after.clone();
        let assigned = topic.partitions[&at.partition].0.replicas.clone();
        let doubtful = after.leader.is_some_and(|leader| {
            self.store.registrations.get(&leader).is_none_or(|r| {
                let confirmed = before.and_then(|b| b.isr_epoch_of(leader)) == Some(r.node.epoch);
                r.image.tail_lost && !confirmed
            })
        });
        let of = (at.clone(), czxid, after.leader_epoch);
        let demanded = self.demanded.contains(&of);
        self.checkers.without_stopped(at, &after);
        self.note(None, "state", || format!("{at} {after:?} by {writer}"));
        let state_write = StateWrite {
            assigned: &assigned,
            before,
            after: &after,
            writer,
            present: self.store.controller_epoch.0,
            leader_doubtful: doubtful,
            demanded,
        };
        let kind = self.checkers.state_written(&(at.clone(), czxid), state_write);
        self.members_have_directories(at, czxid, before, &after);
        let old =
            before.map_or((None, LeaderEpoch(0), 0), |s| (s.leader, s.leader_epoch, s.isr.len()));
        let reached = [
            (kind.unclean, Reached::Unclean),
            (kind.unclean && demanded, Reached::UncleanOnDemand),
            (kind.longest_log, Reached::LongestLog),
            (after.leader.is_none(), Reached::Leaderless),
            (after.leader.is_some() && after.leader != old.0, Reached::Failover),
            (after.isr.len() < old.2, Reached::IsrShrink),
            (after.isr.len() > old.2 && old.2 > 0, Reached::IsrExpand),
        ];
        for (_, what) in reached.into_iter().filter(|(is, _)| *is) {
            self.reach(what);
        }
    }
}
