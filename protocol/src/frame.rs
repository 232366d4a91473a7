//! Frames: how messages are told apart on a stream socket.
//!
//! A frame is a header of [`HEADER`] bytes, all little-endian, and its payload:
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 4 | [`MAGIC`] |
//! | 4 | 2 | [`VERSION`] |
//! | 6 | 2 | kind: which message the payload is |
//! | 8 | 4 | bytes of payload, at most the receiver's limit |
//!
//! A frame that breaks a rule ends its connection and nothing else. What the kinds mean is in `message.rs`.

use std::fmt;

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"GIVW";
/// The version of frames, messages and shared pages together: both sides must have the same one.
pub const VERSION: u16 = 3;
/// Bytes of a header.
pub const HEADER: usize = 12;
/// The most payload that a server takes from anybody, in bytes.
pub const REQUEST_LIMIT: usize = 4 * 1024;
/// The most payload that a server sends, in bytes: a list of all its clients' queues.
pub const REPLY_LIMIT: usize = 64 * 1024 * 1024;

/// One message, not yet understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Which message.
    pub kind: u16,
    /// Its content.
    pub payload: Vec<u8>,
}

/// Why what has come is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The first bytes are not ours: somebody else's protocol.
    Magic,
    /// The other side speaks this version.
    Version(u16),
    /// So many bytes of payload are announced.
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
    /// The bytes to send. A payload longer than 32 bits can say is a mistake of the caller's; nothing is that long.
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

/// Puts frames together from what a socket brings, piece by piece.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    limit: usize,
}

impl Decoder {
    /// One that takes at most so many bytes of payload in one frame.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// More has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if it is there whole.
    ///
    /// # Errors
    /// What has come breaks the rules. There is nothing more to be had from this connection.
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

    /// Whether everything that has come was taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_whatever_the_pieces() {
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
    fn what_is_no_frame_is_refused_as_soon_as_it_shows() {
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
