//! Writing to a terminal or pipe from a thread of its own: a reader that does not read must never
//! hold up the engine.

use std::io::Write;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalStream {
    Out,
    Err,
}

/// Writes in order, without making anybody wait. Dropping it waits until all is written.
#[derive(Debug)]
pub(crate) struct AsyncWriter {
    words: Option<Sender<(TerminalStream, String)>>,
    hand: Option<JoinHandle<()>>,
}

impl AsyncWriter {
    pub(crate) fn new() -> Self {
        let (words, ink) = mpsc::channel::<(TerminalStream, String)>();
        let write = move || {
            let mut deaf = false;
            for (sheet, text) in ink {
                match sheet {
                    // A reader that has gone must not end the run.
                    TerminalStream::Out if !deaf => {
                        let mut out = std::io::stdout().lock();
                        deaf = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
                    }
                    TerminalStream::Out => {}
                    TerminalStream::Err => {
                        let mut err = std::io::stderr().lock();
                        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
                    }
                }
            }
        };
        let hand = std::thread::Builder::new().name("pen".to_owned()).spawn(write).ok();
        Self { words: Some(words), hand }
    }

    /// Writes this after all before.
    pub(crate) fn write(&self, sheet: TerminalStream, text: String) {
        if let Some(words) = &self.words {
            let _ = words.send((sheet, text));
        }
    }
}

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        self.words = None;
        if let Some(hand) = self.hand.take() {
            let _ = hand.join();
        }
    }
}
