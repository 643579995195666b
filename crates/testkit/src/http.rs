//! As much of HTTP/1.1 as the stand-ins need. Knows nothing of models and forges.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) struct StandInRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl StandInRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// One answer that is not streamed.
pub(crate) struct StandInReply {
    pub(crate) status: u64,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl StandInReply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::error(200, body)
    }

    pub(crate) fn error(status: u64, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }
}

pub(crate) struct StandInConnection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    over: bool,
}

impl StandInConnection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), writer: stream, over: false })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The next request; none when the client has gone.
    pub(crate) fn next(&mut self) -> io::Result<Option<StandInRequest>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let (mut length, mut chunked) = (0, false);
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            if self.reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').unwrap_or((&header, ""));
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
                "expect" => self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
                _ => {}
            }
            headers.push((name, value.trim().to_owned()));
        }
        let bytes = if chunked { self.chunks()? } else { self.exactly(length)? };
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(Some(StandInRequest { method, path, headers, body }))
    }

    fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).unwrap_or(0);
            all.extend(self.exactly(size)?);
            self.reader.read_line(&mut line)?;
            if size == 0 {
                return Ok(all);
            }
        }
    }

    pub(crate) fn send(&mut self, reply: &StandInReply) -> io::Result<()> {
        let body = match reply.status {
            204 | 304 => String::new(),
            _ => reply.body.to_string(),
        };
        let mut head = format!(
            "HTTP/1.1 {} Stub\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            reply.status,
            body.len()
        );
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.writer.write_all(format!("{head}\r\n{body}").as_bytes())
    }

    /// Cuts the connection without a word.
    pub(crate) fn drop_it(&mut self) -> io::Result<()> {
        self.over = true;
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.writer, now)?;
        self.writer.shutdown(Shutdown::Both)
    }

    pub(crate) fn begin_stream(&mut self, headers: &Value) -> io::Result<()> {
        let mut head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
            cache-control: no-cache\r\ntransfer-encoding: chunked\r\n"
            .to_owned();
        for (name, value) in headers.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.writer.write_all(format!("{head}\r\n").as_bytes())
    }

    fn chunk(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    pub(crate) fn event(&mut self, event: &str, data: &Value) -> io::Result<()> {
        let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        let name = if event.is_empty() { String::new() } else { format!("event: {event}\n") };
        self.chunk(&format!("{name}data: {data}\n\n"))
    }

    /// Keeps the stream open; a client that leaves is noticed.
    pub(crate) fn hang(&mut self, seconds: f64) -> io::Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            self.chunk(": keep-alive\n\n")?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    pub(crate) fn end_stream(&mut self) -> io::Result<()> {
        self.writer.write_all(b"0\r\n\r\n")
    }
}
