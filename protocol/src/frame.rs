//! Frames, which delimit messages on a stream socket.
//!
//! A frame is a header of [`HEADER`] bytes, all little-endian, and its payload:
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 2 | [`VERSION`] |
//! | 6 | 2 | kind of the message in the payload |
//! | 8 | 4 | bytes of payload, at most the receiver's limit |
//!
//! A frame that breaks a rule ends its connection and nothing else. `message.rs` defines the kinds.

use std::fmt;

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"GIVW";
/// The common version of frames, messages and shared pages. Both sides must have the same one.
pub const VERSION: u16 = 3;
/// Bytes of a header.
pub const HEADER: usize = 12;
/// Most bytes of payload that a server accepts.
pub const REQUEST_LIMIT: usize = 4 * 1024;
/// Most bytes of payload that a server sends: a list of the queues of all its clients.
pub const REPLY_LIMIT: usize = 64 * 1024 * 1024;

/// One message before decoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the message.
    pub kind: u16,
    /// Content of the message.
    pub payload: Vec<u8>,
}

/// The reason why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The first bytes belong to another protocol.
    Magic,
    /// The peer uses this version.
    Version(u16),
    /// The header announces this many bytes of payload, more than the limit.
    Length(u32),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("what comes are no frames of giveway"),
            Self::Version(theirs) => {
                write!(f, "the other side speaks version {theirs} of the protocol, this one {VERSION}")
            }
            Self::Length(length) => write!(f, "a frame of {length} bytes is too long"),
        }
    }
}

impl std::error::Error for FrameError {}

impl Frame {
    /// Returns the bytes to send. The payload must be shorter than 4 GiB.
    pub fn encode(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }
}

/// Assembles frames from the pieces that a socket delivers.
///
/// ```
/// use protocol::frame::{Decoder, Frame, REQUEST_LIMIT};
///
/// let bytes = Frame::encode(7, b"abc");
/// let mut decoder = Decoder::new(REQUEST_LIMIT);
/// decoder.push(&bytes[..5]);
/// assert_eq!(decoder.next_frame(), Ok(None));
/// decoder.push(&bytes[5..]);
/// assert_eq!(decoder.next_frame(), Ok(Some(Frame { kind: 7, payload: b"abc".to_vec() })));
/// ```
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    limit: usize,
}

impl Decoder {
    /// Creates a decoder that accepts at most `limit` bytes of payload in one frame.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, or `None` if it is not complete yet.
    ///
    /// # Errors
    /// The received bytes break a rule. The connection cannot deliver any further frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let known = self.bytes.len().min(MAGIC.len());
        if self.bytes[..known] != MAGIC[..known] {
            return Err(FrameError::Magic);
        }
        let Some(&[_, _, _, _, v0, v1, k0, k1, l0, l1, l2, l3]) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let announced = u32::from_le_bytes([l0, l1, l2, l3]);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(FrameError::Length(announced));
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(HEADER + length);
        let mut payload = std::mem::replace(&mut self.bytes, rest);
        payload.drain(..HEADER);
        Ok(Some(Frame { kind: u16::from_le_bytes([k0, k1]), payload }))
    }

    /// Returns true if no received bytes are left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_pieces_of_any_size_are_assembled() {
        let sent =
            [Frame::encode(1, b""), Frame::encode(7, b"abc"), Frame::encode(u16::MAX, &[0; 300])].concat();
        for piece in [1, 2, 11, 13, sent.len()] {
            let mut decoder = Decoder::new(REQUEST_LIMIT);
            let mut got = Vec::new();
            for bytes in sent.chunks(piece) {
                decoder.push(bytes);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push((frame.kind, frame.payload));
                }
            }
            assert_eq!(got, [(1, vec![]), (7, b"abc".to_vec()), (u16::MAX, vec![0; 300])]);
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn invalid_frame_is_refused_at_its_first_wrong_byte() {
        let refused = |bytes: &[u8]| {
            let mut decoder = Decoder::new(16);
            decoder.push(bytes);
            decoder.next_frame().unwrap_err()
        };
        assert_eq!(refused(b"GET / HTTP/1.1"), FrameError::Magic);
        assert_eq!(refused(b"GIX"), FrameError::Magic);
        let mut other = Frame::encode(1, b"");
        other[4] = 9;
        assert_eq!(refused(&other), FrameError::Version(9));
        assert_eq!(refused(&Frame::encode(1, &[0; 17])[..HEADER]), FrameError::Length(17));
    }
}
