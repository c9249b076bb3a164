//! The calls that are interposed, made by system call; and small wrappers of those that are not.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

use libc::{c_char, c_int, c_long, c_void, mode_t, off_t, size_t, ssize_t, stat64};

/// Of a file name longer than this nothing is known.
const PATH_BYTES_MAX: usize = 4096;

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the pointer is valid for this thread.
    unsafe { *libc::__errno_location() = errno };
}

fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Runs what must not change errno.
pub(crate) fn keeping_errno<T>(run: impl FnOnce() -> T) -> T {
    let before = errno();
    let value = run();
    set_errno(before);
    value
}

/// The result of a system call as the C function returns it.
fn narrow(result: c_long) -> c_int {
    result as c_int
}

pub(crate) unsafe fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    narrow(unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) })
}

pub(crate) fn close(fd: c_int) -> c_int {
    // SAFETY: closing what the caller owns.
    narrow(unsafe { libc::syscall(libc::SYS_close, fd) })
}

pub(crate) unsafe fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_read, fd, to, len) as ssize_t }
}

pub(crate) unsafe fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_pread64, fd, to, len, at) as ssize_t }
}

pub(crate) unsafe fn preadv2(
    fd: c_int,
    parts: *const libc::iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_preadv2, fd, parts, count, at, 0, flags) as ssize_t }
}

pub(crate) unsafe fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_write, fd, from, len) as ssize_t }
}

pub(crate) unsafe fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_pwrite64, fd, from, len, at) as ssize_t }
}

pub(crate) unsafe fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) as ssize_t }
}

pub(crate) fn ftruncate(fd: c_int, len: off_t) -> c_int {
    // SAFETY: no pointer.
    narrow(unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) })
}

pub(crate) fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: no pointer.
    narrow(unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, at, len) })
}

pub(crate) fn fsync(fd: c_int) -> c_int {
    // SAFETY: no pointer.
    narrow(unsafe { libc::syscall(libc::SYS_fsync, fd) })
}

pub(crate) fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: no pointer.
    narrow(unsafe { libc::syscall(libc::SYS_fdatasync, fd) })
}

pub(crate) fn syncfs(fd: c_int) -> c_int {
    // SAFETY: no pointer.
    narrow(unsafe { libc::syscall(libc::SYS_syncfs, fd) })
}

pub(crate) unsafe fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    narrow(unsafe { libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) })
}

pub(crate) unsafe fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    narrow(unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) })
}

pub(crate) unsafe fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    narrow(unsafe { libc::syscall(libc::SYS_mkdirat, dir, path, mode) })
}

/// What an open file is.
pub(crate) fn stat_fd(fd: c_int) -> Option<stat64> {
    let mut stat = MaybeUninit::<stat64>::uninit();
    // SAFETY: the buffer has the right size, and is only read if it was filled.
    unsafe { (libc::fstat64(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// What a name stands for, links not followed.
pub(crate) fn stat_name(path: &CStr) -> Option<stat64> {
    let mut stat = MaybeUninit::<stat64>::uninit();
    // SAFETY: as above; the path ends with a zero.
    unsafe { (libc::lstat64(path.as_ptr(), stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// The present path of an open file.
pub(crate) fn path_of(fd: c_int) -> Option<Vec<u8>> {
    let name = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let mut bytes = vec![0_u8; PATH_BYTES_MAX];
    // SAFETY: the buffer is as long as said.
    let len =
        unsafe { libc::readlink(name.as_ptr(), bytes.as_mut_ptr().cast::<c_char>(), bytes.len()) };
    bytes.truncate(usize::try_from(len).ok()?);
    bytes.starts_with(b"/").then_some(bytes)
}

/// The absolute form of a path that is relative to an open directory.
pub(crate) unsafe fn absolute(dir: c_int, path: *const c_char) -> Option<Vec<u8>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string, as the caller promises to libc.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.starts_with(b"/") {
        return Some(path.to_vec());
    }
    let mut whole = if dir == libc::AT_FDCWD {
        let mut bytes = vec![0_u8; PATH_BYTES_MAX];
        // SAFETY: the buffer is as long as said; the result is a C string in it.
        let found = unsafe { libc::getcwd(bytes.as_mut_ptr().cast::<c_char>(), bytes.len()) };
        if found.is_null() {
            return None;
        }
        bytes.truncate(bytes.iter().position(|byte| *byte == 0)?);
        bytes
    } else {
        path_of(dir)?
    };
    whole.push(b'/');
    whole.extend_from_slice(path);
    Some(whole)
}

/// Another name for a file.
pub(crate) fn link(from: &CStr, to: &CStr) -> bool {
    // SAFETY: two C strings.
    unsafe { libc::link(from.as_ptr(), to.as_ptr()) == 0 }
}

/// All bytes into a new file.
pub(crate) fn write_file(path: &CStr, bytes: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: a C string, and a buffer of the length given.
    unsafe {
        let fd = openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o644);
        if fd >= 0 {
            write(fd, bytes.as_ptr().cast::<c_void>(), bytes.len());
            close(fd);
        }
    }
}

/// Some bytes of a file that need not be open for reading.
pub(crate) fn read_range(path: &[u8], from: u64, len: usize) -> Option<Vec<u8>> {
    let name = CString::new(path).ok()?;
    let mut bytes = vec![0_u8; len];
    // SAFETY: a C string, and a buffer of the length given.
    unsafe {
        let fd = openat(libc::AT_FDCWD, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        let read = pread(fd, bytes.as_mut_ptr().cast::<c_void>(), len, off_t::try_from(from).ok()?);
        close(fd);
        bytes.truncate(usize::try_from(read).ok()?);
    }
    Some(bytes)
}

/// Where the next `write` goes.
pub(crate) fn position_of(fd: c_int, size: u64) -> u64 {
    // SAFETY: no pointer.
    let (flags, position) =
        unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::lseek64(fd, 0, libc::SEEK_CUR)) };
    if flags >= 0 && flags & libc::O_APPEND != 0 {
        return size;
    }
    u64::try_from(position).unwrap_or(size)
}

pub(crate) fn sleep_ms(ms: u64) {
    let us = libc::useconds_t::try_from(ms.saturating_mul(1000)).unwrap_or(libc::useconds_t::MAX);
    // SAFETY: no pointer.
    unsafe { libc::usleep(us) };
}
