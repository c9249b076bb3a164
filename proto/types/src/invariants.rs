//! The invariants, one pure function each, used by asserts, the simulator and (later) the model checker.

use crate::{BrokerId, Offset, Partition};

/// I3: log_start ≤ HW ≤ LEO and flushed ≤ LEO.
#[must_use]
pub fn i3_offsets_in_order(
    log_start: Offset,
    high_watermark: Offset,
    log_end: Offset,
    flushed: Offset,
) -> bool {
    log_start <= high_watermark && high_watermark <= log_end && flushed <= log_end
}

/// I7: the HW is not above the least position of the maximal ISR (`positions` = one per member).
#[must_use]
pub fn i7_hw_within_maximal_isr(high_watermark: Offset, positions: &[Offset]) -> bool {
    positions.iter().all(|p| high_watermark <= *p)
}

/// I8: the ISR is a non-empty subset of the assigned replicas, without a duplicate, and the leader is in it.
#[must_use]
pub fn i8_isr_within_assignment(partition: &Partition) -> bool {
    let isr = partition.state.isr_ids();
    let distinct: std::collections::BTreeSet<BrokerId> = isr.iter().copied().collect();
    !isr.is_empty()
        && distinct.len() == isr.len()
        && isr.iter().all(|id| partition.assigned_replicas.contains(id))
        && partition.state.leader.is_none_or(|leader| isr.contains(&leader))
}
