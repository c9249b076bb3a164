//! One sentence about a broker, and one about the cluster, from what is wrong with them and how many partitions are not well.

use barnabas_types::BrokerId;

use crate::explain::cause::{Cause, Severity, first};

/// Of how many partitions something is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// All of these.
    pub unwell: usize,
    /// Those of them that nobody serves.
    pub offline: usize,
}

impl Counted {
    /// `5 of its partitions are not well, 2 of them offline`; `None`: all are well.
    fn told(self, whose: &str) -> Option<String> {
        let Self { unwell, offline } = self;
        let are = match unwell {
            0 => return None,
            1 => format!("1 {whose} is not well"),
            _ => format!("{unwell} {whose}s are not well"),
        };
        Some(match offline {
            0 => are,
            _ if unwell == 1 => format!("1 {whose} is offline"),
            _ if offline == unwell => format!("{unwell} {whose}s are offline"),
            _ => format!("{are}, {offline} of them offline"),
        })
    }
}

/// About a broker, with all its causes, in any order.
#[must_use]
pub fn of_broker(id: BrokerId, causes: &[Cause], counted: Counted) -> String {
    match (first(causes), counted.told("partition")) {
        (None, _) => format!("broker {id} is well"),
        (Some(_), Some(told)) => format!("broker {id}: {told}"),
        (Some(worst), None) => {
            format!("broker {id}: its partitions are served and whole, but {}", worst.summary)
        }
    }
}

/// About the cluster of so many brokers, with all its causes, in any order.
#[must_use]
pub fn of_cluster(brokers: usize, causes: &[Cause], counted: Counted) -> String {
    match (first(causes), counted.told("partition")) {
        (None, _) => format!("all {brokers} brokers and their partitions are well"),
        (Some(_), Some(told)) => told,
        (Some(worst), None) => match worst.severity {
            Severity::Notice => "every partition is served and whole".to_owned(),
            Severity::Degraded => {
                format!("every partition is served and whole, but {}", worst.summary)
            }
            Severity::WritesRefused | Severity::Offline => worst.summary.clone(),
        },
    }
}
