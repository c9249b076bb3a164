//! The process, its connections, directories, ZooKeeper, failovers and the ledger.

use barnabas_metrics::{Labels, Text};

use super::super::scrape::{Metrics, Sources};
use crate::journal::Kind;

/// Microseconds, or milliseconds, in the next greater unit.
const THOUSAND: f64 = 1e3;

/// What is known from the first moment on.
pub(in super::super) fn process(metrics: &Metrics, text: &mut Text) {
    text.metric("barnabas_broker_info");
    let labels = Labels::none().with("broker", metrics.me.0);
    text.sample(&labels.with("version", env!("CARGO_PKG_VERSION")), 1);
    // Kafka's numbers; what goes on without being ready is running.
    let state = match metrics.health.status() {
        "registering" => 1,
        "recovering" | "waiting for the controller" => 2,
        "stopping" => 6,
        _ => 3,
    };
    text.one("kafka_server_kafkaserver_brokerstate", state);
    text.one("barnabas_log_dir_reserve_bytes", metrics.health.reserve_bytes());
    let requests = metrics.zookeeper.requests();
    let name = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms";
    text.metric(name);
    text.summary(&Labels::none(), &metrics.recent(name, &requests), &requests, THOUSAND);
    text.metric("barnabas_zookeeper_request_seconds");
    text.seconds(&Labels::none(), &requests);
    text.one("barnabas_zookeeper_failed_requests_total", metrics.zookeeper.unknown());
    let (connected, disconnected, expired) = metrics.zookeeper.connections();
    let listener = "kafka_server_sessionexpirelistener_zookeeper";
    text.one(&format!("{listener}syncconnects_total"), connected);
    text.one(&format!("{listener}disconnects_total"), disconnected);
    text.one(&format!("{listener}expires_total"), expired);
    failovers(metrics, text);
}

fn failovers(metrics: &Metrics, text: &mut Text) {
    let counted = metrics.failovers.counted();
    text.metric("barnabas_failovers_total");
    for (cause, count) in &counted.by_cause {
        text.sample(&Labels::none().with("cause", cause), count);
    }
    let (suspicions, wrong) = counted.suspicions;
    text.one("barnabas_suspicions_total", suspicions);
    text.one("barnabas_suspicions_wrong_total", wrong);
    text.metric("barnabas_failover_phase_seconds");
    for (phase, took) in &counted.phases {
        text.seconds(&Labels::none().with("phase", phase), took);
    }
    let name = "kafka_controller_controllerstats_leaderelectionrateandtimems";
    text.metric(name);
    let recent = metrics.recent(name, &counted.pushed);
    text.summary(&Labels::none(), &recent, &counted.pushed, THOUSAND);
}

/// What a registered broker has.
pub(in super::super) fn broker(sources: &Sources, text: &mut Text) {
    let node = &sources.node;
    let membership = *node.membership.borrow();
    text.one("barnabas_zookeeper_connected", u8::from(membership.connected));
    text.one("barnabas_zookeeper_registered", u8::from(membership.broker_epoch.is_some()));
    let away_ms = node.contact.away_ms(node.now()).0.unwrap_or(0);
    #[allow(clippy::cast_precision_loss)]
    text.one("barnabas_zookeeper_away_seconds", away_ms as f64 / THOUSAND);
    let failed = node.failed.present().len();
    text.one("kafka_server_replicamanager_offlinereplicacount", failed);
    text.one("kafka_server_replicafetchermanager_failedpartitionscount", failed);
    let links = node.followers.links();
    let broken = links.iter().filter(|(_, link)| !link.connected).count();
    text.one("kafka_server_replicafetchermanager_deadthreadcount", broken);
    connections(sources, text);
    directories(sources, text);
    text.metric("barnabas_ledger_entries");
    for (class, count) in crate::ledger::classes(&node.journal) {
        text.sample(&Labels::none().with("class", class), count);
    }
    text.one("barnabas_ledger_missing", node.journal.missing(Kind::Loss));
}

fn connections(sources: &Sources, text: &mut Text) {
    let (counts, budget) = (sources.node.places.counts(), &sources.node.budget);
    text.metric("kafka_server_socket_server_metrics_connection_count");
    let all = counts.clients + counts.followers;
    text.sample(&Labels::none().with("listener", "PLAINTEXT"), all);
    text.metric("barnabas_connections");
    text.sample(&Labels::none().with("kind", "client"), counts.clients);
    text.sample(&Labels::none().with("kind", "follower"), counts.followers);
    text.one("barnabas_connections_max", counts.max);
    text.one("barnabas_connections_refused_total", counts.refused);
    let (used, max) = (budget.request_bytes(), budget.max_bytes());
    text.one("kafka_network_socketserver_memorypoolused", used);
    text.one("kafka_network_socketserver_memorypoolavailable", max.saturating_sub(used));
    text.one("barnabas_unread_answer_bytes", budget.answer_bytes());
}

fn directories(sources: &Sources, text: &mut Text) {
    let directories = sources.storage.directories();
    let label = |path: &std::path::Path| Labels::none().with("logdirectory", path.display());
    let offline = directories.iter().filter(|directory| directory.offline_reason().is_some());
    text.one("kafka_log_logmanager_offlinelogdirectorycount", offline.count());
    text.metric("kafka_log_logmanager_logdirectoryoffline");
    for directory in directories {
        let offline = directory.offline_reason().is_some();
        text.sample(&label(directory.path()), u8::from(offline));
    }
    text.metric("barnabas_log_dir_free_bytes");
    for directory in directories {
        if let Some(free_bytes) = directory.free_bytes() {
            text.sample(&label(directory.path()), free_bytes);
        }
    }
}
