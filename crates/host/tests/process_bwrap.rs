//! What holds for supervised jobs holds behind the wall of bubblewrap, too.
#![cfg(all(target_os = "linux", not(mainstem_portable)))]

#[path = "process/main.rs"]
mod process;
