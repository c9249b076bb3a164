//! Ports for servers that stop and start again: none that the system hands out to connections meanwhile.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below what Linux (from 32768) and macOS (from 49152) hand out.
const FIRST: u16 = 16_000;
const COUNT: u16 = 16_000;

/// A port of the loopback interface on which nobody listens; another one at each call.
///
/// # Errors
/// All are taken.
pub fn free() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin far from one another.
    let own = (std::process::id().wrapping_mul(7919) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (own.wrapping_add(step)) % COUNT;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "all ports from 16000 to 31999 are taken"))
}

/// Three ports in a row on which nobody listens; the first of them.
///
/// # Errors
/// There are none.
pub fn three() -> io::Result<u16> {
    let mut row: Vec<u16> = Vec::new();
    for _ in 0..1000 {
        let port = free()?;
        if row.last().is_some_and(|last| last + 1 != port) {
            row.clear();
        }
        row.push(port);
        if row.len() == 3 {
            return Ok(row[0]);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no three free ports in a row"))
}
