//! What is to be run on a host, as it can be pasted there: processes that are started, restarted or go on, and looks at disks and ways.

use barnabas_types::BrokerId;

use crate::explain::cause::{Step, quoted};
use crate::explain::facts::Facts;

/// What stands for the configuration of a broker that told nobody of it.
const FILE: &str = "FILE";

/// Where a broker runs.
pub(super) fn host(facts: &Facts, id: BrokerId) -> String {
    match facts.host(id) {
        "" => format!("the host of broker {id}"),
        host => format!("the host of broker {id} ({host})"),
    }
}

fn run(facts: &Facts, id: BrokerId) -> String {
    let file = facts.process(id).config_file;
    let file = if file.is_empty() { FILE.to_owned() } else { quoted(&file) };
    format!("barnabas broker --config {file}")
}

/// Its process is started.
pub(super) fn start(facts: &Facts, id: BrokerId) -> Step {
    Step::new(run(facts, id), "nothing").at(host(facts, id))
}

/// Its process is ended in order, and started again when it is gone.
pub(super) fn restart(facts: &Facts, id: BrokerId) -> Step {
    again(facts, id, "kill").at(host(facts, id))
}

/// It is ended at once, which a process whose disk does not answer cannot prevent, and started again.
pub(super) fn restart_at_once(facts: &Facts, id: BrokerId) -> Step {
    again(facts, id, "kill -9").at(host(facts, id))
}

fn again(facts: &Facts, id: BrokerId, kill: &str) -> Step {
    let pid = pid(facts, id).unwrap_or_else(|| "PID".to_owned());
    let run = run(facts, id);
    Step::new(format!("{kill} {pid}; tail --pid={pid} -f /dev/null; {run}"), "nothing")
}

fn pid(facts: &Facts, id: BrokerId) -> Option<String> {
    Some(facts.process(id).pid).filter(|pid| *pid > 0).map(|pid| pid.to_string())
}

/// Its process does not answer: it goes on if it was stopped, and is looked at.
pub(super) fn wake(facts: &Facts, id: BrokerId) -> Vec<Step> {
    let tells = "STAT T: it was stopped; D: it waits for its disk";
    let place = host(facts, id);
    match pid(facts, id) {
        Some(pid) => vec![
            Step::new(format!("kill -CONT {pid}"), "nothing")
                .at(&place)
                .when("if its process was stopped"),
            Step::new(format!("ps -o pid,stat,wchan,cmd -p {pid}"), "nothing")
                .at(place)
                .when(tells),
        ],
        None => vec![
            Step::new("ps -C barnabas -o pid,stat,wchan,cmd", "nothing")
                .at(place)
                .when(format!("{tells} (kill -CONT PID)")),
        ],
    }
}

/// Whether it reaches an address.
pub(super) fn reach(facts: &Facts, from: BrokerId, address: &str) -> Step {
    let (host_name, port) = address.rsplit_once(':').unwrap_or((address, "PORT"));
    let to = host_name.trim_matches(['[', ']']);
    let command = format!("nc -vz -w 3 {} {port}", quoted(to));
    Step::new(command, "nothing").at(host(facts, from)).when("it tells whether the way is open")
}

/// Whether a broker reaches ZooKeeper: the first server that it is to ask.
pub(super) fn reach_zookeeper(facts: &Facts, from: BrokerId) -> Step {
    let servers = facts.health(from).map_or("", |health| &health.zookeeper_servers);
    let first = servers.split(',').next().filter(|server| !server.is_empty());
    reach(facts, from, first.unwrap_or("127.0.0.1:2181"))
        .when("it tells whether ZooKeeper (zookeeper.connect) is reached; if not, start it or mend the way there")
}

/// How busy its disks are.
pub(super) fn look_at_disk(facts: &Facts, id: BrokerId) -> Step {
    Step::new("iostat -x 1 3; dmesg | tail -n 20", "nothing")
        .at(host(facts, id))
        .when("it tells how busy the disk is, and its errors")
}
