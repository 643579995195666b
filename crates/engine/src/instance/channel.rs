//! The line between an engine and whoever may interrupt it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::event::EngineEvent;

/// A way to reach a running engine from signals and other threads.
#[derive(Debug, Clone)]
pub struct EngineHandle(Sender<EngineEvent>, Arc<AtomicU32>);

impl EngineHandle {
    /// Stop: once gently, twice at once, three times without waiting.
    pub fn interrupt(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        // An engine that has ended needs no interrupting.
        let _ = self.0.send(EngineEvent::Interrupt);
    }
}

/// The line between an engine and its handles, made before the engine.
#[derive(Debug)]
pub struct EngineChannel(
    pub(super) Sender<EngineEvent>,
    pub(super) Receiver<EngineEvent>,
    pub(super) Arc<AtomicU32>,
);

impl EngineChannel {
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self(sender, receiver, Arc::default())
    }
    /// A way to reach the engine.
    pub fn handle(&self) -> EngineHandle {
        EngineHandle(self.0.clone(), self.2.clone())
    }
    /// Whether somebody wanted to stop.
    pub fn is_interrupted(&self) -> bool {
        self.2.load(Ordering::Relaxed) > 0
    }
}

impl Default for EngineChannel {
    fn default() -> Self {
        Self::new()
    }
}
