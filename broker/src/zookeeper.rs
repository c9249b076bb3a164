//! A ZooKeeper server as a child process, for `barnabas dev` and for tests: found, configured, started, awaited, stopped.
//!
//! Production runs an ensemble of its own; nothing here is used by `barnabas broker`.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a JVM may take to its first answer. Measured: 2 s; 4.5 s on a machine loaded fifteenfold.
const START_MAX: Duration = Duration::from_secs(60);
/// Interval of the readiness probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for one answer of the probe.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// What to start.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    /// Directory for the configuration, the log and the data; created if absent.
    pub data_dir: PathBuf,
    /// Port on 127.0.0.1; `None`: a free one.
    pub port: Option<u16>,
    /// `tickTime`: session expiry is quantised by it. 100 for tests, 500 for a quick start.
    pub tick_time_ms: u32,
    /// Whether transactions are synced to disk before they are answered; only throw-away servers say no.
    pub force_sync: bool,
    /// Its place in an ensemble; `None`: it stands alone.
    pub ensemble: Option<Ensemble>,
}

/// Which member of an ensemble on this machine a server is. It is ready only with most of the others: start them together.
#[derive(Clone, Debug)]
pub struct Ensemble {
    /// Its number, from 1.
    pub number: usize,
    /// The ports of each member for its followers and for elections.
    pub ports: Vec<(u16, u16)>,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct ZooKeeperServer {
    child: Child,
    address: SocketAddr,
}

/// Why no server runs.
#[derive(Debug, thiserror::Error)]
pub enum ZooKeeperError {
    /// No jars.
    #[error("Apache ZooKeeper is not installed; install it with: {}", install_line())]
    NotInstalled,
    /// No Java runtime.
    #[error(
        "no Java runtime is on PATH or in JAVA_HOME; install it (and ZooKeeper) with: {}",
        install_line()
    )]
    NoJava,
    /// Somebody else listens there.
    #[error(
        "port {port} on 127.0.0.1 is taken ({source}); stop what listens there, or choose another port"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// Files cannot be written or the process cannot be started.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The process ended, or did not answer in time.
    #[error("ZooKeeper {what}; see {log}{tail}")]
    NotReady {
        /// What it did.
        what: String,
        /// Its log.
        log: PathBuf,
        /// The last line of it.
        tail: String,
    },
    /// Older than 3.6, which lacks persistent watches and multi-reads.
    #[error("ZooKeeper {version} is too old; 3.6 or newer is needed")]
    TooOld {
        /// What it says of itself.
        version: String,
    },
}

impl ZooKeeperServer {
    /// Starts a server and waits until it answers `srvr`.
    ///
    /// # Errors
    /// [`ZooKeeperError`]; no process is left behind.
    pub async fn start(options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let installation = Installation::find()?;
        let port = match options.port {
            Some(port) => port,
            None => free_port().map_err(|e| io_error("find a free port", e))?,
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpListener::bind(address).map_err(|source| ZooKeeperError::PortTaken { port, source })?;
        let conf = write_configuration(options, port)?;
        let child = installation.spawn(options, &conf)?;
        let mut server = Self { child, address };
        // Dropping the server on any error kills the child.
        server.until_ready(options).await?;
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has ended, and how.
    pub fn try_wait(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends the process and waits for its end. ZooKeeper's data is safe against a kill: it logs before it answers.
    pub fn stop(&mut self) {
        // Both fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    async fn until_ready(&mut self, options: &ZooKeeperOptions) -> Result<(), ZooKeeperError> {
        let log = log_file(&options.data_dir);
        let not_ready = |what: String| ZooKeeperError::NotReady {
            what,
            tail: last_line(&log),
            log: log.clone(),
        };
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Ok(answer) = srvr(self.address).await
                && answer.contains("Mode:")
            {
                return check_version(&answer);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(not_ready(format!("ended at its start ({status})")));
            }
            if Instant::now() > deadline {
                return Err(not_ready(format!("did not answer within {} s", START_MAX.as_secs())));
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The answer of a server to the four-letter word `srvr`.
///
/// # Errors
/// The connection fails, or there is no whole answer in time.
pub async fn srvr(address: SocketAddr) -> io::Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(PROBE_MAX, ask)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A port of 127.0.0.1 that is free now.
///
/// # Errors
/// The system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Where Java and ZooKeeper are.
struct Installation {
    java: PathBuf,
    /// Everything on the class path except our configuration folder.
    jars: Vec<PathBuf>,
}

impl Installation {
    fn find() -> Result<Self, ZooKeeperError> {
        let jars = find_jars().ok_or(ZooKeeperError::NotInstalled)?;
        let java = find_java().ok_or(ZooKeeperError::NoJava)?;
        Ok(Self { java, jars })
    }

    fn spawn(&self, options: &ZooKeeperOptions, conf: &Path) -> Result<Child, ZooKeeperError> {
        let class_path = std::iter::once(conf.to_owned())
            .chain(self.jars.iter().cloned())
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(":");
        let out = options.data_dir.join("zookeeper.out");
        let open =
            || File::create(&out).map_err(|e| io_error(&format!("write {}", out.display()), e));
        let mut command = Command::new(&self.java);
        command
            .args([
                "-Xms64m",
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xshare:auto",
            ])
            .args(["-Dzookeeper.jmx.log4j.disable=true", "-Djava.net.preferIPv4Stack=true"])
            .arg(format!("-Dbarnabas.log={}", log_file(&options.data_dir).display()));
        if !options.force_sync {
            command.arg("-Dzookeeper.forceSync=no");
        }
        command
            .args(["-cp", &class_path, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .arg(conf.join("zoo.cfg"))
            // A Ctrl-C in the terminal is for our parent alone, which then stops its children in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .spawn()
            .map_err(|e| io_error(&format!("start {}", self.java.display()), e))
    }
}

/// The jars, looked for in `$ZOOKEEPER_HOME`, then where Debian, then where Homebrew puts them.
fn find_jars() -> Option<Vec<PathBuf>> {
    if let Some(home) = std::env::var_os("ZOOKEEPER_HOME").map(PathBuf::from) {
        return jars_below(&home);
    }
    let debian = Path::new("/usr/share/java");
    if debian.join("zookeeper.jar").is_file() {
        // The manifest of zookeeper.jar names its own dependencies, but no logging backend.
        let names = ["zookeeper.jar", "slf4j-log4j12.jar", "log4j-1.2.jar"];
        return Some(names.iter().map(|name| debian.join(name)).collect());
    }
    ["/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew"]
        .iter()
        .find_map(|prefix| jars_below(&Path::new(prefix).join("opt/zookeeper/libexec")))
}

/// All jars of an unpacked release; `None` if there is no `zookeeper-*.jar` among them.
fn jars_below(home: &Path) -> Option<Vec<PathBuf>> {
    let mut jars: Vec<PathBuf> = [home.to_owned(), home.join("lib")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jar"))
        .collect();
    jars.sort();
    let name_starts = |path: &PathBuf, start: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
    };
    jars.iter().any(|path| name_starts(path, "zookeeper")).then_some(jars)
}

fn find_java() -> Option<PathBuf> {
    let of_home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    of_home
        .into_iter()
        .chain(std::env::split_paths(&path).map(|folder| folder.join("java")))
        .find(|candidate| candidate.is_file())
}

/// The one line that installs ZooKeeper (and a Java runtime) on this system.
#[must_use]
pub fn install_line() -> &'static str {
    if cfg!(target_os = "macos") {
        return "brew install zookeeper";
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default().to_lowercase();
    if release.contains("debian") || release.contains("ubuntu") {
        "sudo apt-get install -y --no-install-recommends zookeeper"
    } else {
        "unpack a ZooKeeper release (3.6 or newer) and a Java 11 runtime, then set ZOOKEEPER_HOME and JAVA_HOME"
    }
}

fn log_file(data_dir: &Path) -> PathBuf {
    data_dir.join("zookeeper.log")
}

/// Writes `zoo.cfg` and the logging configuration of both backends that releases ship; returns their folder.
fn write_configuration(options: &ZooKeeperOptions, port: u16) -> Result<PathBuf, ZooKeeperError> {
    let conf = options.data_dir.join("conf");
    let data = options.data_dir.join("data");
    let tick = options.tick_time_ms;
    let zoo = format!(
        "# Written by barnabas at each start; edits are lost.\n\
         tickTime={tick}\nminSessionTimeout={min}\nmaxSessionTimeout=3600000\ninitLimit=100\nsyncLimit=10\n\
         dataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         4lw.commands.whitelist=srvr,ruok,mntr,cons,conf,wchs\nmaxClientCnxns=0\n\
         autopurge.snapRetainCount=3\nautopurge.purgeInterval=1\n",
        min = tick * 2,
        data = data.display(),
    );
    let log4j = "log4j.rootLogger=INFO, F\nlog4j.appender.F=org.apache.log4j.FileAppender\n\
                 log4j.appender.F.File=${barnabas.log}\nlog4j.appender.F.layout=org.apache.log4j.PatternLayout\n\
                 log4j.appender.F.layout.ConversionPattern=%d{ISO8601} %-5p %c{1} %m%n\n";
    let logback = "<configuration><appender name=\"F\" class=\"ch.qos.logback.core.FileAppender\">\
                   <file>${barnabas.log}</file><encoder><pattern>%d %-5level %logger{0} %msg%n</pattern></encoder>\
                   </appender><root level=\"INFO\"><appender-ref ref=\"F\"/></root></configuration>\n";
    for folder in [&conf, &data] {
        fs::create_dir_all(folder)
            .map_err(|e| io_error(&format!("create {}", folder.display()), e))?;
    }
    let mut zoo = zoo;
    if let Some(ensemble) = &options.ensemble {
        for (number, (follow, elect)) in (1..).zip(&ensemble.ports) {
            zoo.push_str(&format!("server.{number}=127.0.0.1:{follow}:{elect}\n"));
        }
        let file = data.join("myid");
        fs::write(&file, format!("{}\n", ensemble.number))
            .map_err(|e| io_error(&format!("write {}", file.display()), e))?;
    }
    for (name, text) in
        [("zoo.cfg", zoo.as_str()), ("log4j.properties", log4j), ("logback.xml", logback)]
    {
        let file = conf.join(name);
        fs::write(&file, text).map_err(|e| io_error(&format!("write {}", file.display()), e))?;
    }
    Ok(conf)
}

fn io_error(what: &str, source: io::Error) -> ZooKeeperError {
    ZooKeeperError::Io { what: what.to_owned(), source }
}

/// The last line of a log, as the end of a sentence; nothing if there is none.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().last().map(|line| format!(": {line}")).unwrap_or_default()
}

/// Refuses releases before 3.6; an answer without a version passes, for not all compatible servers tell theirs.
fn check_version(answer: &str) -> Result<(), ZooKeeperError> {
    let Some(version) = answer.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))
    else {
        return Ok(());
    };
    let version = version.split(['-', ',']).next().unwrap_or_default();
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) < (3, 6) => {
            Err(ZooKeeperError::TooOld { version: version.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_3_6_are_refused() {
        let answer = |version: &str| {
            format!("Zookeeper version: {version}-abc, built on x\nMode: standalone\n")
        };
        assert!(check_version(&answer("3.8.0")).is_ok());
        assert!(check_version(&answer("3.10.1")).is_ok());
        assert!(check_version(&answer("4.0")).is_ok());
        let error = check_version(&answer("3.4.14")).unwrap_err().to_string();
        assert!(error.contains("3.4.14") && error.contains("3.6"), "{error}");
        assert!(check_version("Mode: standalone\n").is_ok());
    }

    #[test]
    fn a_folder_without_zookeeper_is_no_installation() {
        assert_eq!(jars_below(Path::new("/proc")), None);
    }
}
