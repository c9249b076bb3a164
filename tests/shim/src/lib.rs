//! Preloaded into a broker under test (`LD_PRELOAD`): stands between it and libc's file calls, lets them fail, wait or lie by
//! rules that may change while it runs, and keeps a journal of what would survive a power cut.
//!
//! | variable | what |
//! |---|---|
//! | `BARNABAS_SHIM_ROOTS` | the directories that it looks at, separated by colons; everything else passes untouched |
//! | `BARNABAS_SHIM_CONTROL` | the control file with rules and counters: see `control.rs` |
//! | `BARNABAS_SHIM_JOURNAL` | a directory for the journal, on the file system of the roots; absent: nothing is recorded. See `journal.rs` |
//!
//! Real calls are made by system call, so that nothing here meets itself. Linux only; empty elsewhere.

#![cfg(target_os = "linux")]

mod control;
mod interposed;
mod journal;
mod shim;
mod sys;
