//! Fetch (key 1), versions 4 to 17: KIP-74 (at least one batch), KIP-227 (fetch sessions, from 7), KIP-320 (leader epochs),
//! KIP-392 (rack ignored: everybody reads from leaders), KIP-516 (topic ids, from 13), KIP-595 (consumers that must go back,
//! from 12), KIP-951 (who leads instead, from 12, and where, from 16). Consumers see records below the HW.
//!
//! A fetch that finds less than `min_bytes` parks itself on its partitions; an append that makes it due wakes the
//! connection, which then reads again. There is no polling. One that finds records which are not in the page cache has them
//! read by the threads of their log directory, and looks again when they are. One that asks for what is not in the log waits for a roll call
//! before it is told so. A fetch in a session (`session`) looks at those partitions only
//! that have news; one without looks at all that it names, each time.

mod answer;
mod cache;
mod look;
mod session;
#[cfg(test)]
mod session_tests;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use barnabas_log::ColdRead;
use barnabas_wire::messages::FetchRequest;
use bytes::Bytes;
use tokio::time::Instant;

use super::error_codes::FETCH_SESSION_ID_NOT_FOUND;
use super::{Handled, RequestContext};
use crate::connection::serve::WAIT_MAX;
use crate::connection::{Piece, Slot};
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted, ParkedFetch, Warming};
use answer::Form;
use look::{Earlier, Found, Position, Topic};
use session::Session;
pub(crate) use sessions::FetchSessions;

/// Largest answer, in bytes of records, whatever the client asks for: what one slow reader can hold in memory.
const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// How long a fetch of what is not in the log waits for the roll call at least, also if the client would wait for less: it
/// takes two hops if all members of the ISR are well.
pub(super) const ROLL_CALL_WAIT: Duration = Duration::from_millis(500);
/// First version in which the replica's id is a part of the replica's state (KIP-903).
const REPLICA_STATE_VERSION: i16 = 15;
/// First version with sessions.
const SESSION_VERSION: i16 = 7;

/// A fetch that waits for bytes, or for a disk.
pub(crate) struct WaitingFetch {
    /// Its place among the answers.
    pub slot: Slot,
    /// What partitions touch.
    pub parked: Arc<ParkedFetch>,
    /// When it is answered with what there is.
    deadline: Instant,
    fetch: Fetch,
    earlier: Earlier,
    /// It waits for reads, and for nothing else.
    reading: bool,
    /// Its frame, if that is large, with the room that it has reserved: what is decoded of it is no smaller.
    frame: Option<Bytes>,
}

/// What a look of a fetch came to.
enum Outcome {
    Answer(Vec<Piece>),
    /// Too little: so many bytes.
    Wait(usize),
    /// This must be read first.
    Cold(Vec<(Arc<Hosted>, ColdRead)>),
    /// The ISR of these must be asked first whether this broker leads.
    Doubted(Vec<Arc<Hosted>>),
}

/// A request in hand.
struct Fetch {
    asked: Asked,
    form: Form,
    /// 0: the client waits for nothing.
    min_bytes: usize,
    /// Most bytes of records in the answer.
    max_bytes: usize,
}

enum Asked {
    /// Everything that the request names; a session is opened with the answer if the client wants one.
    Full { request: FetchRequest, opens: bool },
    /// What is new in the session since its last answer.
    Incremental { session: Arc<Session>, epoch: i32 },
}

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: FetchRequest,
) -> Result<Handled, String> {
    let node = context.node;
    let form = Form { version: context.version, correlation_id: context.correlation_id };
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let fetch = match Fetch::new(node, form, request) {
        Ok(fetch) => fetch,
        Err(error_code) => return Ok(Handled::Pieces(form.error(error_code)?)),
    };
    let outcome = fetch.answer(node, wait.is_zero(), &Earlier::default())?;
    if let Outcome::Answer(answer) = outcome {
        return Ok(Handled::Pieces(answer));
    }
    let mut fetch = WaitingFetch {
        slot: context.slot,
        parked: Arc::new(ParkedFetch::new(context.out.clone(), fetch.min_bytes, 0)),
        deadline: Instant::now() + wait.min(WAIT_MAX),
        fetch,
        earlier: Earlier::default(),
        reading: false,
        frame: None,
    };
    match fetch.wait(node, outcome)? {
        Some(answer) => {
            fetch.parked.cancel();
            Ok(Handled::Pieces(answer))
        }
        None => Ok(Handled::Fetch(Box::new(fetch))),
    }
}

impl WaitingFetch {
    /// When it is answered with what there is; `None` while it waits for a disk, which is as long as that takes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.reading).then_some(self.deadline)
    }

    /// What it was decoded from.
    pub(crate) fn holds(&mut self, frame: Bytes) {
        self.frame = Some(frame);
    }

    /// Whether it is answered early if another request waits for the memory that this one holds.
    pub(crate) fn gives_way(&self) -> bool {
        self.frame.is_some() && self.deadline().is_some()
    }

    /// The answer, if the fetch is due now, or late; otherwise it waits, anew if it was looked at.
    pub(crate) fn answer(
        &mut self,
        node: &Arc<Node>,
        now: Instant,
    ) -> Result<Option<Vec<Piece>>, String> {
        let read = self.reading;
        if read && self.earlier.warming.as_ref().is_some_and(|warming| !warming.is_over()) {
            return Ok(None);
        }
        self.reading = false;
        let late = self.deadline().is_some_and(|deadline| deadline <= now)
            || (self.gives_way() && node.budget.is_short());
        if !late && !read && !self.parked.is_fired() {
            return Ok(None);
        }
        let outcome = self.fetch.answer(node, late, &self.earlier)?;
        if let Outcome::Answer(answer) = outcome {
            return Ok(Some(answer));
        }
        // A doubt that came up at the last look begins a wait though nothing has fired.
        self.parked.cancel();
        self.parked = Arc::new(self.parked.renewed(self.fetch.min_bytes));
        self.wait(node, outcome)
    }

    /// Waits for what is missing; or the answer, if it is there by now.
    fn wait(&mut self, node: &Arc<Node>, outcome: Outcome) -> Result<Option<Vec<Piece>>, String> {
        let outcome = match outcome {
            // What came between the look and the parking woke nobody, so look once more.
            Outcome::Wait(_) => {
                self.park(node);
                self.fetch.answer(node, false, &self.earlier)?
            }
            other => other,
        };
        match outcome {
            Outcome::Answer(answer) => return Ok(Some(answer)),
            Outcome::Wait(bytes) => self.parked.gathered(bytes),
            Outcome::Cold(reads) => {
                let out = self.parked.out().clone();
                self.earlier.rounds += 1;
                self.earlier.warming = Warming::begin(reads, move || out.wake());
                // If they are refused, this is answered without them when its time is over.
                self.reading = self.earlier.warming.is_some();
            }
            Outcome::Doubted(partitions) => self.wait_for_roll_calls(node, &partitions),
        }
        Ok(None)
    }

    /// Waits for one roll call of each of these partitions, and for nothing else.
    fn wait_for_roll_calls(&mut self, node: &Arc<Node>, partitions: &[Arc<Hosted>]) {
        if self.earlier.roll_calls.is_empty() {
            self.deadline = self.deadline.max(Instant::now() + ROLL_CALL_WAIT);
        }
        let (now, mut flush) = (node.now(), Flush::default());
        for hosted in partitions {
            let call = self.earlier.roll_calls.get(&hosted.topic_partition).copied();
            let mut after = Aftermath::default();
            let call = hosted.wait_for_roll_call(now, call, &self.parked, &mut after);
            after.settle(hosted, &**node, &mut flush);
            self.earlier.roll_calls.insert(hosted.topic_partition.clone(), call);
        }
    }

    /// Wants news of the partitions from now on.
    fn park(&self, node: &Arc<Node>) {
        match &self.fetch.asked {
            Asked::Full { request, .. } => {
                for (topic, position) in named(self.fetch.form.version, request) {
                    if let Ok(hosted) = topic.find(node, position.partition) {
                        hosted.park(&self.parked);
                    }
                }
            }
            Asked::Incremental { session, epoch } => session.park(*epoch, &self.parked),
        }
    }
}

/// The partitions that a request names, in its order.
fn named(version: i16, request: &FetchRequest) -> impl Iterator<Item = (Topic, Position)> + '_ {
    request.topics.iter().flat_map(move |asked| {
        let topic = Topic::of(version, &asked.topic, asked.topic_id);
        asked.partitions.iter().map(move |partition| (topic.clone(), Position::from(partition)))
    })
}

/// Of a follower, or of who says to be one.
fn is_of_a_follower(version: i16, request: &FetchRequest) -> bool {
    let id = if version >= REPLICA_STATE_VERSION {
        request.replica_state.replica_id
    } else {
        request.replica_id
    };
    id >= 0
}

impl Fetch {
    /// What the session id and epoch of the request ask for (KIP-227).
    ///
    /// # Errors
    /// Kafka's code for the whole answer.
    fn new(node: &Node, form: Form, request: FetchRequest) -> Result<Self, i16> {
        let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
        let max_bytes =
            usize::try_from(request.max_bytes).unwrap_or(0).clamp(1, RESPONSE_BYTES_MAX);
        let of = |asked| Ok(Self { asked, form, min_bytes, max_bytes });
        let (id, sessions) = (request.session_id, &node.fetch_sessions);
        let epoch = if form.version >= SESSION_VERSION { request.session_epoch } else { -1 };
        if matches!(epoch, -1 | 0) {
            sessions.close(id);
            let opens = epoch == 0 && !is_of_a_follower(form.version, &request);
            return of(Asked::Full { request, opens });
        }
        let session = sessions.get(id, node.now()).ok_or(FETCH_SESSION_ID_NOT_FOUND)?;
        let (epoch, partitions) = session.begin(form.version, &request)?;
        if partitions == 0 {
            // The client reads nothing any more: as in Kafka, that ends the session.
            sessions.close(id);
            return of(Asked::Full { request: FetchRequest::default(), opens: false });
        }
        if !sessions.resized(id, partitions) {
            return Err(FETCH_SESSION_ID_NOT_FOUND);
        }
        of(Asked::Incremental { session, epoch })
    }

    /// The answer, if it is due or `late`; otherwise what is missing.
    fn answer(&self, node: &Node, late: bool, earlier: &Earlier) -> Result<Outcome, String> {
        // What is cold or in doubt is waited for once, whatever else there is: it would never have its turn if something else
        // always came.
        let over = late && !earlier.roll_calls.is_empty();
        let in_doubt = |found: &Found| !over && !found.doubted.is_empty();
        let is_due = |found: &Found| match found.cold.is_empty() {
            _ if in_doubt(found) => false,
            true => late || found.urgent || found.bytes >= self.min_bytes,
            false => earlier.rounds > 0 && (late || found.urgent || found.bytes > 0),
        };
        let missing = |found: Found| match found.cold.is_empty() {
            _ if in_doubt(&found) => Outcome::Doubted(found.doubted),
            true => Outcome::Wait(found.bytes),
            false => Outcome::Cold(found.cold),
        };
        match &self.asked {
            Asked::Full { request, opens } => {
                let found = self.read(node, request, earlier);
                if !is_due(&found) && !found.topics.is_empty() {
                    return Ok(missing(found));
                }
                let session_id = if *opens {
                    node.fetch_sessions.open(node.now(), self.form.version, request, &found)
                } else {
                    0
                };
                Ok(Outcome::Answer(self.form.write(node, &found, session_id)?))
            }
            Asked::Incremental { session, epoch } => {
                match session.look(node, *epoch, self.max_bytes, earlier, is_due) {
                    Ok((found, false)) => Ok(missing(found)),
                    Ok((found, true)) => {
                        Ok(Outcome::Answer(self.form.write(node, &found, session.id)?))
                    }
                    Err(error_code) => Ok(Outcome::Answer(self.form.error(error_code)?)),
                }
            }
        }
    }

    /// Looks at everything that the request names.
    fn read(&self, node: &Node, request: &FetchRequest, earlier: &Earlier) -> Found {
        let of_a_follower = is_of_a_follower(self.form.version, request);
        let mut found = Found::new(self.max_bytes, earlier);
        for (topic, position) in named(self.form.version, request) {
            if of_a_follower {
                found.refuse(&topic, position.partition);
            } else {
                let look = found.look(node, &topic, &position, None);
                found.add(&topic, look);
            }
        }
        found
    }
}
