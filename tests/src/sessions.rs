//! Ends ZooKeeper sessions of others at a chosen moment, as an expiry does: their ephemeral nodes go, their clients are told.
//!
//! ZooKeeper derives a session's password from its id (`ZooKeeperServer.generatePasswd`), and whoever has both may take the
//! session over and close it.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Outcome;
use crate::wait::wait_for;
use crate::znodes::Znodes;

/// `ZooKeeperServer.superSecret`.
const SECRET: u64 = 0xB341_5C00;
const PASSWORD_BYTES: usize = 16;
/// `OpCode.closeSession`.
const CLOSE_SESSION: i32 = -11;
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// `java.util.Random.nextBytes` of the seed that belongs to the session.
fn password(session: i64) -> [u8; PASSWORD_BYTES] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session.cast_unsigned() ^ SECRET ^ MULTIPLIER) & MASK;
    let mut password = [0; PASSWORD_BYTES];
    for bytes in password.chunks_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        let number = u32::try_from(state >> 16).unwrap_or(0);
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    password
}

/// Ends a session; nothing happens if it is gone already.
///
/// # Errors
/// ZooKeeper does not answer.
pub async fn expire(zookeeper: &str, session: i64) -> Outcome<()> {
    let server = zookeeper.split('/').next().unwrap_or(zookeeper);
    let what = format!("session {session:#x} is ended");
    wait_for(&what, ANSWER_MAX, || async { close(server, session).await.ok() }).await
}

/// One attempt. The client whose session it is connects again at once, and that ends our connection: whoever asks last has it.
async fn close(server: &str, session: i64) -> Outcome<()> {
    let mut stream = TcpStream::connect(server).await?;
    let mut connect = Vec::new();
    // Protocol version, last zxid seen, timeout, session, password, whether a read-only server will do.
    connect.extend_from_slice(&0_i32.to_be_bytes());
    connect.extend_from_slice(&0_i64.to_be_bytes());
    connect.extend_from_slice(&10_000_i32.to_be_bytes());
    connect.extend_from_slice(&session.to_be_bytes());
    connect.extend_from_slice(&16_i32.to_be_bytes());
    connect.extend_from_slice(&password(session));
    connect.push(0);
    write_frame(&mut stream, &connect).await?;
    let answer = read_frame(&mut stream).await?;
    let found = answer.get(8..16).and_then(|bytes| bytes.try_into().ok());
    if found.map(i64::from_be_bytes) != Some(session) {
        // It answers with session 0: there is none of this id any more.
        return Ok(());
    }
    write_frame(&mut stream, &[1_i32.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat()).await?;
    read_frame(&mut stream).await.map(drop)
}

/// Ends the session under which a broker is registered, if it is.
///
/// # Errors
/// ZooKeeper does not answer.
pub async fn expire_broker(zookeeper: &str, znodes: &Znodes, broker: i32) -> Outcome<()> {
    match znodes.read(&format!("/brokers/ids/{broker}")).await? {
        Some(node) => expire(zookeeper, node.ephemeral_owner).await,
        None => Ok(()),
    }
}

async fn write_frame(stream: &mut TcpStream, bytes: &[u8]) -> Outcome<()> {
    let len = i32::try_from(bytes.len())?;
    stream.write_all(&[&len.to_be_bytes()[..], bytes].concat()).await?;
    Ok(())
}

async fn read_frame(stream: &mut TcpStream) -> Outcome<Vec<u8>> {
    let len = usize::try_from(stream.read_i32().await?)?;
    if len > 1 << 20 {
        return Err(format!("a frame of {len} bytes").into());
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
