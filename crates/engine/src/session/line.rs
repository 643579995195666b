//! The line between an engine and whoever may interrupt it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::event::Event;

/// A way to reach a running engine from signals and other threads.
#[derive(Debug, Clone)]
pub struct Handle(Sender<Event>, Arc<AtomicU32>);

impl Handle {
    /// Stop: once gently, twice at once, three times without waiting.
    pub fn interrupt(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        // An engine that has ended needs no interrupting.
        let _ = self.0.send(Event::Interrupt);
    }
}

/// The line between an engine and its handles, made before the engine.
#[derive(Debug)]
pub struct Line(pub(super) Sender<Event>, pub(super) Receiver<Event>, pub(super) Arc<AtomicU32>);

impl Line {
    /// A new one.
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self(sender, receiver, Arc::default())
    }
    /// A way to reach the engine.
    pub fn handle(&self) -> Handle {
        Handle(self.0.clone(), self.2.clone())
    }
    /// Whether somebody wanted to stop.
    pub fn is_interrupted(&self) -> bool {
        self.2.load(Ordering::Relaxed) > 0
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}
