//! One question to a broker's `Admin` service, with deadlines; what went wrong becomes one sentence.
//!
//! Before it is asked anything a broker has to show that it answers at all: the kernel of one that stands still takes connections, and a
//! question that changes something must not be put to two. Who does not answer is left for the next address.

use std::future::Future;
use std::io;
use std::time::Duration;

use barnabas_broker::explain::cause::lasted;
use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::v1::{DescribeClusterRequest, Failure};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status, Streaming};

use super::{Asking, CliError};

/// Longest wait for a connection.
const DIAL_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the first sign of life of a broker that has taken the connection.
const ALIVE_MAX: Duration = Duration::from_secs(4);
/// Longest wait for an answer of one that lives; creating a topic of many partitions takes seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How often a broker from which answers are awaited is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How hyper calls a body that broke off; its errors tell that kind by no other means.
const BODY_BROKE: &str = "error reading a body from connection";

/// Asks one question and waits for its answer.
pub(super) fn ask<T, F>(
    asking: &Asking,
    question: impl FnOnce(AdminClient<Channel>) -> F,
) -> Result<T, CliError>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let runtime = runtime()?;
    runtime.block_on(async {
        let (admin, client) = live(asking, ALIVE_MAX).await?;
        let answer = question(client).await;
        answer.map(Response::into_inner).map_err(|status| of_status(&admin, &status))
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
    runtime.block_on(async {
        let (admin, client) = live(asking, ALIVE_MAX).await?;
        let refused = |status: Status| of_status(&admin, &status);
        let mut answers = question(client).await.map_err(refused)?.into_inner();
        while let Some(answer) = answers.message().await.map_err(|status| broke(&admin, &status))? {
            each(&answer);
        }
        Ok(())
    })
}

/// The first of the addresses at which a broker answers.
async fn live(
    asking: &Asking,
    alive_max: Duration,
) -> Result<(String, AdminClient<Channel>), CliError> {
    let mut silent = Vec::new();
    for admin in asking.addresses() {
        let found = match connect(admin).await {
            Ok(client) => alive(admin, client, alive_max).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(client) => return Ok((admin.to_owned(), client)),
            Err(CliError::Unreachable(why)) => silent.push(why),
            Err(error) => return Err(error),
        }
    }
    Err(CliError::Unreachable(match &mut silent[..] {
        [only] => std::mem::take(only),
        all => format!("none of {} addresses answers: {}", all.len(), all.join("; ")),
    }))
}

/// Whether a broker from which a connection was taken answers anything.
async fn alive(
    admin: &str,
    client: AdminClient<Channel>,
    alive_max: Duration,
) -> Result<AdminClient<Channel>, CliError> {
    let mut asked = client.clone();
    let sign = asked.describe_cluster(DescribeClusterRequest {});
    match tokio::time::timeout(alive_max, sign).await {
        Ok(Ok(_)) => Ok(client),
        Ok(Err(status)) => Err(of_status(admin, &status)),
        Err(_) => Err(CliError::Unreachable(format!(
            "the broker at {admin} took the connection and has not answered for {}: its process stands still, or its machine is \
             overloaded; look at it there, and ask another broker meanwhile with --admin HOST:PORT (several, with commas between \
             them, are tried one after the other)",
            lasted(u64::try_from(alive_max.as_millis()).unwrap_or(u64::MAX))
        ))),
    }
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
            "the broker at {admin} closed the connection without an answer: it is starting or stopping, or this is not its admin.listener \
             (by default port 9192; 9092 is Kafka's); try again, or name another with --admin"
        )),
        Code::Unknown | Code::Internal => CliError::Unreachable(format!(
            "what listens at {admin} does not speak gRPC ({message}); --admin takes the address of a broker's admin.listener, \
                 by default port 9192"
        )),
        code => CliError::Refused(format!("the broker at {admin} refused: {message} ({code:?})")),
    }
}

/// What ended answers that had begun: whoever sent them speaks gRPC, so what is no word of its own is the end of the connection.
fn broke(admin: &str, status: &Status) -> CliError {
    let by_transport = std::error::Error::source(status).is_some();
    match status.code() {
        Code::Unknown | Code::Internal if by_transport => {
            CliError::Unreachable(format!("the broker at {admin} closed the connection"))
        }
        _ => of_status(admin, status),
    }
}

/// Whether the connection ended before the answer did, as far as the causes of the error tell.
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
        // An answer that had begun and broke off; its cause is hidden behind these words.
        if error.is::<hyper::Error>() && error.to_string() == BODY_BROKE {
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

#[cfg(test)]
mod tests {
    use barnabas_proto::v1::TimelineRequest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that begins an answer of gRPC over HTTP/2, and dies. Its address.
    fn dies_answering() -> String {
        let (address, known) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let served = async move {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                address.send(listener.local_addr()?).ok();
                let (mut stream, _) = listener.accept().await?;
                // Settings, none of which differ from the defaults.
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
                let mut preface = [0; 24];
                stream.read_exact(&mut preface).await?;
                loop {
                    let mut head = [0; 9];
                    stream.read_exact(&mut head).await?;
                    let length = usize::from(head[1]) * 256 + usize::from(head[2]);
                    stream.read_exact(&mut vec![0; length]).await?;
                    let (headers, settings, ping) = (1, 4, 6);
                    if head[3] == settings && head[4] == 0 {
                        stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await?;
                    } else if head[3] == headers {
                        // Status 200, and of the static table's names the 31st: content-type.
                        let fields = b"\x88\x0f\x10\x10application/grpc";
                        let length = u8::try_from(fields.len()).unwrap();
                        let stream_id = &head[5..];
                        let answer = [&[0, 0, length, 1, 4], stream_id, fields].concat();
                        stream.write_all(&answer).await?;
                        // Whoever answers this has read what was before it.
                        stream.write_all(&[0, 0, 8, ping, 0, 0, 0, 0, 0]).await?;
                        stream.write_all(&[0; 8]).await?;
                    } else if head[3] == ping && head[4] == 1 {
                        return Ok::<(), io::Error>(());
                    }
                }
            };
            runtime().unwrap().block_on(served).unwrap();
        });
        known.recv().unwrap().to_string()
    }

    #[test]
    fn who_takes_connections_and_says_nothing_is_named_within_seconds_and_the_next_one_is_asked() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (still, closed) = (silent.local_addr().unwrap(), nobody.local_addr().unwrap());
        drop(nobody);
        let asking = Asking { admin: format!("{still},{closed}"), json: false };
        let waited = Duration::from_millis(200);
        let ended = runtime().unwrap().block_on(live(&asking, waited)).map(|(admin, _)| admin);
        let Err(CliError::Unreachable(why)) = ended else { panic!("{ended:?}") };
        for part in [
            "none of 2 addresses answers",
            &format!("{still} took the connection and has not answered for 200 ms"),
            &format!("cannot reach a broker at {closed}"),
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn a_broker_that_dies_while_it_answers_has_closed_the_connection() {
        let asking = Asking { admin: dies_answering(), json: false };
        let request = TimelineRequest { last: 1, follow: true, id: None };
        let question =
            |mut client: AdminClient<Channel>| async move { client.timeline(request).await };
        let ended = ask_stream(&asking, question, |_| panic!("it says nothing"));
        let Err(CliError::Unreachable(why)) = ended else { panic!("{ended:?}") };
        assert!(why.contains("closed the connection"), "{why}");

        let asking = Asking { admin: dies_answering(), json: false };
        let request = DescribeClusterRequest {};
        let ended =
            ask(&asking, |mut client| async move { client.describe_cluster(request).await });
        let Err(CliError::Unreachable(why)) = ended else { panic!("{ended:?}") };
        assert!(why.contains("closed the connection"), "{why}");
    }
}
