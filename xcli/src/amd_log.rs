//! Parser for the log of the HIP runtime (`AMD_LOG_LEVEL=3` or more), which lists its hardware queues with
//! their addresses. Reading the log needs neither rights nor a server.
//!
//! Sources: `acquireQueue` and `releaseQueue` in `rocdevice.cpp`, `log_printf` in `debug.cpp` of ROCclr. Up
//! to ROCm 6.1 a line names only the `hsa_queue_t` ("created hardware queue"); since 6.2 it also names the
//! ring ("Created SWq= to map on HWq="). The line for the end of a queue names one of the two, and may be
//! repeated. The process is `us: 42   : [tid:` in 5.2 and `[pid:42    tid:` in 6.0; 6.2 writes it only from
//! level 4 on.

use anyhow::{Context as _, bail};
use serde::{Serialize, Serializer};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

/// The most bytes of a line that are kept. A message has at most 4,096.
const LONGEST: u64 = 8192;
/// The most queues of a process at a time (`KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`).
const MOST: usize = 1024;
/// Bytes of a packet; the runtime counts a queue's size in packets.
const PACKET: u64 = 64;
/// The offset of `write_dispatch_id` in an `amd_queue_t`, which begins with the `hsa_queue_t`
/// (`amd_hsa_queue.h`). The runtime passes this address to the driver when it creates the queue.
pub const WRITE_POINTER: u64 = 56;
/// The source file that writes these lines.
const SOURCE: &str = "rocdevice.cpp";

/// A queue that the runtime has created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogQueue {
    /// The address of its `hsa_queue_t`.
    pub hsa_queue: Address,
    /// The address of its ring, if the log has it.
    pub ring_address: Option<Address>,
    /// The size of its ring in bytes.
    pub size: u64,
    /// `hsa_amd_queue_priority_t`: 0 low, 1 normal, 2 high.
    pub priority: u32,
    /// True if the queue is for cooperative launches.
    pub cooperative: bool,
    /// The driver's number of the queue, if the debugger's addresses match.
    pub queue: Option<u32>,
}

/// An address in a process, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LogEvent {
    Created(LogQueue),
    /// A queue was destroyed, by one of its addresses.
    Destroyed(Address),
}

/// Reads the log of a process with these process ids (one for each pid namespace). Returns its remaining
/// queues in order of creation.
///
/// # Errors
/// The log cannot be read, or contains no queue of the process.
pub fn read(path: &Path, pids: &[u32]) -> anyhow::Result<Vec<LogQueue>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let (queues, made, others) =
        scan(BufReader::new(file), pids).with_context(|| format!("cannot read {shown}"))?;
    match (made, others) {
        (true, _) if queues.len() > MOST => {
            bail!("{shown} is not the log of one process: it has more than {MOST} queues")
        }
        (true, _) => Ok(queues),
        (false, Some(other)) => bail!("{shown} is the log of another process ({other})"),
        (false, None) => bail!(
            "{shown} contains no hardware queue: let HIP log with AMD_LOG_LEVEL=3 or more from the start of the program (if AMD_LOG_MASK is \
             set, it needs the bit 0x10)"
        ),
    }
}

/// Returns the remaining queues, true if any queue was created, and the id of another process if its lines
/// were found.
fn scan(mut from: impl BufRead, pids: &[u32]) -> io::Result<(Vec<LogQueue>, bool, Option<u32>)> {
    let (mut queues, mut made, mut others) = (Vec::<LogQueue>::new(), false, None);
    let mut line = Vec::new();
    while next_line(&mut from, &mut line)? {
        let Some((pid, event)) = parse(&line) else { continue };
        if let Some(pid) = pid.filter(|pid| !pids.contains(pid)) {
            others = Some(pid);
            continue;
        }
        match event {
            LogEvent::Created(queue) => {
                made = true;
                queues.retain(|other| other.hsa_queue != queue.hsa_queue);
                // One queue more than a process can have shows that the log is invalid.
                if queues.len() <= MOST {
                    queues.push(queue);
                }
            }
            LogEvent::Destroyed(address) => {
                queues.retain(|queue| queue.hsa_queue != address && queue.ring_address != Some(address));
            }
        }
    }
    Ok((queues, made, others))
}

/// Reads the next line, at most [`LONGEST`] bytes of it. Returns false at the end.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = from.by_ref().take(LONGEST).read_until(b'\n', line)?;
    if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
        from.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

/// Parses a line into the process id, if the line has one, and the event.
fn parse(line: &[u8]) -> Option<(Option<u32>, LogEvent)> {
    let line = String::from_utf8_lossy(line);
    let (_, line) = line.split_once(SOURCE)?;
    let find = |words: &str| line.split_once(words);
    if let Some((head, rest)) = find("created hardware queue ") {
        return Some((process(head), made(rest, false)?));
    }
    if let Some((head, rest)) = find("Created SWq=") {
        return Some((process(head), made(rest, true)?));
    }
    let (head, rest) =
        find("eleting hardware queue ").or_else(|| find("eleting CG enabled hardware queue "))?;
    Some((process(head), LogEvent::Destroyed(address(rest)?.0)))
}

/// Parses the process id in front of a message.
fn process(head: &str) -> Option<u32> {
    if let Some((_, rest)) = head.split_once("[pid:") {
        return number(rest.trim_start()).map(|(pid, _)| pid);
    }
    let (_, rest) = head.split_once("us:")?;
    let (pid, rest) = number(rest.trim_start())?;
    rest.trim_start().starts_with(':').then_some(pid)
}

/// Parses the text after "created hardware queue " or "Created SWq=".
fn made(rest: &str, with_ring: bool) -> Option<LogEvent> {
    let (hsa_queue, rest) = address(rest)?;
    let (ring_address, rest) = match with_ring {
        true => {
            let (ring, rest) = address(rest.strip_prefix(" to map on HWq=")?)?;
            (Some(ring), rest)
        }
        false => (None, rest),
    };
    let (packets, rest) = number(rest.strip_prefix(" with size ")?)?;
    // Before ROCm 4 a line ends here; 1 is the default priority of the runtime.
    let (priority, rest) = match rest.strip_prefix(" with priority ") {
        Some(rest) => number(rest)?,
        None => (1, rest),
    };
    let cooperative = rest.trim_start_matches(',').trim_start().starts_with("cooperative: 1");
    let size = u64::from(packets) * PACKET;
    Some(LogEvent::Created(LogQueue { hsa_queue, ring_address, size, priority, cooperative, queue: None }))
}

fn address(text: &str) -> Option<(Address, &str)> {
    let digits = text.strip_prefix("0x")?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    Some((Address(u64::from_str_radix(&digits[..end], 16).ok()?), &digits[end..]))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// HIP 5.2.3 on gpu-sim.
    const HIP_5_2: &str = "\
:3:rocdevice.cpp            :2682: 1071136436 us: 1872 : [tid:0x7fd4cd1ad880] number of allocated hardware queues with low priority: 0, with normal priority: 0, with high priority: 0, maximum per priority is: 4
:3:rocdevice.cpp            :2756: 1071137725 us: 1872 : [tid:0x7fd4cd1ad880] created hardware queue 0x7fd4cbe4f000 with size 4096 with priority 1, cooperative: 0
:3:rocdevice.cpp            :2756: 1071314254 us: 1872 : [tid:0x7fd4cd1ad880] created hardware queue 0x7fd4cb2a8000 with size 4096 with priority 2, cooperative: 1
:3:hip_stream.cpp           :463 : 1071385793 us: 1872 : [tid:0x7fd4cd1ad880] \x1b[32mhipStreamDestroy ( stream:0x5654333c2650 )\x1b[0m
:3:rocdevice.cpp            :2836: 1071385181 us: 1872 : [tid:0x7fd4cd1ad880] deleting hardware queue 0x7fd4cbe4f000 with refCount 0
:3:rocdevice.cpp            :2847: 1071385182 us: 1872 : [tid:0x7fd4cd1ad880] deleting hardware queue 0x7fd4cbe4f000 with refCount 0
";
    /// As `rocdevice.cpp` and `debug.cpp` of ROCm 6.1 (process and "Deleting") and 6.2 (rings; no process
    /// below level 4).
    const HIP_6_1: &str = ":3:rocdevice.cpp            :3013: 301282375932 us: [pid:1872  tid:0x7fffed309180] created hardware \
        queue 0x7fffed28e000 with size 16384 with priority 1, cooperative: 0\n";
    const HIP_6_2: &str = "\
:3:rocdevice.cpp            :3104: 8803163569 us: [pid:1872 tid: 0x14dec9d33080] Created SWq=0x14dd04c94000 to map on HWq=0x14dbfb600000 with size 16384 with priority 1, cooperative: 0
:3:rocdevice.cpp            :2951: 578897353351 us:  Created SWq=0x7f8ec8e86000 to map on HWq=0x7f8eb5c00000 with size 4096 with priority 0, cooperative: 1
:3:rocdevice.cpp            :3244: 8803163584 us:  Deleting CG enabled hardware queue 0x7f8eb5c00000 
";

    fn queue(hsa: u64, ring: Option<u64>, size: u64, priority: u32, cooperative: bool) -> LogQueue {
        let (hsa_queue, ring_address) = (Address(hsa), ring.map(Address));
        LogQueue { hsa_queue, ring_address, size, priority, cooperative, queue: None }
    }

    fn scanned(text: &str, pids: &[u32]) -> (Vec<LogQueue>, bool, Option<u32>) {
        scan(text.as_bytes(), pids).unwrap()
    }

    #[test]
    fn lines_of_each_release_are_parsed() {
        let want = vec![queue(0x7fd4_cb2a_8000, None, 256 << 10, 2, true)];
        assert_eq!(scanned(HIP_5_2, &[1872]), (want, true, None));
        let want = vec![queue(0x7fff_ed28_e000, None, 1 << 20, 1, false)];
        assert_eq!(scanned(HIP_6_1, &[7, 1872]), (want, true, None));
        let want = vec![queue(0x14dd_04c9_4000, Some(0x14db_fb60_0000), 1 << 20, 1, false)];
        assert_eq!(scanned(HIP_6_2, &[1872]), (want, true, None));
        assert_eq!(scanned(&HIP_6_2[..HIP_6_2.len() - 90], &[1872]).0.len(), 2);
    }

    #[test]
    fn lines_of_another_process_are_ignored() {
        assert_eq!(scanned(HIP_5_2, &[5]), (vec![], false, Some(1872)));
        assert_eq!(scanned(HIP_6_1, &[5]), (vec![], false, Some(1872)));
        // A line without a process id counts for this process.
        assert!(scanned(HIP_6_2, &[5]).1);
    }

    #[test]
    fn log_without_queues_is_an_error_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path, &[5]).unwrap_err().to_string()
        };
        assert!(error(":3:hip_stream.cpp: x\n").contains("contains no hardware queue"));
        assert!(error("").contains("AMD_LOG_LEVEL=3"));
        assert!(error(HIP_5_2).ends_with("is the log of another process (1872)"));
        let lines = |count: u32| {
            (0..count).map(|i| HIP_6_1.replace("7fffed28e000", &format!("{i:x}00"))).collect::<String>()
        };
        std::fs::write(&path, lines(1024)).unwrap();
        assert_eq!(read(&path, &[1872]).unwrap().len(), 1024);
        std::fs::write(&path, lines(1026)).unwrap();
        assert!(read(&path, &[1872]).unwrap_err().to_string().contains("more than 1024"));
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path, &[5]).unwrap_err().to_string().starts_with("cannot read "));
    }

    #[test]
    fn other_lines_of_the_program_are_ignored() {
        let text = "created hardware queue 0x1000 with size 64 with priority 1, cooperative: 0\n";
        assert_eq!(scanned(text, &[1]), (vec![], false, None));
        let long = format!("{}{HIP_6_1}", "x".repeat(3 * LONGEST as usize));
        assert_eq!(scanned(&long, &[1872]), (vec![], false, None));
        assert!(scanned(&format!("{}\n{HIP_6_1}", "x".repeat(3 * LONGEST as usize)), &[1872]).1);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = scan(&bytes[..], &[1]);
        }

        #[test]
        fn damaged_log_does_not_panic(
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), any::<bool>()), 1..30),
        ) {
            let mut bytes = format!("{HIP_5_2}{HIP_6_1}{HIP_6_2}").into_bytes();
            for (at, byte, cut) in damage {
                let at = at.index(bytes.len());
                if cut {
                    bytes.remove(at);
                } else {
                    bytes[at] = byte;
                }
            }
            let (queues, made, _) = scan(&bytes[..], &[1872]).unwrap();
            prop_assert!(queues.len() <= 5);
            prop_assert!(queues.is_empty() || made);
        }
    }
}
