//! A real ZooKeeper as a child process: one for the whole test binary, on a free port, gone when the binary is.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use barnabas_controller::zookeeper::{Connect, CreateMode, Request, Servers, ZooKeeper};

/// A server of its own.
pub struct Server {
    port: u16,
    /// Its standard input keeps the server alive.
    child: Child,
}

static SERVER: OnceLock<Server> = OnceLock::new();

const JARS: &str = "/usr/share/java";
const REMEDY: &str = "these tests need ZooKeeper; install it with: \
                      apt-get install -y --no-install-recommends zookeeper";

/// `127.0.0.1:PORT` of the server, started by whoever asks first.
pub fn address() -> String {
    format!("127.0.0.1:{}", SERVER.get_or_init(start).port)
}

/// A server that knows one user by SASL.
pub fn with_sasl(user: &str, password: &str) -> Server {
    let name = format!("barnabas-controller-jaas-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let lines = format!(
        "Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_{user}=\"{password}\";\n}};\n"
    );
    std::fs::write(&file, lines).unwrap();
    let server = start_with(&[
        format!("-Djava.security.auth.login.config={}", file.display()),
        "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            .into(),
    ]);
    std::fs::remove_file(&file).unwrap();
    server
}

fn start() -> Server {
    start_with(&[])
}

fn start_with(flags: &[String]) -> Server {
    let jars =
        ["zookeeper.jar", "slf4j-log4j12.jar", "log4j-1.2.jar"].map(|jar| format!("{JARS}/{jar}"));
    assert!(Path::new(&jars[0]).exists(), "{REMEDY}");
    for _ in 0..3 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if let Some(server) = start_on(port, &jars.join(":"), flags) {
            return server;
        }
    }
    panic!("ZooKeeper did not start three times");
}

fn start_on(port: u16, jars: &str, flags: &[String]) -> Option<Server> {
    let name = format!("barnabas-controller-test-{}-{port}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("zoo.cfg");
    let lines = format!(
        "tickTime=100\nminSessionTimeout=200\nmaxSessionTimeout=60000\ninitLimit=100\nsyncLimit=10\n\
         dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
        directory.join("data").display()
    );
    std::fs::write(&file, lines).unwrap();
    // The shell kills the server when the pipe closes, however this process ends.
    let mut command = Command::new("sh");
    command
        .args(["-c", "\"$@\" </dev/null & pid=$!; cat >/dev/null; kill -9 $pid; rm -rf \"$0\""])
        .arg(&directory)
        .args([
            "java",
            "-Xms64m",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
        ])
        .args(flags)
        .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.jmx.log4j.disable=true", "-cp", jars])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = Server { port, child: command.spawn().expect(REMEDY) };
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if serves(port) {
            return Some(server);
        }
        // Nothing tells when a server is ready; this is the only way to wait for it.
        std::thread::park_timeout(Duration::from_millis(50));
    }
    None
}

impl Server {
    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// For a start that failed, and a server of one test; the one that serves all is never dropped, and goes with the pipe.
impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn serves(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    // Whoever took the port first may never answer.
    if stream.set_read_timeout(Some(Duration::from_secs(5))).is_err() {
        return false;
    }
    let mut answer = String::new();
    let asked = stream.write_all(b"srvr").and_then(|()| stream.read_to_string(&mut answer));
    asked.is_ok() && answer.contains("Mode:")
}

/// Makes a chroot for one test; gives `host:port/chroot`.
pub async fn chroot(name: &str) -> String {
    let address = address();
    let (client, _events) =
        Servers::new(&address, Duration::from_secs(10)).connect().await.unwrap();
    let create = Request::Create {
        path: format!("/{name}"),
        data: Vec::new(),
        mode: CreateMode::Persistent,
    };
    client.submit(create).await.unwrap();
    client.close();
    format!("{address}/{name}")
}
