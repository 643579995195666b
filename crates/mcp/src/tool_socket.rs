//! The way through the attempt's door: a connection per call, so that calls cannot disturb each other and
//! ending one is all that a cancelled call needs.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::McpEnvironment;

/// Tries to get through a door that is there but does not let us in.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);
/// The keeper answers at once; when it must hold a flood back, later.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a line did not get through.
#[derive(Debug, thiserror::Error)]
pub enum McpSocketError {
    /// The keeper said no.
    #[error("{0}")]
    Refused(String),
    /// There is nobody behind the door.
    #[error("cannot reach mainstem: {0}; continue without it")]
    Gone(#[from] io::Error),
}

struct McpConnection {
    stream: BufReader<UnixStream>,
}

impl McpConnection {
    async fn open(to: &McpEnvironment) -> Result<Self, McpSocketError> {
        let mut line = Self { stream: BufReader::new(UnixStream::connect(&to.socket).await?) };
        line.send(&json!({ "token": to.token })).await?;
        Ok(line)
    }

    /// Sends a line and hears whether it was taken.
    async fn send(&mut self, value: &Value) -> Result<(), McpSocketError> {
        self.stream.get_mut().write_all(format!("{value}\n").as_bytes()).await?;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer");
        let said = tokio::time::timeout(PATIENCE, self.read_reply()).await.map_err(late)??;
        match said.get("error").and_then(Value::as_str) {
            Some(error) => Err(McpSocketError::Refused(error.to_owned())),
            None => Ok(()),
        }
    }

    async fn read_reply(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        serde_json::from_str(&line).map_err(io::Error::other)
    }
}

/// Sends one line, trying again while the door is only busy.
pub async fn send_line(to: &McpEnvironment, line: &Value) -> Result<(), McpSocketError> {
    let mut tries = 0;
    loop {
        let said = async {
            let mut door = McpConnection::open(to).await?;
            door.send(line).await
        };
        match said.await {
            Err(McpSocketError::Gone(error)) => back_off(&mut tries, error).await?,
            other => return other,
        }
    }
}

/// Asks and waits for the answer, however long that takes. A connection that breaks is made anew; the
/// name of the question makes sure that it is asked once.
pub async fn await_answer(
    to: &McpEnvironment,
    question: &Map<String, Value>,
    reference: &str,
) -> Result<Value, McpSocketError> {
    let mut line = question.clone();
    line.insert("ref".to_owned(), Value::from(reference));
    let line = Value::Object(line);
    let mut tries = 0;
    loop {
        let asked = async {
            let mut door = McpConnection::open(to).await?;
            door.send(&line).await?;
            Ok::<_, McpSocketError>(door)
        };
        let mut door = match asked.await {
            Ok(door) => door,
            Err(McpSocketError::Gone(error)) => {
                back_off(&mut tries, error).await?;
                continue;
            }
            Err(refused) => return Err(refused),
        };
        tries = 0;
        while let Ok(mut said) = door.read_reply().await {
            if said.get("ref").and_then(Value::as_str) == Some(reference) {
                return Ok(said["answer"].take());
            }
        }
        back_off(&mut tries, io::ErrorKind::UnexpectedEof.into()).await?;
    }
}

async fn back_off(tries: &mut u32, error: io::Error) -> Result<(), McpSocketError> {
    *tries += 1;
    if *tries >= TRIES {
        return Err(error.into());
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}
