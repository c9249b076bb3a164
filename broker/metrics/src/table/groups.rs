//! Groups, as their coordinators count them.

use super::Place::Coordinator;
use super::{Metric, NO, NUMBER, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        NUMBER,
        NO,
        Coordinator,
        "Groups that this broker coordinates",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        NUMBER,
        NO,
        Coordinator,
        "Offsets committed in them",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
        NUMBER,
        NO,
        Coordinator,
        "Those without members",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
        NUMBER,
        NO,
        Coordinator,
        "Those whose members are called to join",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
        NUMBER,
        NO,
        Coordinator,
        "Those that wait for their leader's assignment",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
        NUMBER,
        NO,
        Coordinator,
        "Those whose members have their partitions",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsdead",
        NUMBER,
        NO,
        Coordinator,
        "Those that are being deleted",
    ),
];
