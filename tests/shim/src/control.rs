//! Rules and counters, in a file that is mapped into memory: whoever changes the rules needs no other channel.
//!
//! | bytes | what |
//! |---|---|
//! | 0-7 | generation, little-endian; written last |
//! | 8-15 | length of the text |
//! | 16- | the rules, one a line |
//! | 32768- | for each rule, the generation in the upper 32 bits, and how often it fired in that one (64 numbers) |
//! | 33280- | for each operation, how often it was called below the roots (16 numbers, in the order of [`Op`]) |
//!
//! A rule is `ACTION OPERATION [path=PATTERN] [nth=N] [count=M]`. Actions: `fail:ERRNO` (a number), `short` (half of the bytes
//! are written), `delay:MS`, `hold` (until the rules change; the call is then judged by the new ones), `noop` (success without
//! the call, and nothing recorded). Operations: `write`, `read`, `cached` (a read that is not to wait for the disk; `read` is
//! those too), `open`, `create`, `truncate`, `allocate`, `fdatasync`,
//! `fsync`, `syncfs`, `rename`, `unlink`, `mkdir`; `sync` is the three of them, `any` all. In a pattern `*` stands for any
//! bytes. `nth`: from the N-th call on that matches; `count`: at most so often (1 if only `nth` is given). The first rule
//! that fires decides; a delay lets the later ones decide too.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::sys;

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Write = 0,
    Read,
    Open,
    Create,
    Truncate,
    Allocate,
    Fdatasync,
    Fsync,
    Syncfs,
    Rename,
    Unlink,
    Mkdir,
    Cached,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Fail(c_int),
    Short,
    Noop,
}

const FILE_BYTES: usize = 65_536;
const TEXT_AT: usize = 16;
const FIRED_AT: usize = 32_768;
const RULES_MAX: usize = 64;
const CALLS_AT: usize = FIRED_AT + RULES_MAX * 8;
/// Between two looks of a call that is held.
const HOLD_LOOK_MS: u64 = 1;

const NAMES: [(&str, &[Op]); 15] = [
    ("write", &[Op::Write]),
    ("read", &[Op::Read, Op::Cached]),
    ("cached", &[Op::Cached]),
    ("open", &[Op::Open]),
    ("create", &[Op::Create]),
    ("truncate", &[Op::Truncate]),
    ("allocate", &[Op::Allocate]),
    ("fdatasync", &[Op::Fdatasync]),
    ("fsync", &[Op::Fsync]),
    ("syncfs", &[Op::Syncfs]),
    ("rename", &[Op::Rename]),
    ("unlink", &[Op::Unlink]),
    ("mkdir", &[Op::Mkdir]),
    ("sync", &[Op::Fdatasync, Op::Fsync, Op::Syncfs]),
    ("any", &[]),
];

#[derive(Clone, Copy)]
enum Action {
    Fail(c_int),
    Short,
    Delay(u64),
    Hold,
    Noop,
}

struct Rule {
    action: Action,
    /// Empty: all.
    ops: &'static [Op],
    path: Option<Vec<u8>>,
    nth: u64,
    count: u64,
    matched: u64,
    fired: u64,
}

struct Rules {
    generation: u64,
    rules: Vec<Rule>,
}

pub(crate) struct Control {
    /// Start of the mapping, as an address so that it may be shared.
    map: usize,
    rules: Mutex<Rules>,
}

impl Control {
    /// Maps a file that the harness has made. `None` if it cannot be mapped.
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a C string; the mapping is never unmapped.
        let map = unsafe {
            let fd = sys::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0);
            if fd < 0 {
                return None;
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let map = libc::mmap(std::ptr::null_mut(), FILE_BYTES, access, libc::MAP_SHARED, fd, 0);
            sys::close(fd);
            map
        };
        (map != libc::MAP_FAILED).then(|| Self {
            map: map as usize,
            rules: Mutex::new(Rules { generation: u64::MAX, rules: Vec::new() }),
        })
    }

    fn number(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, which lives as long as the process, and aligned to 8.
        unsafe { AtomicU64::from_ptr((self.map + at) as *mut u64) }
    }

    /// Judges one call; waits as long as a rule says.
    pub(crate) fn judge(&self, op: Op, path: impl Fn() -> Option<Vec<u8>>) -> Verdict {
        self.number(CALLS_AT + op as usize * 8).fetch_add(1, Ordering::Relaxed);
        loop {
            let generation = self.number(0).load(Ordering::Acquire);
            let (verdict, delay_ms, held) = self.look(generation, op, &path);
            if delay_ms > 0 {
                sys::sleep_ms(delay_ms);
            }
            if !held {
                return verdict;
            }
            while self.number(0).load(Ordering::Acquire) == generation {
                sys::sleep_ms(HOLD_LOOK_MS);
            }
        }
    }

    /// Verdict, delay in ms, and whether the call is held.
    fn look(
        &self,
        generation: u64,
        op: Op,
        path: &impl Fn() -> Option<Vec<u8>>,
    ) -> (Verdict, u64, bool) {
        let Ok(mut rules) = self.rules.lock() else { return (Verdict::Pass, 0, false) };
        if rules.generation != generation {
            rules.rules = self.parse();
            rules.generation = generation;
        }
        let mut known: Option<Option<Vec<u8>>> = None;
        let mut delay_ms = 0;
        for (index, rule) in rules.rules.iter_mut().enumerate() {
            if !rule.ops.is_empty() && !rule.ops.contains(&op) {
                continue;
            }
            if let Some(pattern) = &rule.path {
                let path = known.get_or_insert_with(path);
                if !path.as_ref().is_some_and(|path| matches(pattern, path)) {
                    continue;
                }
            }
            rule.matched += 1;
            if rule.matched < rule.nth || rule.fired >= rule.count {
                continue;
            }
            rule.fired += 1;
            let fired = generation << 32 | rule.fired;
            self.number(FIRED_AT + index * 8).store(fired, Ordering::Release);
            match rule.action {
                Action::Fail(errno) => return (Verdict::Fail(errno), delay_ms, false),
                Action::Short => return (Verdict::Short, delay_ms, false),
                Action::Noop => return (Verdict::Noop, delay_ms, false),
                Action::Hold => return (Verdict::Pass, delay_ms, true),
                Action::Delay(ms) => delay_ms += ms,
            }
        }
        (Verdict::Pass, delay_ms, false)
    }

    fn parse(&self) -> Vec<Rule> {
        let len = usize::try_from(self.number(8).load(Ordering::Acquire)).unwrap_or(0);
        let mut text = vec![0_u8; len.min(FIRED_AT - TEXT_AT)];
        // SAFETY: within the mapping. A change meanwhile raises the generation, so what is read half is read again.
        unsafe {
            let from = (self.map + TEXT_AT) as *const u8;
            std::ptr::copy_nonoverlapping(from, text.as_mut_ptr(), text.len());
        }
        String::from_utf8_lossy(&text).lines().take(RULES_MAX).filter_map(rule).collect()
    }
}

fn rule(line: &str) -> Option<Rule> {
    let mut words = line.split_whitespace();
    let (action, value) = words.next().map(|w| w.split_once(':').unwrap_or((w, "")))?;
    let action = match action {
        "fail" => Action::Fail(value.parse().ok()?),
        "short" => Action::Short,
        "delay" => Action::Delay(value.parse().ok()?),
        "hold" => Action::Hold,
        "noop" => Action::Noop,
        _ => return None,
    };
    let name = words.next()?;
    let ops = NAMES.iter().find(|(known, _)| *known == name)?.1;
    let mut rule = Rule { action, ops, path: None, nth: 1, count: u64::MAX, matched: 0, fired: 0 };
    for word in words {
        match word.split_once('=')? {
            ("path", pattern) => rule.path = Some(pattern.as_bytes().to_vec()),
            ("nth", n) => {
                rule.nth = n.parse().ok()?;
                if rule.count == u64::MAX {
                    rule.count = 1;
                }
            }
            ("count", n) => rule.count = n.parse().ok()?,
            _ => return None,
        }
    }
    Some(rule)
}

/// Whether the whole path fits the pattern.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while s < path.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, s));
            p += 1;
        } else if pattern.get(p) == Some(&path[s]) {
            p += 1;
            s += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            s = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
