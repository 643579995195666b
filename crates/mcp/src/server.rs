//! The protocol's side: lists the tools, carries calls out, keeps a waiting client patient.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::io::stdio;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};

use crate::tools::{self, McpToolCall};
use crate::{McpEnvironment, tool_socket};

/// How often a client that waits for an answer hears that we still wait.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

const INSTRUCTIONS: &str = "You work on one task of a larger run. get_task shows your task, list_peers shows the other tasks. Use ask instead of guessing when a wrong guess would be expensive. Commit your work, then call complete_task and finish.";

struct McpServer {
    to: McpEnvironment,
    version: String,
    /// How often each question was answered in this life of the server.
    answered: Arc<Mutex<BTreeMap<u64, u32>>>,
}

/// Serves standard input and output until the client goes.
pub(crate) async fn serve_stdio(to: McpEnvironment, version: &str) -> io::Result<()> {
    let server = McpServer { to, version: version.to_owned(), answered: Arc::default() };
    let running = match rmcp::serve_server(server, stdio()).await {
        Ok(running) => running,
        // A client that left before it said a word wants nothing.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    running.waiting().await.map(drop).map_err(io::Error::other)
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("mainstem", self.version.clone());
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools::list_tools();
        let tools = tools.into_iter().map(|t| Tool::new(t.name, t.description, t.schema)).collect();
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let result = match tools::parse_call(&request.name, &arguments) {
            Err(why) => Err(why),
            Ok(McpToolCall::Say(line, then)) => match tool_socket::send_line(&self.to, &line).await
            {
                Ok(()) => Ok(CallToolResult::success(vec![ContentBlock::text(then)])),
                Err(error) => Err(error.to_string()),
            },
            Ok(McpToolCall::Read(name)) => self.read_tool(name),
            Ok(McpToolCall::Ask(line)) => self.ask_question(&line, context).await,
        };
        // What goes wrong is for the model to read, not for its program.
        let told =
            result.unwrap_or_else(|why| CallToolResult::error(vec![ContentBlock::text(why)]));
        Ok(told.into())
    }
}

impl McpServer {
    fn read_tool(&self, name: &str) -> Result<CallToolResult, String> {
        let path = self.to.folder.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(CallToolResult::success(vec![ContentBlock::text(text)])),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    async fn ask_question(
        &self,
        line: &Map<String, Value>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let (key, reference) = self.question_reference(line);
        let answer = tool_socket::await_answer(&self.to, line, &reference);
        tokio::pin!(answer);
        let mut signs = tokio::time::interval(SIGN_OF_LIFE);
        let mut count = 0.0;
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer.map_err(|error| error.to_string())?,
                () = context.ct.cancelled() => {
                    return Err("the call was cancelled; the question stays open".to_owned());
                }
                _ = signs.tick() => {
                    if let Some(token) = context.meta.get_progress_token() {
                        count += 1.0;
                        let sign = ProgressNotificationParam::new(token, count)
                            .with_message("waiting for an answer");
                        // A client that no longer listens will cancel or go.
                        let _ = context.peer.notify_progress(sign).await;
                    }
                }
            }
        };
        if let Ok(mut answered) = self.answered.lock() {
            *answered.entry(key).or_default() += 1;
        }
        let text = answer["answer"].as_str().or(answer.as_str()).unwrap_or_default().to_owned();
        let mut result = CallToolResult::success(vec![ContentBlock::text(text.clone())]);
        result.structured_content = Some(json!({"answer": text, "question": answer["question"]}));
        Ok(result)
    }

    /// The name of a question. One that is asked again before its answer was heard, by a client that gave
    /// up or by a new server, has the same name, and so is not asked twice.
    fn question_reference(&self, line: &Map<String, Value>) -> (u64, String) {
        let mut hasher = DefaultHasher::new();
        for key in ["question", "options"] {
            line.get(key).map(Value::to_string).hash(&mut hasher);
        }
        let key = hasher.finish();
        let times = self.answered.lock().map_or(0, |a| a.get(&key).copied().unwrap_or(0));
        (key, format!("{key:016x}-{times}"))
    }
}
