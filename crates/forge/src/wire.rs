//! One request and one answer, as data, and whoever carries them.

use serde_json::Value;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeHttpMethod {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

impl ForgeHttpMethod {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ForgeHttpRequest {
    pub verb: ForgeHttpMethod,
    /// Below the API's address, with its query.
    pub path: String,
    pub body: Option<Value>,
    /// What it is for, in words for a person.
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForgeHttpResponse {
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ForgeHttpResponse {
    /// One of its headers.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeTransportError {
    /// The request may have got there.
    pub maybe_sent: bool,
    /// In the system's words.
    pub why: String,
}

pub trait ForgeTransport: Send + Sync {
    /// Carries one to this address and waits for the answer, whatever its status.
    fn send(
        &self,
        url: &str,
        request: &ForgeHttpRequest,
        headers: &[(String, String)],
    ) -> Result<ForgeHttpResponse, ForgeTransportError>;
}

/// Percent-encodes one part of a path or query.
pub fn percent_encode(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The same for a path of several parts.
pub fn percent_encode_path(path: &str) -> String {
    path.split('/').map(percent_encode).collect::<Vec<_>>().join("/")
}
