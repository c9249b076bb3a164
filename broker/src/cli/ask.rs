//! One question to a broker's `Admin` service, with a deadline; what went wrong becomes one sentence.

use std::future::Future;
use std::io;
use std::time::Duration;

use barnabas_proto::v1::Failure;
use barnabas_proto::v1::admin_client::AdminClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status, Streaming};

use super::{Asking, CliError};

/// Longest wait for a connection.
const DIAL_MAX: Duration = Duration::from_secs(5);
/// Longest wait for an answer; creating a topic of many partitions takes seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How often a broker from which answers are awaited is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Asks one question and waits for its answer.
pub(super) fn ask<T, F>(
    asking: &Asking,
    question: impl FnOnce(AdminClient<Channel>) -> F,
) -> Result<T, CliError>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let runtime = runtime()?;
    let admin = &asking.admin;
    runtime.block_on(async {
        let client = connect(admin).await?;
        question(client).await.map(Response::into_inner).map_err(|status| of_status(admin, &status))
    })
}

/// Asks one question and hands over each of its answers as it comes, until there is no more.
pub(super) fn ask_stream<T, F>(
    asking: &Asking,
    question: impl FnOnce(AdminClient<Channel>) -> F,
    mut each: impl FnMut(&T),
) -> Result<(), CliError>
where
    F: Future<Output = Result<Response<Streaming<T>>, Status>>,
{
    let runtime = runtime()?;
    let admin = &asking.admin;
    runtime.block_on(async {
        let broke = |status: Status| of_status(admin, &status);
        let mut answers = question(connect(admin).await?).await.map_err(broke)?.into_inner();
        while let Some(answer) = answers.message().await.map_err(broke)? {
            each(&answer);
        }
        Ok(())
    })
}

async fn connect(admin: &str) -> Result<AdminClient<Channel>, CliError> {
    let channel = Endpoint::from_shared(format!("http://{admin}"))
        .map_err(|_| {
            CliError::Refused(format!("'{admin}' is no address; --admin expects HOST:PORT"))
        })?
        .connect_timeout(DIAL_MAX)
        .timeout(ANSWER_MAX)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .connect()
        .await
        .map_err(|error| unreachable(admin, &error))?;
    Ok(AdminClient::new(channel).max_decoding_message_size(barnabas_proto::PUSH_BYTES_MAX))
}

/// Waits, between two looks at something that takes its time.
pub(super) fn pause(time: Duration) -> Result<(), CliError> {
    runtime()?.block_on(async { tokio::time::sleep(time).await });
    Ok(())
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::Refused(format!("cannot start a runtime: {e}")))
}

/// A refusal by the cluster.
pub(super) fn failure(failure: &Failure) -> CliError {
    CliError::Refused(format!("{} ({})", printable(&failure.message), printable(&failure.name)))
}

/// An answer that this version cannot read.
pub(super) fn empty_answer(asking: &Asking) -> CliError {
    CliError::Refused(format!(
        "the broker at {} gave an empty answer; it may run another version than this command",
        asking.admin
    ))
}

fn unreachable(admin: &str, error: &tonic::transport::Error) -> CliError {
    // The innermost cause says what the system said.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    CliError::Unreachable(format!(
        "cannot reach a broker at {admin} ({cause}); start one, or name another with --admin HOST:PORT"
    ))
}

fn of_status(admin: &str, status: &Status) -> CliError {
    let message = printable(status.message());
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            CliError::Unreachable(format!(
                "the broker at {admin} did not answer ({message}); try again, or name another with --admin"
            ))
        }
        Code::Unknown | Code::Internal if is_hung_up(status) => CliError::Unreachable(format!(
            "the broker at {admin} closed the connection without an answer: it is starting or stopping, or no broker; try again, \
             or name another with --admin"
        )),
        Code::Unknown | Code::Internal => CliError::Unreachable(format!(
            "what listens at {admin} does not speak gRPC ({message}); --admin takes the address of a broker's admin.listener, \
                 by default port 9192"
        )),
        code => CliError::Refused(format!("the broker at {admin} refused: {message} ({code:?})")),
    }
}

/// Whether the connection ended before anything was said, as far as the causes of the error tell.
fn is_hung_up(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let kinds = [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::UnexpectedEof,
        ];
        if kind.is_some_and(|kind| kinds.contains(&kind)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Text from the wire, safe for a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
