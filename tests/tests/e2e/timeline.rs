//! The timeline of failovers: each kind is told with its phases, and these sum up to what clients saw.

use std::time::Duration;

use barnabas_proto::convert::failover_json;
use barnabas_proto::v1::Failover;
use barnabas_tests::Outcome;
use barnabas_tests::admin::{Admin, NewTopic};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program, run_program_within};
use barnabas_tests::wait::wait_for;
use serde_json::Value;

/// Longest run of `barnabas bench failover`; each fault takes some seconds.
const BENCH_MAX: Duration = Duration::from_secs(240);

/// Leaders and controllers are killed under a librdkafka producer at acks=all, and a leader is stopped in order and one paused. From the
/// first sign to the last first acknowledgement takes as long as the producer waited, no record is lost, and none is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_phases_of_a_failover_sum_up_to_the_outage_that_a_client_saw() -> Outcome<()> {
    let words = [
        "bench",
        "failover",
        "--leaders",
        "2",
        "--controllers",
        "2",
        "--stops",
        "1",
        "--pauses",
        "1",
    ];
    let output =
        run_program_within(BENCH_MAX, &[&words[..], &["--partitions", "12"]].concat()).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    let told: Vec<Value> = said.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let figure = |fault: &str| {
        let fits = |f: &&Value| f["figure"].is_string() && f["fault"] == fault;
        told.iter().find(fits).ok_or_else(|| format!("no figure of {fault}"))
    };
    for fault in ["kill", "kill of the controller"] {
        let figure = figure(fault)?;
        assert_eq!(figure["rounds"], 2);
        assert!(figure["timeline_agrees"].as_u64() > Some(0), "all are further apart: {figure}");
    }
    assert_eq!(figure("stop in order")?["failed"], 0);
    assert_eq!(figure("pause of 300 ms")?["leader_changes_most"], 0, "nobody takes it for dead");
    let balance = told.last().ok_or("nothing said")?;
    assert_eq!((&balance["lost"], &balance["failed"]), (&0.into(), &0.into()));
    assert!(balance["acknowledged"].as_u64() > Some(1_000), "{balance}");
    Ok(())
}

/// The first record that fits, from the controller.
async fn until_told(
    cluster: &Cluster,
    what: &str,
    fits: impl Fn(&Failover) -> bool,
) -> Outcome<Failover> {
    let znodes = cluster.znodes().await?;
    let last = std::sync::Mutex::new(Vec::new());
    let told = wait_for(what, SETTLE_MAX, || async {
        let (controller, _) = znodes.controller().await.ok()??;
        let address = cluster.admin_address(i32::try_from(controller).ok()?);
        let told = Admin::connect(&address).await.ok()?.timeline(u32::MAX).await.ok()?;
        let found = told.iter().find(|failover| fits(failover)).cloned();
        *last.lock().ok()? = told;
        found
    });
    told.await.map_err(|error| format!("{error}; told: {:?}", last.lock()).into())
}

fn at_ms(failover: &Failover, name: &str) -> Outcome<u64> {
    let phase = failover.phases.iter().rev().find(|phase| phase.name == name);
    Ok(phase.ok_or_else(|| format!("no {name} in {failover:?}"))?.at_us / 1000)
}

/// A broker is stopped in order, one stands still until its session has ended, and the controller is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_failover_is_told_with_its_phases() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let configs = &[("min.insync.replicas", "2")];
    let topic = NewTopic { name: "t", partitions: 6, replication_factor: 3, configs };
    super::topic(&cluster, topic).await?;
    let (controller, _) = cluster.znodes().await?.controller().await?.ok_or("no controller")?;
    let controller = i32::try_from(controller)?;
    let (stopped, still) = (controller % 3 + 1, (controller + 1) % 3 + 1);

    cluster.broker(stopped).terminate().await?;
    // On a busy machine it is told before it is over, and again then.
    let whole = |f: &Failover| f.broker_id == stopped && f.moved + f.shrunk == 6;
    let drain = until_told(&cluster, "the whole drain is told", whole).await?;
    assert_eq!((drain.cause.as_str(), drain.was_controller), ("drain", false));
    assert_eq!(drain.leaderless, 0);
    assert_eq!(drain.controller_id, controller);
    cluster.broker(stopped).start()?;
    cluster.until_healed("t", 3).await?;
    let id = drain.id.clone();
    let healed = |f: &Failover| f.id == id && at_ms(f, "isr_restored").is_ok();
    until_told(&cluster, "the ISR is told to be whole", healed).await?;

    cluster.broker(still).pause()?;
    let ended = |f: &Failover| f.broker_id == still && at_ms(f, "pushed").is_ok();
    let ended = until_told(&cluster, "the end of the session is told", ended).await?;
    cluster.broker(still).resume()?;
    assert_eq!(ended.cause, "session_end");
    assert!(at_ms(&ended, "session_ended")? <= at_ms(&ended, "written")?);
    cluster.until_healed("t", 3).await?;

    cluster.broker(controller).kill().await?;
    let moved = |f: &Failover| f.was_controller && f.broker_id == controller && f.moved > 0;
    let killed = until_told(&cluster, "the end of the controller is told", moved).await?;
    assert_eq!(killed.cause, "suspicion");
    let steps = ["controller_gone", "controller_elected", "loaded", "first_written", "pushed"];
    let times = steps.iter().map(|step| at_ms(&killed, step)).collect::<Outcome<Vec<u64>>>()?;
    assert!(times.is_sorted(), "{killed:?}");
    println!("{:#}", failover_json(&killed));

    // Who recorded the others is gone; whoever lives tells of all three.
    for survivor in [stopped, still] {
        let admin = Admin::connect(&cluster.admin_address(survivor)).await?;
        wait_for("every surviving broker tells all of it", SETTLE_MAX, || async {
            let told = admin.timeline(u32::MAX).await.ok()?;
            let known = |id: &str| told.iter().any(|failover| failover.id == id);
            [&drain.id, &ended.id, &killed.id].iter().all(|id| known(id)).then_some(())
        })
        .await?;
    }
    let admin = cluster.admin_address(killed.controller_id);
    let shown = run_program(&["timeline", "show", &killed.id, "--json", "--admin", &admin]).await?;
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    assert_eq!((&shown["broker"], &shown["cause"]), (&controller.into(), &"suspicion".into()));
    let listed = run_program(&["timeline", "--verbose", "--admin", &admin]).await?;
    let listed = String::from_utf8(listed.stdout)?;
    println!("{listed}");
    assert!(listed.contains(&killed.id) && listed.contains("controller_elected"), "{listed}");
    let unknown = run_program(&["timeline", "show", "0-0", "--admin", &admin]).await?;
    assert_eq!(unknown.status.code(), Some(1));

    // A controller that is stopped in order: its successor says so, too.
    cluster.broker(controller).start()?;
    cluster.until_healed("t", 3).await?;
    let second = killed.controller_id;
    cluster.broker(second).terminate().await?;
    let gone = |f: &Failover| f.was_controller && f.broker_id == second;
    let stopped = until_told(&cluster, "the stop of the controller is told", gone).await?;
    assert_eq!(stopped.cause, "drain", "{stopped:?}");
    Ok(())
}
