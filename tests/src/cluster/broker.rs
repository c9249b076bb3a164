//! One broker process: start, kill, stop and continue, wipe, and what its log says.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use barnabas_broker::config::BrokerConfig;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::standstill::stand_still;
use crate::admin::Admin;
use crate::ports;
use crate::shim::Shim;
use crate::wait::wait_for;
use crate::{Fault, Outcome};

/// Longest wait for a process to end after a signal.
const END_MAX: Duration = Duration::from_secs(30);

/// Longest wait for an answer about its health.
const HEALTH_MAX: Duration = Duration::from_secs(5);

/// The ports of one broker.
pub(super) struct Ports {
    pub(super) kafka: u16,
    pub(super) admin: u16,
    pub(super) http: u16,
}

impl Ports {
    pub(super) fn free() -> io::Result<Self> {
        Ok(Self { kafka: ports::free()?, admin: ports::free()?, http: ports::free()? })
    }
}

/// A broker with its files; the process runs or not.
#[derive(Debug)]
pub struct Broker {
    id: i32,
    directory: PathBuf,
    config: BrokerConfig,
    process: Process,
    /// What is preloaded into it.
    shim: Option<Shim>,
    /// The network namespace that it runs in.
    space: Option<String>,
}

#[derive(Debug)]
enum Process {
    None,
    /// Started by this harness; killed at its end unless the broker belongs to an attached cluster.
    Ours(Child),
    /// Started by somebody else and found by its pid file.
    Found(Pid),
}

impl Broker {
    pub(super) fn configured(id: i32, directory: &Path) -> Outcome<Self> {
        let config = BrokerConfig::load(&directory.join(format!("broker-{id}.yaml")))?;
        Ok(Self {
            id,
            directory: directory.to_owned(),
            config,
            process: Process::None,
            shim: None,
            space: None,
        })
    }

    pub(super) fn attach(id: i32, directory: &Path) -> Outcome<Self> {
        let mut broker = Self::configured(id, directory)?;
        let text = fs::read_to_string(broker.file("pid"))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid
            .ok_or_else(|| Fault::from(format!("{} holds no pid", broker.file("pid").display())))?;
        broker.process = Process::Found(pid);
        Ok(broker)
    }

    /// Id of the broker.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// Preloads the fault shim from the next start on.
    pub(super) fn preload(&mut self, shim: Shim) {
        self.shim = Some(shim);
    }

    /// Runs it in a network namespace from the next start on.
    pub(super) fn settle(&mut self, space: String) {
        self.space = Some(space);
    }

    /// The fault shim that is preloaded.
    ///
    /// # Panics
    /// The cluster was started without.
    #[must_use]
    pub fn shim(&self) -> &Shim {
        self.shim.as_ref().expect("a cluster with a preloaded shim")
    }

    /// Its log directory, the first if it has several.
    #[must_use]
    pub fn log_dir(&self) -> &Path {
        &self.config.log_dirs[0]
    }

    /// The file with the configuration.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.file("yaml")
    }

    /// Process id.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self) -> Outcome<Pid> {
        match &self.process {
            Process::None => Err(format!("broker {} does not run", self.id).into()),
            Process::Found(pid) => Ok(*pid),
            Process::Ours(child) => {
                let raw = i32::try_from(child.id())?;
                Pid::from_raw(raw).ok_or_else(|| "process 0".into())
            }
        }
    }

    /// Whether the process runs now.
    pub fn runs(&mut self) -> bool {
        match &mut self.process {
            Process::None => false,
            Process::Ours(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            Process::Found(pid) => test_kill_process(*pid).is_ok(),
        }
    }

    /// Whether it was started and not ended on purpose.
    pub(super) fn was_started(&self) -> bool {
        !matches!(self.process, Process::None)
    }

    /// Starts the process; its output is appended to `broker-N.log`.
    ///
    /// # Errors
    /// The program is not there, or the system starts no process.
    pub fn start(&mut self) -> Outcome<()> {
        let mut command = match &self.space {
            None => Command::new(program()?),
            Some(space) => {
                // It becomes the broker: the same process.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space]).arg(program()?);
                command
            }
        };
        command.args(["broker", "--config"]).arg(self.config_file());
        self.spawn(&mut command)
    }

    /// Does what somebody on its host is told to do: runs the line as it is printed. If it ends with the start of a broker, that is
    /// this one from now on.
    ///
    /// # Errors
    /// A command fails to run or to end in time, or the system starts no process.
    pub async fn run_as_told(&mut self, line: &str) -> Outcome<()> {
        let (before, starts) = match line.rsplit_once("; ") {
            Some((before, last)) if last.starts_with("barnabas broker --config ") => {
                (Some(before), Some(last))
            }
            _ if line.starts_with("barnabas broker --config ") => (None, Some(line)),
            _ => (Some(line), None),
        };
        if let Some(line) = before {
            let mut child = shell(line)?.stdin(Stdio::null()).spawn()?;
            let began = Instant::now();
            while child.try_wait()?.is_none() {
                // A process that has ended is gone only when its parent has taken note.
                self.runs();
                if began.elapsed() > END_MAX {
                    child.kill()?;
                    return Err(format!("`{line}` did not end").into());
                }
                crate::wait::next_look().await;
            }
        }
        match starts {
            Some(line) => self.spawn(&mut shell(&format!("exec {line}"))?),
            None => Ok(()),
        }
    }

    fn spawn(&mut self, command: &mut Command) -> Outcome<()> {
        let roots = self.config.log_dirs.clone();
        let log = || File::options().create(true).append(true).open(self.file("log"));
        let child = command
            .envs(self.shim.iter().flat_map(|shim| shim.environment(&roots)))
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .spawn()?;
        fs::write(self.file("pid"), format!("{}\n", child.id()))?;
        self.process = Process::Ours(child);
        Ok(())
    }

    /// SIGKILL, and waits until the process is gone.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn kill(&mut self) -> Outcome<()> {
        kill_process(self.pid()?, Signal::KILL)?;
        self.until_ended().await.map(|_| ())
    }

    /// SIGKILL, without waiting.
    ///
    /// # Errors
    /// It does not run.
    pub(super) fn strike(&self) -> Outcome<()> {
        Ok(kill_process(self.pid()?, Signal::KILL)?)
    }

    /// SIGTERM, and waits until the process is gone; the exit status, if it is our child.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn terminate(&mut self) -> Outcome<Option<ExitStatus>> {
        self.ask_to_stop()?;
        self.until_ended().await
    }

    /// SIGTERM, without waiting.
    ///
    /// # Errors
    /// It does not run.
    pub fn ask_to_stop(&self) -> Outcome<()> {
        Ok(kill_process(self.pid()?, Signal::TERM)?)
    }

    /// SIGHUP: it reads its file again.
    ///
    /// # Errors
    /// It does not run.
    pub fn hang_up(&self) -> Outcome<()> {
        Ok(kill_process(self.pid()?, Signal::HUP)?)
    }

    /// SIGSTOP: the process stands still when this returns, its sockets stay open.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> Outcome<()> {
        stand_still(self.pid()?)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self) -> Outcome<()> {
        Ok(kill_process(self.pid()?, Signal::CONT)?)
    }

    /// Deletes the data of a broker that does not run.
    ///
    /// # Errors
    /// It runs, or the files cannot be deleted.
    pub fn wipe(&mut self) -> Outcome<()> {
        if self.runs() {
            return Err(format!("broker {} runs", self.id).into());
        }
        for log_dir in &self.config.log_dirs {
            fs::remove_dir_all(log_dir)?;
        }
        Ok(())
    }

    /// Waits until the process has ended by itself or by a signal.
    ///
    /// # Errors
    /// It does not within the deadline.
    pub async fn until_ended(&mut self) -> Outcome<Option<ExitStatus>> {
        let what = format!("broker {} ends", self.id);
        let process = &mut self.process;
        let status = wait_for(&what, END_MAX, || {
            let ended = match process {
                Process::None => Some(None),
                Process::Ours(child) => child.try_wait().ok().flatten().map(Some),
                Process::Found(pid) => test_kill_process(*pid).is_err().then_some(None),
            };
            async move { ended }
        })
        .await?;
        self.process = Process::None;
        Ok(status)
    }

    /// A sentence if the process has ended although nobody asked it to.
    pub(crate) fn refuse_ended(&mut self) -> Outcome<()> {
        if self.was_started() && !self.runs() {
            return Err(format!("broker {} ended: {}", self.id, self.last_log_line()).into());
        }
        Ok(())
    }

    /// Its administration.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn admin(&self) -> Outcome<Admin> {
        Admin::connect(&self.config.admin_listener.to_string()).await
    }

    /// What it says of its own health.
    ///
    /// # Errors
    /// It does not answer, or not in JSON.
    pub async fn health(&self) -> Outcome<Value> {
        Ok(serde_json::from_str(&self.get("/health/ready").await?)?)
    }

    /// What it serves at `/metrics`.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics(&self) -> Outcome<String> {
        self.get("/metrics").await
    }

    async fn get(&self, path: &str) -> Outcome<String> {
        let address = self.config.http_listener.to_string();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let answer = async {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, Fault>(answer)
        };
        let answer = tokio::time::timeout(HEALTH_MAX, answer).await??;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        Ok(body.to_owned())
    }

    /// All that it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.file("log")).unwrap_or_default()).into_owned()
    }

    /// The last line of its log.
    #[must_use]
    pub fn last_log_line(&self) -> String {
        format!("broker {}: {}", self.id, self.log().lines().last().unwrap_or("it said nothing"))
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("broker-{}.{extension}", self.id))
    }

    /// Lets the process live on when the harness ends.
    pub fn release(&mut self) {
        if let Ok(pid) = self.pid() {
            self.process = Process::Found(pid);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Process::Ours(child) = &mut self.process {
            // Both fail only if the process has been waited for already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The binary under test: `BARNABAS_BIN`, or the one that lies beside the running test.
///
/// # Errors
/// There is none.
pub fn program() -> Outcome<PathBuf> {
    if let Some(given) = std::env::var_os("BARNABAS_BIN") {
        return Ok(PathBuf::from(given));
    }
    let here = std::env::current_exe()?;
    here.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("barnabas"))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            "no binary `barnabas`: run `cargo build -p barnabas-broker`, or set BARNABAS_BIN".into()
        })
}

/// A shell that knows the binary under test as `barnabas`, for a line that was printed.
fn shell(line: &str) -> Outcome<Command> {
    let program = program()?;
    let folder = program.parent().ok_or("a program without a folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("PATH", format!("{}:{path}", folder.display()));
    command.env_remove("BARNABAS_ADMIN");
    Ok(command)
}

/// Runs a line to its end as it was printed, with the binary under test as `barnabas`.
///
/// # Errors
/// There is no binary, or the line does not end in time.
pub async fn run_line(line: &str) -> Outcome<Output> {
    let mut command = shell(line)?;
    command.stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output());
    match tokio::time::timeout(END_MAX, ended).await {
        Ok(output) => Ok(output??),
        Err(_) => Err(format!("`{line}` did not end within {} s", END_MAX.as_secs()).into()),
    }
}

/// Runs the binary under test to its end with these arguments.
///
/// # Errors
/// There is no binary, or it does not end within the deadline; it is killed then.
pub async fn run_program(arguments: &[&str]) -> Outcome<Output> {
    run_program_within(END_MAX, arguments).await
}

/// The same where it has its own deadline.
///
/// # Errors
/// There is no binary, or it does not end within the deadline; it is killed then.
pub async fn run_program_within(deadline: Duration, arguments: &[&str]) -> Outcome<Output> {
    let child = Command::new(program()?)
        .args(arguments)
        .env_remove("BARNABAS_ADMIN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("process 0")?;
    // Draining the pipes in a thread, so that a talkative process cannot block on them.
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    match tokio::time::timeout(deadline, ended).await {
        Ok(output) => Ok(output??),
        Err(_) => {
            kill_process(pid, Signal::KILL)?;
            Err(format!("barnabas {arguments:?} did not end within {} s", deadline.as_secs())
                .into())
        }
    }
}

/// Memory in use (VmRSS) and processor time spent so far, of a process of this machine.
///
/// # Errors
/// It does not run, or the system is not Linux.
pub fn usage(pid: Pid) -> Outcome<(u64, Duration)> {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let status = fs::read_to_string(folder.join("status"))?;
    let rss = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .ok_or("no VmRSS")?;
    let stat = fs::read_to_string(folder.join("stat"))?;
    // The name in brackets may hold spaces; after it come the state and 10 more fields before utime and stime.
    let fields: Vec<&str> =
        stat.rsplit_once(')').ok_or("no name in stat")?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11).ok_or("no utime")?.parse::<u64>()?
        + fields.get(12).ok_or("no stime")?.parse::<u64>()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Ok((rss * 1024, Duration::from_millis(ticks * 1000 / ticks_per_second)))
}
