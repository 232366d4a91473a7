//! What connections send that are no library: the frames are written by hand.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::bed::Bed;
use crate::faults::stage::{Outcome, Trouble};

/// The version of the protocol.
const VERSION: u16 = 3;
/// The priority of the low program, which then runs beside it.
const PRIORITY: i32 = 1;
/// The bytes of a client's page.
const PAGE: u64 = 256 * 1024;
/// Connections that are left open at a time; the server closes each after 10 s.
const OPEN: usize = 16;
/// How long something that must come may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn connect(bed: &Bed<'_>) -> Outcome<UnixStream> {
    let socket =
        UnixStream::connect(bed.stage.socket()).map_err(|error| format!("cannot connect: {error}"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| format!("no time limit: {error}"))?;
    Ok(socket)
}

/// A frame.
fn frame(version: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0);
    [b"GIVW", &version.to_le_bytes()[..], &kind.to_le_bytes(), &length.to_le_bytes(), payload].concat()
}

/// A hello with the name `guest`.
fn hello(version: u16) -> Vec<u8> {
    frame(version, 1, &[&1_u32.to_le_bytes()[..], &[5], b"guest"].concat())
}

/// Connections that send a part of a frame, some of which stay.
pub fn half_open(bed: &mut Bed<'_>) -> Outcome<()> {
    for _ in 0..8 {
        let mut socket = connect(bed)?;
        let hello = hello(VERSION);
        let part = bed.dice.below(hello.len() as u64) as usize;
        // The server may have closed it.
        let _ = socket.write_all(&hello[..part]);
        bed.open.push(socket);
    }
    let more = bed.open.len().saturating_sub(OPEN);
    bed.open.drain(..more);
    Ok(())
}

/// The server refuses each.
pub fn wrong_versions(bed: &mut Bed<'_>) -> Outcome<()> {
    for _ in 0..16 {
        let version = bed.dice.below(1 << 16) as u16;
        if version == VERSION {
            continue;
        }
        let mut socket = connect(bed)?;
        let _ = socket.write_all(&hello(version));
        let mut bytes = Vec::new();
        match socket.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(Trouble::Wrong(format!("version {version} is not refused: {error}"))),
        }
        // The kind of a refusal.
        if bytes.len() >= 8 && bytes[6..8] != [2, 1] {
            return Err(Trouble::Wrong(format!("version {version} is answered by {bytes:?}")));
        }
    }
    Ok(())
}

/// A client that writes anything on its page and notifies the server all the time.
pub fn scribbled_page(bed: &mut Bed<'_>) -> Outcome<()> {
    let mut socket = connect(bed)?;
    let wrong = |error: std::io::Error| format!("the server does not take a guest: {error}");
    socket.write_all(&hello(VERSION)).map_err(wrong)?;
    let [_, page, notifier] = welcome(&socket)?;
    for slot in 0..4_u32 {
        let queue = u64::from(slot) + 1;
        let created = [
            &queue.to_le_bytes()[..],
            &slot.to_le_bytes(),
            &1_u32.to_le_bytes(),
            &PRIORITY.to_le_bytes(),
            &1_i32.to_le_bytes(),
        ];
        socket.write_all(&frame(VERSION, 2, &created.concat())).map_err(wrong)?;
    }
    let page = File::from(page);
    let until = Instant::now() + Duration::from_millis(bed.dice.below(200));
    while Instant::now() < until {
        for _ in 0..64 {
            let near = bed.dice.below(2) == 0;
            let offset = bed.dice.below(if near { 512 } else { PAGE } / 8) * 8;
            let word = bed.dice.below(u64::MAX);
            // Its size is sealed, so this fits.
            let _ = page.write_all_at(&word.to_le_bytes(), offset);
        }
        // A full counter refuses.
        let _ = rustix::io::write(&notifier, &1_u64.to_ne_bytes());
    }
    Ok(())
}

/// The server's page, the client's page and the eventfd.
fn welcome(socket: &UnixStream) -> Outcome<[OwnedFd; 3]> {
    let mut bytes = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    got.map_err(|error| format!("no welcome: {error}"))?;
    let all = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(some) => some.collect(),
        _ => Vec::new(),
    });
    let all: Vec<OwnedFd> = all.collect();
    all.try_into().map_err(|_| Trouble::Wrong(format!("no welcome but {:?}", &bytes[..16])))
}
