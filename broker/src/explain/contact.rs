//! Since when this broker has been without ZooKeeper, or without a controller that it knows.

use std::sync::{Arc, Mutex, PoisonError};

use barnabas_controller::Membership;
use barnabas_types::Now;

use crate::node::Node;

#[derive(Clone, Copy, Debug, Default)]
struct Away {
    zookeeper: Option<Now>,
    controller: Option<Now>,
}

/// Told of every change of the membership.
#[derive(Debug, Default)]
pub struct Contact(Mutex<Away>);

impl Contact {
    fn note(&self, now: Now, membership: &Membership) {
        let mut away = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = |is: bool, known: Option<Now>| is.then(|| known.unwrap_or(now));
        *away = Away {
            zookeeper: kept(!membership.connected, away.zookeeper),
            controller: kept(membership.controller.is_none(), away.controller),
        };
    }

    /// For how long ZooKeeper has been away, and for how long no controller has been known; `None`: it is there.
    #[must_use]
    pub fn away_ms(&self, now: Now) -> (Option<u64>, Option<u64>) {
        let away = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |since: Option<Now>| since.map(|since| now.0.saturating_sub(since.0));
        (age(away.zookeeper), age(away.controller))
    }

    /// Notes every change until the broker ends.
    pub async fn follow(node: Arc<Node>) {
        let mut membership = node.membership.clone();
        loop {
            let present = *membership.borrow_and_update();
            node.contact.note(node.now(), &present);
            if membership.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use barnabas_types::{BrokerId, ControllerEpoch};

    use super::*;

    #[test]
    fn an_absence_counts_from_its_beginning() {
        let contact = Contact::default();
        let controller = Some((BrokerId(1), ControllerEpoch(3)));
        let mut membership = Membership { connected: true, controller, ..Membership::default() };
        contact.note(Now(10), &membership);
        assert_eq!(contact.away_ms(Now(20)), (None, None));
        membership.connected = false;
        contact.note(Now(30), &membership);
        membership.controller = None;
        contact.note(Now(40), &membership);
        assert_eq!(contact.away_ms(Now(50)), (Some(20), Some(10)));
        membership.connected = true;
        contact.note(Now(60), &membership);
        assert_eq!(contact.away_ms(Now(70)), (None, Some(30)));
    }
}
