//! The functions of libc that stand in front of the real ones: each asks for a verdict, makes the call, and notes what it did.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libc::{EIO, mode_t, off_t, size_t, ssize_t, stat64};

use crate::control::{Op, Verdict};
use crate::journal::Journal;
use crate::shim::{Node, Shim, is_dir, shim, size_of};
use crate::sys;

/// A path split into what is needed to note a name.
struct Name {
    path: Vec<u8>,
    c_path: CString,
    before: Option<stat64>,
}

impl Name {
    /// `None` if the path is not below a root.
    unsafe fn of(shim: &Shim, dir: c_int, path: *const c_char) -> Option<Self> {
        // SAFETY: the caller's arguments.
        let path = unsafe { sys::absolute(dir, path) }?;
        if !shim.is_ours(&path) {
            return None;
        }
        let c_path = CString::new(path.clone()).ok()?;
        let before = sys::stat_name(&c_path);
        Some(Self { path, c_path, before })
    }

    fn name(&self) -> String {
        let from = self.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        String::from_utf8_lossy(&self.path[from..]).into_owned()
    }

    fn parent(&self) -> u64 {
        let end = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0).max(1);
        let parent = CString::new(&self.path[..end]).ok();
        parent.and_then(|parent| sys::stat_name(&parent)).map_or(0, |stat| stat.st_ino)
    }

    fn judge(&self, shim: &Shim, op: Op) -> Verdict {
        shim.judge(op, || Some(self.path.clone()))
    }
}

fn fail<T: From<i8>>(errno: c_int) -> T {
    sys::set_errno(errno);
    T::from(-1)
}

/// The errno of a verdict that forbids the call.
fn refusal(verdict: Verdict) -> Option<c_int> {
    match verdict {
        Verdict::Fail(errno) => Some(errno),
        _ => None,
    }
}

unsafe fn open(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { sys::openat(dir, path, flags, mode) };
    let Some(shim) = shim() else { return real() };
    // SAFETY: as above.
    let Some(name) = (unsafe { sys::keeping_errno(|| Name::of(shim, dir, path)) }) else {
        let fd = real();
        shim.forget(fd);
        return fd;
    };
    let creates = flags & libc::O_CREAT != 0 && name.before.is_none();
    let op = if creates { Op::Create } else { Op::Open };
    if let Some(errno) = refusal(name.judge(shim, op)) {
        return fail(errno);
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let cut = name.before.filter(|stat| writes && flags & libc::O_TRUNC != 0 && size_of(stat) > 0);
    let cut_bytes = match (&shim.journal, &cut) {
        (Some(_), Some(stat)) => {
            sys::keeping_errno(|| sys::read_range(&name.path, 0, Journal::kept_len(size_of(stat))?))
        }
        _ => None,
    };
    let fd = real();
    if fd < 0 {
        return fd;
    }
    shim.forget(fd);
    if let Some(journal) = &shim.journal {
        sys::keeping_errno(|| {
            let Some(stat) = sys::stat_fd(fd).filter(|stat| !is_dir(stat)) else { return };
            if creates {
                journal.created(false, name.parent(), stat.st_ino, &name.name());
            } else if let Some(before) = cut {
                journal.seen(stat.st_ino, size_of(&before));
                journal.resized(stat.st_ino, size_of(&before), 0, cut_bytes);
            }
        });
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on. The mode is passed like a named argument on the systems that this is built for.
    unsafe { open(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(export_name = "open")]
unsafe extern "C" fn open_plain(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as above.
    unsafe { open(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: as above.
    unsafe { open(dir, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as above.
    unsafe { open(dir, path, flags, mode) }
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    if let Some(shim) = shim() {
        shim.forget(fd);
    }
    sys::close(fd)
}

/// A read of something of ours may fail.
fn read_refused(fd: c_int, op: Op) -> Option<c_int> {
    let shim = shim()?;
    shim.node(fd).filter(|node| !node.is_dir)?;
    refusal(shim.judge(op, || sys::path_of(fd)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    match read_refused(fd, Op::Read) {
        Some(errno) => fail(errno),
        // SAFETY: the caller's arguments, passed on.
        None => unsafe { sys::read(fd, to, len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    match read_refused(fd, Op::Read) {
        Some(errno) => fail(errno),
        // SAFETY: the caller's arguments, passed on.
        None => unsafe { sys::pread(fd, to, len, at) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { pread64(fd, to, len, at) }
}

/// Read by brokers to know whether the disk would have to be waited for.
#[unsafe(no_mangle)]
unsafe extern "C" fn preadv64v2(
    fd: c_int,
    parts: *const libc::iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    let op = if flags & libc::RWF_NOWAIT == 0 { Op::Read } else { Op::Cached };
    match read_refused(fd, op) {
        Some(errno) => fail(errno),
        // SAFETY: the caller's arguments, passed on.
        None => unsafe { sys::preadv2(fd, parts, count, at, flags) },
    }
}

/// A write of `len` bytes at `at` (`None`: at the position of the descriptor); `real` writes at most so many.
fn write_with(
    fd: c_int,
    len: size_t,
    at: Option<u64>,
    bytes: Option<*const c_void>,
    real: impl Fn(size_t) -> ssize_t,
) -> ssize_t {
    let Some((shim, node)) = shim().and_then(|shim| Some((shim, shim.node(fd)?))) else {
        return real(len);
    };
    let len = match shim.judge(Op::Write, || sys::path_of(fd)) {
        Verdict::Fail(errno) => return fail(errno),
        Verdict::Short if len > 1 => len / 2,
        Verdict::Noop => return ssize_t::try_from(len).unwrap_or(ssize_t::MAX),
        _ => len,
    };
    let Some(journal) = &shim.journal else { return real(len) };
    let before = sys::keeping_errno(|| before_write(journal, fd, &node, len, at));
    let written = real(len);
    if let (Ok(written), Some((at, old))) = (usize::try_from(written), before)
        && written > 0
    {
        sys::keeping_errno(|| {
            let same = old.as_ref().zip(bytes).is_some_and(|(old, new)| {
                let checked = old.len().min(written);
                // SAFETY: so many bytes were just written from there.
                old[..checked] == *unsafe { std::slice::from_raw_parts(new.cast(), checked) }
            });
            journal.written(node.ino, at, written as u64, old, same);
        });
    }
    written
}

/// Where a write goes and what stands there.
fn before_write(
    journal: &Journal,
    fd: c_int,
    node: &Node,
    len: size_t,
    at: Option<u64>,
) -> Option<(u64, Option<Vec<u8>>)> {
    let size = size_of(&sys::stat_fd(fd)?);
    journal.seen(node.ino, size);
    let at = at.unwrap_or_else(|| sys::position_of(fd, size));
    let overlap = size.saturating_sub(at).min(len as u64);
    let old = Journal::kept_len(overlap)
        .and_then(|overlap| sys::read_range(&sys::path_of(fd)?, at, overlap));
    Some((at, old))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    write_with(fd, len, None, Some(from), |len| unsafe { sys::write(fd, from, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    let position = u64::try_from(at).ok();
    // SAFETY: the caller's arguments, passed on.
    write_with(fd, len, position, Some(from), |len| unsafe { sys::pwrite(fd, from, len, at) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    unsafe { pwrite64(fd, from, len, at) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller says that there are so many.
    let all = unsafe { std::slice::from_raw_parts(parts, usize::try_from(count).unwrap_or(0)) };
    let total = all.iter().map(|part| part.iov_len).sum();
    write_with(fd, total, None, None, |len| {
        if len == total {
            // SAFETY: the caller's arguments, passed on.
            return unsafe { sys::writev(fd, parts, count) };
        }
        // A short one: the first part that has bytes, or half of it.
        let Some(part) = all.iter().find(|part| part.iov_len > 0) else { return 0 };
        // SAFETY: within the part.
        unsafe { sys::write(fd, part.iov_base, part.iov_len.min(len)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    resize(fd, Op::Truncate, len, || sys::ftruncate(fd, len))
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    ftruncate64(fd, len)
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    resize(fd, Op::Allocate, off_t::MAX, || sys::fallocate(fd, mode, at, len))
}

#[unsafe(no_mangle)]
extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    fallocate64(fd, mode, at, len)
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
    match fallocate64(fd, 0, at, len) {
        0 => 0,
        // Its result is the error.
        // SAFETY: the pointer is valid for this thread.
        _ => unsafe { *libc::__errno_location() },
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    posix_fallocate64(fd, at, len)
}

/// A call that gives a file another size; `to` is the new one, if it may be smaller.
fn resize(fd: c_int, op: Op, to: off_t, real: impl Fn() -> c_int) -> c_int {
    let Some((shim, node)) = shim().and_then(|shim| Some((shim, shim.node(fd)?))) else {
        return real();
    };
    match shim.judge(op, || sys::path_of(fd)) {
        Verdict::Fail(errno) => return fail(errno),
        Verdict::Noop => return 0,
        _ => {}
    }
    let Some(journal) = &shim.journal else { return real() };
    let Some(size) = sys::keeping_errno(|| sys::stat_fd(fd)).map(|stat| size_of(&stat)) else {
        return real();
    };
    let to = u64::try_from(to).unwrap_or(u64::MAX);
    let cut = sys::keeping_errno(|| {
        journal.seen(node.ino, size);
        let len = Journal::kept_len(size.saturating_sub(to))?;
        sys::read_range(&sys::path_of(fd)?, to, len)
    });
    let result = real();
    if result == 0 {
        sys::keeping_errno(|| {
            let now = sys::stat_fd(fd).map_or(size, |stat| size_of(&stat));
            journal.resized(node.ino, size, now, cut);
        });
    }
    result
}

/// A sync of one file or directory.
fn sync(fd: c_int, op: Op, real: impl Fn() -> c_int) -> c_int {
    let Some((shim, node)) = shim().and_then(|shim| Some((shim, shim.node(fd)?))) else {
        return real();
    };
    let verdict = shim.judge(op, || sys::path_of(fd));
    if verdict == Verdict::Noop {
        return 0;
    }
    let Some(journal) = &shim.journal else {
        return refusal(verdict).map_or_else(&real, fail);
    };
    let since = journal.since();
    let size = sys::keeping_errno(|| sys::stat_fd(fd)).map_or(0, |stat| size_of(&stat));
    if !node.is_dir {
        sys::keeping_errno(|| journal.seen(node.ino, size));
    }
    let result = refusal(verdict).map_or_else(&real, fail);
    sys::keeping_errno(|| match (result, node.is_dir) {
        (0, true) => journal.directory_synced(since, node.ino),
        (0, false) => journal.file_synced(since, node.ino, size),
        (_, true) => {}
        (_, false) => journal.sync_failed(node.ino, size),
    });
    result
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, Op::Fsync, || sys::fsync(fd))
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, Op::Fdatasync, || sys::fdatasync(fd))
}

#[unsafe(no_mangle)]
extern "C" fn syncfs(fd: c_int) -> c_int {
    let Some((shim, _)) = shim().and_then(|shim| Some((shim, shim.node(fd)?))) else {
        return sys::syncfs(fd);
    };
    let verdict = shim.judge(Op::Syncfs, || sys::path_of(fd));
    if verdict == Verdict::Noop {
        return 0;
    }
    let Some(journal) = &shim.journal else {
        return refusal(verdict).map_or_else(|| sys::syncfs(fd), fail);
    };
    let since = journal.since();
    let dirty = journal.dirty();
    let result = refusal(verdict).map_or_else(|| sys::syncfs(fd), fail);
    sys::keeping_errno(|| {
        if result == 0 {
            journal.all_synced(since, &dirty);
        } else {
            dirty.iter().for_each(|(ino, size)| journal.sync_failed(*ino, *size));
        }
    });
    result
}

unsafe fn rename_with(
    (from_dir, from): (c_int, *const c_char),
    (to_dir, to): (c_int, *const c_char),
    flags: u32,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { sys::renameat(from_dir, from, to_dir, to, flags) };
    let names = shim().and_then(|shim| {
        // SAFETY: as above.
        sys::keeping_errno(|| unsafe {
            Some((shim, Name::of(shim, from_dir, from)?, Name::of(shim, to_dir, to)?))
        })
    });
    let Some((shim, old, new)) = names else { return real() };
    match new.judge(shim, Op::Rename) {
        Verdict::Fail(errno) => return fail(errno),
        Verdict::Noop => return 0,
        _ => {}
    }
    let Some((journal, moved)) = shim.journal.as_ref().zip(old.before) else { return real() };
    let over = new.before.filter(|stat| stat.st_ino != moved.st_ino);
    let spare = sys::keeping_errno(|| {
        over.filter(|stat| !is_dir(stat)).and_then(|_| journal.spare(&new.path))
    });
    let result = real();
    sys::keeping_errno(|| {
        if result != 0 {
            return journal.discard(spare);
        }
        if !is_dir(&moved) {
            journal.seen(moved.st_ino, size_of(&moved));
        }
        let over = over.map_or(0, |stat| stat.st_ino);
        let directories = (old.parent(), new.parent());
        journal.renamed(directories, (moved.st_ino, over), (&old.name(), &new.name()), spare);
    });
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe { rename_with((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe { rename_with((from_dir, from), (to_dir, to), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe { rename_with((from_dir, from), (to_dir, to), flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { sys::unlinkat(dir, path, flags) };
    let name = shim().and_then(|shim| {
        // SAFETY: as above.
        sys::keeping_errno(|| Some((shim, unsafe { Name::of(shim, dir, path) }?)))
    });
    let Some((shim, name)) = name else { return real() };
    match name.judge(shim, Op::Unlink) {
        Verdict::Fail(errno) => return fail(errno),
        Verdict::Noop => return 0,
        _ => {}
    }
    let Some((journal, gone)) = shim.journal.as_ref().zip(name.before) else { return real() };
    let parent = name.parent();
    let spare = if is_dir(&gone) {
        None
    } else {
        sys::keeping_errno(|| {
            journal.seen(gone.st_ino, size_of(&gone));
            journal.spare(&name.path)
        })
    };
    let result = real();
    sys::keeping_errno(|| {
        if result != 0 {
            journal.discard(spare);
        } else if is_dir(&gone) {
            journal.removed(parent, gone.st_ino, &name.name());
        } else {
            journal.unlinked(parent, gone.st_ino, &name.name(), spare);
        }
    });
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { sys::mkdirat(dir, path, mode) };
    let name = shim().and_then(|shim| {
        // SAFETY: as above.
        sys::keeping_errno(|| Some((shim, unsafe { Name::of(shim, dir, path) }?)))
    });
    let Some((shim, name)) = name else { return real() };
    match name.judge(shim, Op::Mkdir) {
        Verdict::Fail(errno) => return fail(errno),
        Verdict::Noop => return fail(EIO),
        _ => {}
    }
    let result = real();
    if result == 0
        && let Some(journal) = &shim.journal
    {
        sys::keeping_errno(|| {
            if let Some(made) = sys::stat_name(&name.c_path) {
                journal.created(true, name.parent(), made.st_ino, &name.name());
            }
        });
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}
