//! The flushed offset: what moves it, what must not.

use barnabas_log::{FlushStep, LogConfig, LogError};
use barnabas_types::Offset;

use crate::world::{TINY, World, append, assert_whole, read_all, tp};

#[test]
fn r16_after_an_unclean_stop_flushed_is_the_recovery_point_until_all_is_written_again() {
    let world = World::new("rewrite", LogConfig { segment_bytes: 3 << 20, ..TINY });
    let (dir, mut log) = world.start();
    append(&mut log, 1, 100, 1);
    log.flush().unwrap();
    dir.write_recovery_points().unwrap();
    // More than one step of rewriting, over two segments.
    for _ in 0..50 {
        append(&mut log, 1, 100_000, 1);
    }
    assert_eq!(log.segment_count(), 2);
    let bytes = read_all(&log, Offset(0), 1 << 20);
    drop((log, dir));
    let (dir, mut log) = world.start();
    assert_eq!((log.flushed(), log.log_end()), (Offset(1), Offset(51)));
    let mut steps = 0;
    let plan = loop {
        match log.flush_plan().unwrap() {
            FlushStep::Rewriting => steps += 1,
            FlushStep::Sync(plan) => break plan,
            FlushStep::Nothing => panic!("there is something to flush"),
        }
        assert_eq!(log.flushed(), Offset(1));
        append(&mut log, 1, 10, 2);
    };
    assert!(steps >= 4, "{steps}");
    let result = plan.run();
    assert_eq!(log.flush_done(&plan, result).unwrap(), log.log_end());
    assert_eq!(dir.recovery_point_of(&tp("t")), Some(log.log_end()));
    assert_eq!(read_all(&log, Offset(0), 1 << 20)[..bytes.len()], bytes[..]);
    assert_whole(&log);
}

#[test]
fn r38_a_failed_sync_moves_nothing_and_fences() {
    let world = World::new("failsync", TINY);
    let (_dir, mut log) = world.start();
    append(&mut log, 1, 10, 1);
    let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
    assert_eq!(plan.to(), Offset(1));
    let failed = Err(LogError::FlushInFlight);
    assert!(log.flush_done(&plan, failed).is_err());
    assert_eq!(log.flushed(), Offset(0));
    // A later success of any kind covers nothing of it.
    assert!(log.flush_done(&plan, Ok(())).is_err());
    assert!(matches!(log.flush_plan(), Err(LogError::Fenced)));
    assert_eq!(log.flushed(), Offset(0));
}

#[test]
fn one_plan_at_a_time_and_none_across_a_truncation() {
    let world = World::new("plans", TINY);
    let (_dir, mut log) = world.start();
    append(&mut log, 1, 10, 1);
    append(&mut log, 1, 10, 1);
    let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
    assert!(matches!(log.flush_plan(), Err(LogError::FlushInFlight)));
    plan.run().unwrap();
    log.truncate_to(Offset(1)).unwrap();
    append(&mut log, 1, 10, 2);
    assert_eq!(log.flush_done(&plan, Ok(())).unwrap(), Offset(0), "the new record was not synced");
    assert_eq!(log.flush().unwrap(), Offset(2));
    assert!(matches!(log.flush_plan().unwrap(), FlushStep::Nothing));
}

#[test]
fn flushing_covers_every_sealed_segment() {
    let world = World::new("sealed", TINY);
    let (dir, mut log) = world.start();
    for _ in 0..20 {
        append(&mut log, 1, 60, 1);
    }
    let segments = log.segment_count();
    let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
    // Logs, two indexes for each sealed one, and the leader epochs.
    assert_eq!(plan.files().len(), segments + 2 * (segments - 1) + 1);
    let result = plan.run();
    log.flush_done(&plan, result).unwrap();
    append(&mut log, 1, 10, 1);
    let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("a plan") };
    assert_eq!(plan.files().len(), 1);
    let result = plan.run();
    log.flush_done(&plan, result).unwrap();
    log.close().unwrap();
    assert!(dir.close(true).unwrap());
}
