//! The smallest client for HTTP that the cases need.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tests::HANG;

/// Asks for a path. Returns the status and the body; `None` if nobody listens.
pub fn get(address: SocketAddr, path: &str, fields: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(HANG)).expect("a time limit");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n{fields}\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Asks for a path of an interface that answers with JSON.
pub fn json(address: SocketAddr, path: &str) -> Option<Value> {
    let (_, body) = get(address, path, "")?;
    serde_json::from_str(&body).ok()
}

/// A text as a part of a query.
pub fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}
