//! Fetch (key 1), versions 4 to 17: KIP-74 (at least one batch), KIP-227 (fetch sessions, from 7), KIP-320 (leader epochs),
//! KIP-392 (rack ignored: everybody reads from leaders), KIP-516 (topic ids, from 13), KIP-595 (consumers that must go back,
//! from 12), KIP-951 (who leads instead, from 12, and where, from 16). Consumers see records below the HW.
//!
//! A fetch that finds less than `min_bytes` parks itself on its partitions; an append that makes it due wakes the
//! connection, which then reads again. There is no polling. A fetch in a session (`session`) looks at those partitions only
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

use barnabas_wire::messages::FetchRequest;
use tokio::time::Instant;

use super::error_codes::FETCH_SESSION_ID_NOT_FOUND;
use super::{Handled, RequestContext};
use crate::connection::serve::WAIT_MAX;
use crate::connection::{Piece, Slot};
use crate::node::Node;
use crate::partition::ParkedFetch;
use answer::Form;
use look::{Found, Position, Topic};
use session::Session;
pub(crate) use sessions::FetchSessions;

/// Largest answer, in bytes of records, whatever the client asks for: what one slow reader can hold in memory.
const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// First version in which the replica's id is a part of the replica's state (KIP-903).
const REPLICA_STATE_VERSION: i16 = 15;
/// First version with sessions.
const SESSION_VERSION: i16 = 7;

/// A fetch that waits for bytes.
pub(crate) struct WaitingFetch {
    /// Its place among the answers.
    pub slot: Slot,
    /// When it is answered with what there is.
    pub deadline: Instant,
    /// What partitions touch.
    pub parked: Arc<ParkedFetch>,
    fetch: Fetch,
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
    if let Some(answer) = fetch.answer(node, wait.is_zero())?.0 {
        return Ok(Handled::Pieces(answer));
    }
    let fetch = WaitingFetch {
        slot: context.slot,
        deadline: Instant::now() + wait.min(WAIT_MAX),
        parked: Arc::new(ParkedFetch::new(context.out.clone(), fetch.min_bytes, 0)),
        fetch,
    };
    // What came between the first look and the parking woke nobody, so look once more.
    match fetch.park(node)? {
        Some(answer) => {
            fetch.parked.cancel();
            Ok(Handled::Pieces(answer))
        }
        None => Ok(Handled::Fetch(fetch)),
    }
}

impl WaitingFetch {
    /// The answer, if the fetch is due now (or `late`); otherwise it is parked anew.
    pub(crate) fn answer(
        &mut self,
        node: &Arc<Node>,
        late: bool,
    ) -> Result<Option<Vec<Piece>>, String> {
        if let Some(answer) = self.fetch.answer(node, late)?.0 {
            return Ok(Some(answer));
        }
        self.parked = Arc::new(self.parked.renewed(self.fetch.min_bytes));
        self.park(node)
    }

    /// Wants news of the partitions from now on, and looks at them.
    fn park(&self, node: &Arc<Node>) -> Result<Option<Vec<Piece>>, String> {
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
        let (answer, bytes) = self.fetch.answer(node, false)?;
        if answer.is_none() {
            self.parked.gathered(bytes);
        }
        Ok(answer)
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

    /// The answer, if it is due or `late`; and the bytes that were found.
    fn answer(&self, node: &Node, late: bool) -> Result<(Option<Vec<Piece>>, usize), String> {
        let is_due = |found: &Found| late || found.urgent || found.bytes >= self.min_bytes;
        match &self.asked {
            Asked::Full { request, opens } => {
                let found = self.read(node, request);
                if !is_due(&found) && !found.topics.is_empty() {
                    return Ok((None, found.bytes));
                }
                let session_id = if *opens {
                    node.fetch_sessions.open(node.now(), self.form.version, request, &found)
                } else {
                    0
                };
                Ok((Some(self.form.write(node, &found, session_id)?), found.bytes))
            }
            Asked::Incremental { session, epoch } => {
                match session.look(node, *epoch, self.max_bytes, is_due) {
                    Ok((found, false)) => Ok((None, found.bytes)),
                    Ok((found, true)) => {
                        Ok((Some(self.form.write(node, &found, session.id)?), found.bytes))
                    }
                    Err(error_code) => Ok((Some(self.form.error(error_code)?), 0)),
                }
            }
        }
    }

    /// Looks at everything that the request names.
    fn read(&self, node: &Node, request: &FetchRequest) -> Found {
        let of_a_follower = is_of_a_follower(self.form.version, request);
        let mut found = Found::new(self.max_bytes);
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
