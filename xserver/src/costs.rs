//! The cost of evicting queues, as measured by clients. The server keeps it in memory, shows it on every
//! client's page, and saves it in a file beside the socket for the next server.
//!
//! A client that finds a cost does not measure, which would stop other programs' queues briefly. Without the
//! file the next program measures again.

use crate::pages::Pages;
use anyhow::{Context as _, Result, ensure};
use protocol::cost::{COSTS, CostKey, EvictCost};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use tracing::{debug, warn};

/// A file whose content changes with each boot (random(4)).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The version of the file; other versions are not read.
const VERSION: u32 = 1;
/// The most bytes of the file.
const LONGEST: u64 = 64 * 1024;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// The id of the boot. Costs of an earlier boot may be wrong.
    boot: String,
    costs: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    key: CostKey,
    hold_ns: u64,
    release_ns: u64,
}

/// The known costs, the oldest first.
#[derive(Debug)]
pub(crate) struct Costs {
    path: PathBuf,
    /// The id of this boot. Without it the file is not used.
    boot: Option<String>,
    known: Vec<(CostKey, EvictCost)>,
    /// True if the file is out of date.
    changed: bool,
    /// The thread that writes the file, once started.
    writer: Option<Writer>,
}

/// A thread that writes the file, so that a slow disk does not delay decisions.
#[derive(Debug)]
struct Writer {
    kept: SyncSender<Kept>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(path: PathBuf) -> std::io::Result<Self> {
        let (kept, all) = sync_channel::<Kept>(1);
        let thread = thread::Builder::new().name("costs".to_owned()).spawn(move || {
            let mut has_warned = false;
            for kept in all {
                if let Err(error) = write(&path, &kept)
                    && !std::mem::replace(&mut has_warned, true)
                {
                    warn!("{error:#}; after a restart of the server, programs measure the cost of eviction again");
                }
            }
        })?;
        Ok(Self { kept, thread })
    }
}

impl Costs {
    /// Loads the costs of the last server at this socket.
    pub fn load(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".costs");
        let boot = fs::read_to_string(BOOT).ok().map(|boot| boot.trim().to_owned());
        Self::load_for(PathBuf::from(path), boot)
    }

    fn load_for(path: PathBuf, boot: Option<String>) -> Self {
        let known = boot.as_ref().and_then(|boot| match read(&path) {
            Ok(kept) => kept.filter(|kept| kept.boot == *boot),
            Err(error) => {
                debug!("{error:#}; programs measure the cost of eviction again");
                None
            }
        });
        let rows = known.map(|kept| kept.costs).unwrap_or_default().into_iter();
        let known = rows.filter_map(|row| Some((row.key, EvictCost::new(row.hold_ns, row.release_ns)?)));
        let known = known.take(COSTS).collect();
        Self { path, boot, known, changed: false, writer: None }
    }

    /// Keeps a cost that a client has measured, or removes one that is wrong. Returns true if this is a
    /// change.
    pub fn keep(&mut self, key: CostKey, cost: Option<EvictCost>) -> bool {
        let index = self.known.iter().position(|(known, _)| *known == key);
        let known = index.map(|index| self.known[index].1);
        if known == cost {
            return false;
        }
        match (index, cost) {
            // The index stays, on the pages as well.
            (Some(index), Some(cost)) => self.known[index].1 = cost,
            (Some(index), None) => drop(self.known.remove(index)),
            (None, Some(cost)) => {
                if self.known.len() == COSTS {
                    self.known.remove(0);
                }
                self.known.push((key, cost));
            }
            (None, None) => return false,
        }
        self.changed = true;
        true
    }

    /// Shows the costs to a client.
    pub fn show(&self, pages: &Pages) {
        pages.show_costs(&self.known);
    }

    /// Writes the file on the thread, if it is out of date and the thread is free.
    pub fn save(&mut self) {
        let Some(boot) = self.boot.clone().filter(|_| self.changed) else { return };
        if self.writer.is_none() {
            match Writer::start(self.path.clone()) {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => debug!(%error, "cannot start the thread that writes the file of costs"),
            }
        }
        let Some(writer) = &self.writer else { return };
        let costs = self.known.iter().map(|(key, cost)| Row {
            key: *key,
            hold_ns: cost.hold_ns(),
            release_ns: cost.release_ns(),
        });
        let kept = Kept { version: VERSION, boot, costs: costs.collect() };
        self.changed = writer.kept.try_send(kept).is_err();
    }

    /// Writes the file, and waits for it. For the end of the server.
    pub fn finish(&mut self) {
        self.end_writer();
        self.save();
        self.end_writer();
    }

    fn end_writer(&mut self) {
        if let Some(Writer { kept, thread }) = self.writer.take() {
            drop(kept);
            let _ = thread.join();
        }
    }

    /// Stops using the file, because another server uses it.
    pub fn abandon(&mut self) {
        self.boot = None;
    }
}

/// Reads the file, if it exists.
fn read(path: &Path) -> Result<Option<Kept>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()).map_err(std::io::Error::from) {
        Ok(file) => File::from(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let metadata = file.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    let own = rustix::process::geteuid().as_raw();
    ensure!(
        metadata.is_file() && metadata.uid() == own && metadata.len() <= LONGEST,
        "{} does not belong to this server",
        path.display()
    );
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    let kept: Kept =
        serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
    ensure!(kept.version == VERSION, "{} has version {}, not {VERSION}", path.display(), kept.version);
    Ok(Some(kept))
}

/// Replaces the file as a whole, so that no reader finds a part of it.
fn write(path: &Path, kept: &Kept) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A server that was killed may have left it. A file of another kind is replaced, not written to.
    let _ = fs::remove_file(&new);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&new, flags, Mode::RUSR | Mode::WUSR).with_context(cannot)?;
    let mut bytes = serde_json::to_vec(kept).with_context(cannot)?;
    bytes.push(b'\n');
    let written = File::from(file).write_all(&bytes).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new))).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::Pid;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn key(number: u64) -> CostKey {
        CostKey::new(number).expect("not 0")
    }

    fn boot() -> Option<String> {
        Some("this".to_owned())
    }

    #[test]
    fn costs_of_this_boot_are_loaded_by_the_next_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.costs");
        let mut costs = Costs::load_for(path.clone(), boot());
        let cost = EvictCost::new(70_000, 50_000);
        assert!(costs.keep(key(7), cost) && !costs.keep(key(7), cost));
        assert!(costs.keep(key(8), cost) && costs.keep(key(8), None) && !costs.keep(key(8), None));
        costs.finish();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Costs::load_for(path.clone(), boot()).known, [(key(7), cost.unwrap())]);
        assert_eq!(Costs::load_for(path.clone(), Some("another".to_owned())).known, []);
        assert_eq!(Costs::load_for(path, None).known, []);
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "no other file is left");
    }

    #[test]
    fn oldest_cost_is_dropped_when_full() {
        let folder = tempfile::tempdir().unwrap();
        let mut costs = Costs::load_for(folder.path().join("s.costs"), boot());
        for number in 1..=COSTS as u64 + 1 {
            assert!(costs.keep(key(number), EvictCost::new(number, 1)));
        }
        assert_eq!((costs.known.len(), costs.known[0].0), (COSTS, key(2)));
        let (pages, _descriptors) = Pages::new(Pid(0)).unwrap();
        costs.show(&pages);
        assert_eq!((pages.cost(key(2)), pages.cost(key(1))), (EvictCost::new(2, 1), None));
        costs.keep(key(2), None);
        costs.show(&pages);
        assert_eq!((pages.cost(key(2)), pages.cost(key(3))), (None, EvictCost::new(3, 1)));
    }

    #[test]
    fn foreign_file_is_neither_read_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.costs");
        let other = folder.path().join("other");
        for text in ["", "{", "{\"version\":2,\"boot\":\"this\",\"costs\":[]}", &"x".repeat(70_000)] {
            fs::write(&path, text).unwrap();
            assert_eq!(Costs::load_for(path.clone(), boot()).known, [], "{text:.20}");
        }
        fs::write(&other, "mine").unwrap();
        fs::remove_file(&path).unwrap();
        for link in [path.clone(), folder.path().join("s.costs.new")] {
            symlink(&other, link).unwrap();
        }
        let mut costs = Costs::load_for(path.clone(), boot());
        costs.keep(key(7), EvictCost::new(1, 1));
        costs.finish();
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        assert_eq!(Costs::load_for(path.clone(), boot()).known.len(), 1, "the link is replaced");
        // A directory cannot be replaced; the server goes on.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        costs.keep(key(8), EvictCost::new(1, 1));
        costs.finish();
        assert!(path.is_dir());
    }
}
