//! A disk that loses what was not synced: for tests.
//!
//! The files are real; beside them lies, in memory, what of them is durable. [`Forgetting::power_cut`] makes of the directory
//! one that a loss of power may leave: of each file the unsynced bytes are there, gone, or torn at sectors; of each
//! directory's unsynced names the first so many are there. (Names of one directory reach the disk in their order: so it is in
//! the journals of ext4, XFS and btrfs.)

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::random::Random;
use crate::disk::{Disk, Faults, Op, Verdict};

/// Bytes that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// Number of a file or directory.
type Id = usize;
type Names = BTreeMap<OsString, Id>;

#[derive(Debug)]
enum Node {
    File { durable: Vec<u8>, current: Vec<u8> },
    Dir { durable: Names, current: Names, unsynced: Vec<Change> },
}

/// A change of a directory's names.
#[derive(Clone, Debug)]
enum Change {
    Link(OsString, Id),
    Unlink(OsString),
    Rename(OsString, OsString),
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }
}

/// What the files of one directory are, and what of them is durable.
#[derive(Debug)]
pub struct Forgetting {
    root: PathBuf,
    /// The first is the root directory.
    nodes: Mutex<Vec<Node>>,
    lies: AtomicBool,
}

impl Forgetting {
    /// Watches a directory; all that is in it now is durable.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn new(root: &Path) -> Arc<Self> {
        let mut nodes = Vec::new();
        load(root, &mut nodes);
        let lies = AtomicBool::new(false);
        Arc::new(Self { root: root.to_owned(), nodes: Mutex::new(nodes), lies })
    }

    /// The disk to hand to [`crate::LogDir::lock_on`].
    #[must_use]
    pub fn disk(self: &Arc<Self>) -> Disk {
        Disk::with_faults(Arc::<Self>::clone(self))
    }

    /// From now on every sync reports success and does nothing: a disk (or a program) that lies. For negative controls.
    pub fn lie(&self) {
        self.lies.store(true, Ordering::Relaxed);
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails: rewrites the directory as `seed` chooses among the states that may be left. Whoever has files open in
    /// it (also the lock file) must have dropped them before.
    ///
    /// # Panics
    /// If the directory cannot be rewritten.
    pub fn power_cut(&self, seed: u64) {
        let mut random = Random(seed);
        let mut nodes = self.nodes();
        for entry in fs::read_dir(&self.root).expect("the directory") {
            let path = entry.expect("an entry").path();
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.expect("an old file goes");
        }
        restore(&nodes, 0, &self.root, &mut random);
        nodes.clear();
        load(&self.root, &mut nodes);
    }

    fn names(&self, path: &Path) -> Option<Vec<OsString>> {
        let below = path.strip_prefix(&self.root).ok()?;
        Some(below.components().map(|c| c.as_os_str().to_owned()).collect())
    }

    fn id(nodes: &[Node], names: &[OsString]) -> Option<Id> {
        names.iter().try_fold(0, |id, name| match &nodes[id] {
            Node::Dir { current, .. } => current.get(name).copied(),
            Node::File { .. } => None,
        })
    }

    fn find(&self, nodes: &[Node], path: &Path) -> Option<Id> {
        Self::id(nodes, &self.names(path)?)
    }

    /// The directory that holds a path, and its name there.
    fn parent(&self, nodes: &[Node], path: &Path) -> Option<(Id, OsString)> {
        let mut names = self.names(path)?;
        let name = names.pop()?;
        Some((Self::id(nodes, &names)?, name))
    }

    fn change(nodes: &mut [Node], dir: Id, change: Change) {
        if let Node::Dir { current, unsynced, .. } = &mut nodes[dir] {
            change.apply(current);
            unsynced.push(change);
        }
    }

    fn link(&self, nodes: &mut Vec<Node>, path: &Path, node: Node) {
        if let Some((dir, name)) = self.parent(nodes, path) {
            nodes.push(node);
            let id = nodes.len() - 1;
            Self::change(nodes, dir, Change::Link(name, id));
        }
    }

    fn unlink_below(nodes: &mut Vec<Node>, id: Id) {
        if let Node::Dir { current, .. } = &nodes[id] {
            for (name, below) in current.clone() {
                Self::unlink_below(nodes, below);
                Self::change(nodes, id, Change::Unlink(name));
            }
        }
    }

    fn sync(node: &mut Node) {
        match node {
            Node::File { durable, current } => durable.clone_from(current),
            Node::Dir { durable, current, unsynced } => {
                durable.clone_from(current);
                unsynced.clear();
            }
        }
    }

    fn with_file(&self, nodes: &mut [Node], path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(id) = self.find(nodes, path)
            && let Node::File { current, .. } = &mut nodes[id]
        {
            change(current);
        }
    }
}

impl Faults for Forgetting {
    fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        if !matches!(op, Op::SyncData(_) | Op::SyncDir(_) | Op::SyncFilesystem(_)) {
            return Ok(Verdict::Perform);
        }
        if !self.lies.load(Ordering::Relaxed) {
            let nodes = &mut *self.nodes();
            match *op {
                Op::SyncData(path) | Op::SyncDir(path) => {
                    if let Some(id) = self.find(nodes, path) {
                        Self::sync(&mut nodes[id]);
                    }
                }
                _ => nodes.iter_mut().for_each(Self::sync),
            }
        }
        // What is durable is known here; the real disk need not be bothered.
        Ok(Verdict::Pretend)
    }

    fn after(&self, op: &Op<'_>) {
        let nodes = &mut *self.nodes();
        match *op {
            Op::Create { path, truncate } => {
                if self.find(nodes, path).is_none() {
                    self.link(nodes, path, Node::File { durable: Vec::new(), current: Vec::new() });
                } else if truncate {
                    self.with_file(nodes, path, Vec::clear);
                }
            }
            Op::CreateDir(path) => {
                let (durable, current) = (Names::new(), Names::new());
                self.link(nodes, path, Node::Dir { durable, current, unsynced: Vec::new() });
            }
            Op::Write { path, position, bytes } => self.with_file(nodes, path, |file| {
                let from = usize::try_from(position).expect("a small file");
                let end = from + bytes.len();
                file.resize(file.len().max(end), 0);
                file[from..end].copy_from_slice(bytes);
            }),
            Op::SetLen { path, len } => self.with_file(nodes, path, |file| {
                file.resize(usize::try_from(len).expect("a small file"), 0);
            }),
            Op::Open(_) | Op::SyncData(_) | Op::SyncDir(_) | Op::SyncFilesystem(_) => {}
            Op::Rename { from, to } => {
                let (Some(old), Some(new)) = (self.parent(nodes, from), self.parent(nodes, to))
                else {
                    return;
                };
                if old.0 == new.0 {
                    Self::change(nodes, old.0, Change::Rename(old.1, new.1));
                } else if let Some(id) = self.find(nodes, from) {
                    Self::change(nodes, new.0, Change::Link(new.1, id));
                    Self::change(nodes, old.0, Change::Unlink(old.1));
                }
            }
            Op::Remove(path) => {
                if let Some((dir, name)) = self.parent(nodes, path) {
                    Self::change(nodes, dir, Change::Unlink(name));
                }
            }
            Op::RemoveDirAll(path) => {
                if let (Some(id), Some((dir, name))) =
                    (self.find(nodes, path), self.parent(nodes, path))
                {
                    Self::unlink_below(nodes, id);
                    Self::change(nodes, dir, Change::Unlink(name));
                }
            }
        }
    }
}

/// Takes the files below `path` as durable; returns the number of its directory.
fn load(path: &Path, nodes: &mut Vec<Node>) -> Id {
    let id = nodes.len();
    let (durable, current) = (Names::new(), Names::new());
    nodes.push(Node::Dir { durable, current, unsynced: Vec::new() });
    let mut names = Names::new();
    for entry in fs::read_dir(path).expect("a directory") {
        let entry = entry.expect("an entry");
        let below = if entry.path().is_dir() {
            load(&entry.path(), nodes)
        } else {
            let durable = fs::read(entry.path()).expect("a file");
            nodes.push(Node::File { current: durable.clone(), durable });
            nodes.len() - 1
        };
        names.insert(entry.file_name(), below);
    }
    nodes[id] = Node::Dir { durable: names.clone(), current: names, unsynced: Vec::new() };
    id
}

/// Writes what a loss of power leaves of a node.
fn restore(nodes: &[Node], id: Id, path: &Path, random: &mut Random) {
    match &nodes[id] {
        Node::File { durable, current } => {
            fs::write(path, torn(durable, current, random)).expect("a file is written");
        }
        Node::Dir { durable, unsynced, .. } => {
            fs::create_dir_all(path).expect("a directory is made");
            let mut names = durable.clone();
            let kept = random.below(unsynced.len() + 1);
            unsynced[..kept].iter().for_each(|change| change.apply(&mut names));
            for (name, below) in names {
                restore(nodes, below, &path.join(name), random);
            }
        }
    }
}

/// One of the contents that a file may have whose durable bytes are `old` and whose last bytes were `new`.
fn torn(old: &[u8], new: &[u8], random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => return old.to_vec(),
        1 => return new.to_vec(),
        _ => {}
    }
    let (shorter, longer) = (old.len().min(new.len()), old.len().max(new.len()));
    let length = match random.below(4) {
        0 => old.len(),
        1 => new.len(),
        _ => shorter + random.below(longer - shorter + 1),
    };
    // Mostly little is lost, or little is there.
    let odds = [1, 4, 7][random.below(3)];
    let mut out = vec![0; length];
    for (number, sector) in out.chunks_mut(SECTOR_BYTES).enumerate() {
        let source = if random.below(8) < odds { old } else { new };
        let from = (number * SECTOR_BYTES).min(source.len());
        let part = &source[from..(from + sector.len()).min(source.len())];
        sector[..part.len()].copy_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    /// What the states of many cuts have in common, and in what they differ.
    fn outcomes(prepare: impl Fn(&Disk, &Path)) -> Vec<BTreeMap<String, Vec<u8>>> {
        let mut all = Vec::new();
        for seed in 0..200 {
            let temp = TempDir::in_memory("forgetting");
            let forgetting = Forgetting::new(temp.path());
            prepare(&forgetting.disk(), temp.path());
            forgetting.power_cut(seed);
            let files = fs::read_dir(temp.path()).unwrap().map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read(path).unwrap())
            });
            all.push(files.collect());
        }
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn synced_bytes_under_synced_names_stay_and_all_else_may_go() {
        let all = outcomes(|disk, root| {
            let file = disk.create(&root.join("a")).unwrap();
            file.write_all_at(&[1; 700], 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(root).unwrap();
            file.write_all_at(&[2; 2000], 700).unwrap();
        });
        assert!(all.iter().all(|files| files["a"][..512] == [1; 512]));
        assert!(all.iter().all(|files| files["a"].len() >= 700));
        assert!(all.iter().any(|files| files["a"] == [1; 700]));
        assert!(all.iter().any(|files| files["a"].len() == 2700 && files["a"][700..] == [2; 2000]));
        let torn = |bytes: &[u8]| bytes.len() > 700 && bytes[700..].contains(&0);
        assert!(all.iter().any(|files| torn(&files["a"])));
    }

    #[test]
    fn unsynced_names_may_be_missing_in_their_order_and_renames_are_whole() {
        let all = outcomes(|disk, root| {
            for name in ["old", "new"] {
                let file = disk.create(&root.join(name)).unwrap();
                file.write_all_at(name.as_bytes(), 0).unwrap();
                file.sync_data().unwrap();
            }
            disk.sync_dir(root).unwrap();
            disk.rename(&root.join("new"), &root.join("old")).unwrap();
            disk.create(&root.join("later")).unwrap();
        });
        let names: Vec<Vec<&str>> =
            all.iter().map(|files| files.keys().map(String::as_str).collect()).collect();
        assert_eq!(names, [vec!["later", "old"], vec!["new", "old"], vec!["old"]]);
        assert!(all.iter().all(|files| files["old"] == b"old" || !files.contains_key("new")));
        assert!(all.iter().all(|files| files["old"] == b"new" || files.contains_key("new")));
    }

    #[test]
    fn a_removed_file_may_come_back_with_its_content() {
        let all = outcomes(|disk, root| {
            let file = disk.create(&root.join("a")).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(root).unwrap();
            disk.remove_file(&root.join("a")).unwrap();
        });
        assert_eq!(all.len(), 2);
        assert_eq!(all[1]["a"], b"x");
    }

    #[test]
    fn a_lie_makes_nothing_durable() {
        let gone = (0..20).any(|seed| {
            let temp = TempDir::new("lie");
            let forgetting = Forgetting::new(temp.path());
            forgetting.lie();
            let (disk, path) = (forgetting.disk(), temp.path().join("a"));
            disk.create(&path).unwrap().sync_data().unwrap();
            disk.sync_dir(temp.path()).unwrap();
            forgetting.power_cut(seed);
            !path.exists()
        });
        assert!(gone);
    }
}
