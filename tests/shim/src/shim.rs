//! The state of the preloaded library: what is looked at, the rules, the journal, and what each descriptor stands for.

use std::ffi::CString;
use std::sync::{Arc, OnceLock, RwLock};

use libc::{c_int, stat64};

use crate::control::{Control, Op, Verdict};
use crate::journal::Journal;
use crate::sys;

/// Descriptors above are not looked at.
const DESCRIPTORS_MAX: usize = 1 << 16;

pub(crate) struct Shim {
    roots: Vec<Vec<u8>>,
    control: Option<Control>,
    pub(crate) journal: Option<Journal>,
    descriptors: RwLock<Vec<Descriptor>>,
}

/// What a descriptor stands for.
#[derive(Clone, Default)]
enum Descriptor {
    #[default]
    Unknown,
    /// A socket, or a file outside the roots.
    Foreign,
    Ours(Arc<Node>),
}

/// A file or directory below a root.
pub(crate) struct Node {
    pub(crate) ino: u64,
    pub(crate) is_dir: bool,
}

/// The library's state; `None` if it has nothing to do.
pub(crate) fn shim() -> Option<&'static Shim> {
    static SHIM: OnceLock<Option<Shim>> = OnceLock::new();
    SHIM.get_or_init(|| sys::keeping_errno(Shim::from_environment)).as_ref()
}

impl Shim {
    fn from_environment() -> Option<Self> {
        let roots = std::env::var("BARNABAS_SHIM_ROOTS").ok()?;
        let control = std::env::var("BARNABAS_SHIM_CONTROL").ok();
        let journal = std::env::var("BARNABAS_SHIM_JOURNAL").ok();
        let roots: Vec<Vec<u8>> =
            roots.split(':').map(|root| root.trim_end_matches('/').into()).collect();
        Some(Self {
            control: control.and_then(|path| Control::open(&CString::new(path).ok()?)),
            journal: journal.and_then(|path| Journal::open(&path, &roots)),
            roots,
            descriptors: RwLock::new(Vec::new()),
        })
    }

    /// Whether a path is a root or below one.
    pub(crate) fn is_ours(&self, path: &[u8]) -> bool {
        self.roots.iter().any(|root| {
            path.strip_prefix(root.as_slice())
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    pub(crate) fn judge(&self, op: Op, path: impl Fn() -> Option<Vec<u8>>) -> Verdict {
        match &self.control {
            Some(control) => sys::keeping_errno(|| control.judge(op, path)),
            None => Verdict::Pass,
        }
    }

    /// What a descriptor stands for, if it is ours.
    pub(crate) fn node(&self, fd: c_int) -> Option<Arc<Node>> {
        let index = usize::try_from(fd).ok().filter(|index| *index < DESCRIPTORS_MAX)?;
        {
            let descriptors =
                self.descriptors.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            match descriptors.get(index) {
                Some(Descriptor::Ours(node)) => return Some(node.clone()),
                Some(Descriptor::Foreign) => return None,
                _ => {}
            }
        }
        let found = sys::keeping_errno(|| self.classify(fd));
        let node = if let Descriptor::Ours(node) = &found { Some(node.clone()) } else { None };
        self.note(index, found);
        node
    }

    fn classify(&self, fd: c_int) -> Descriptor {
        let Some(stat) = sys::stat_fd(fd) else { return Descriptor::Unknown };
        let is_dir = is_dir(&stat);
        if !is_dir && stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Descriptor::Foreign;
        }
        match sys::path_of(fd) {
            Some(path) if self.is_ours(&path) => {
                Descriptor::Ours(Arc::new(Node { ino: stat.st_ino, is_dir }))
            }
            _ => Descriptor::Foreign,
        }
    }

    fn note(&self, index: usize, descriptor: Descriptor) {
        let mut descriptors =
            self.descriptors.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if descriptors.len() <= index {
            if matches!(descriptor, Descriptor::Unknown) {
                return;
            }
            descriptors.resize(index + 1, Descriptor::Unknown);
        }
        descriptors[index] = descriptor;
    }

    /// The descriptor may stand for something else from now on.
    pub(crate) fn forget(&self, fd: c_int) {
        if let Ok(index) = usize::try_from(fd)
            && index < DESCRIPTORS_MAX
        {
            self.note(index, Descriptor::Unknown);
        }
    }
}

pub(crate) fn is_dir(stat: &stat64) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

pub(crate) fn size_of(stat: &stat64) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
