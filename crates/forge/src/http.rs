//! Requests over HTTP and TLS. Knows nothing of forges.

use std::io::ErrorKind;
use std::time::Duration;

use ureq::{Agent, Error, http};

use crate::wire::{
    ForgeHttpMethod, ForgeHttpRequest, ForgeHttpResponse, ForgeTransport, ForgeTransportError,
};

/// For one whole request. A forge that is slower than this is as good as gone.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Larger answers are refused.
const BODY_BYTES_MAX: u64 = 32 << 20;

/// Connections to one or more forges, kept open between requests.
pub struct ForgeHttpClient {
    agent: Agent,
}

impl ForgeHttpClient {
    /// With the usual limits, and with the proxy that the environment names.
    pub fn new() -> Self {
        Self::with_timeout(TIMEOUT)
    }

    /// The same with another time limit for one whole request.
    pub fn with_timeout(timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(CONNECT_TIMEOUT.min(timeout)))
            .user_agent(concat!("mainstem/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into() }
    }
}

impl Default for ForgeHttpClient {
    fn default() -> Self {
        Self::new()
    }
}

impl ForgeTransport for ForgeHttpClient {
    fn send(
        &self,
        url: &str,
        request: &ForgeHttpRequest,
        headers: &[(String, String)],
    ) -> Result<ForgeHttpResponse, ForgeTransportError> {
        let mut builder = http::Request::builder().method(request.verb.as_str()).uri(url);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let unsent = |why: String| ForgeTransportError { maybe_sent: false, why };
        let answered = match (&request.body, request.verb) {
            (Some(body), _) => {
                let sent = builder.header("content-type", "application/json");
                let sent =
                    sent.body(body.to_string()).map_err(|error| unsent(error.to_string()))?;
                self.agent.run(sent)
            }
            (None, ForgeHttpMethod::Post | ForgeHttpMethod::Put | ForgeHttpMethod::Patch) => {
                let sent =
                    builder.body(String::new()).map_err(|error| unsent(error.to_string()))?;
                self.agent.run(sent)
            }
            (None, ForgeHttpMethod::Get | ForgeHttpMethod::Delete) => {
                let sent = builder.body(()).map_err(|error| unsent(error.to_string()))?;
                self.agent.run(sent)
            }
        };
        let mut answer = answered.map_err(|error| transport_failure(&error))?;
        let headers = answer
            .headers()
            .iter()
            .map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
        let body =
            body.map_err(|error| ForgeTransportError { maybe_sent: true, why: error.to_string() })?;
        Ok(ForgeHttpResponse { status, headers, body })
    }
}

/// Whether it can have got there: only a connection that never stood proves that it did not.
fn transport_failure(error: &Error) -> ForgeTransportError {
    let never_stood = match error {
        Error::HostNotFound
        | Error::ConnectionFailed
        | Error::BadUri(_)
        | Error::RequireHttpsOnly(_)
        | Error::InvalidProxyUrl
        | Error::Tls(_)
        | Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        _ => false,
    };
    ForgeTransportError { maybe_sent: !never_stood, why: error.to_string() }
}
