//! The stand-in for language models as a program: `llm-stand-in [PORT]`, for trying agents by hand.

#![expect(clippy::print_stdout, reason = "it says where it listens")]

use mainstem_testkit::llm::LlmStandIn;

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let stand_in = LlmStandIn::start_at(port)?;
    println!("listening on {}", stand_in.url());
    loop {
        std::thread::park();
    }
}
