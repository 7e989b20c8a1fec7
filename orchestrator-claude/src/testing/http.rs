//! As much of HTTP/1.1 as one request and one answer on a connection need.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longest line of a request's head, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Longest body, in bytes.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How long a request may take to come.
const READ_WITHIN: Duration = Duration::from_secs(600);
/// Most lines in a request's head.
const HEADERS_MAX: usize = 256;

pub(super) struct Received {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

/// Reads a request; `None` when the connection was closed without one.
pub(super) fn read(stream: &TcpStream) -> io::Result<Option<Received>> {
    stream.set_read_timeout(Some(READ_WITHIN))?;
    let mut reader = BufReader::new(stream);
    let first = line(&mut reader)?;
    let mut words = first.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut length = 0;
    for _ in 0..HEADERS_MAX {
        let header = line(&mut reader)?;
        if header.is_empty() {
            let mut body = Vec::new();
            reader.take(length).read_to_end(&mut body)?;
            return Ok(Some(Received { method, path, body }));
        }
        let (name, value) = header.split_once(':').unwrap_or((&header, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0).min(BODY_BYTES_MAX);
        }
    }
    Err(io::Error::other("the head of the request is too long"))
}

fn line(reader: &mut BufReader<&TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

pub(super) fn write_head(
    to: &mut impl Write,
    status: u16,
    kind: &str,
    headers: &[(String, String)],
) -> io::Result<()> {
    write!(to, "HTTP/1.1 {status} Stand-In\r\ncontent-type: {kind}\r\nconnection: close\r\n")?;
    for (name, value) in headers {
        write!(to, "{name}: {value}\r\n")?;
    }
    Ok(())
}

pub(super) fn write_json(
    to: &mut impl Write,
    status: u16,
    headers: &[(String, String)],
    body: &Value,
) -> io::Result<()> {
    write_body(to, (status, "application/json"), headers, &body.to_string())
}

pub(super) fn write_body(
    to: &mut impl Write,
    (status, kind): (u16, &str),
    headers: &[(String, String)],
    body: &str,
) -> io::Result<()> {
    write_head(to, status, kind, headers)?;
    write!(to, "content-length: {}\r\n\r\n{body}", body.len())?;
    to.flush()
}
